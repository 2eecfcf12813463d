"""Images of OpenAI and Gemini through their own SDKs, against local servers that speak their protocols and misbehave."""

import base64
import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from tests.services.sentences import told
from tests.tools.reference import kind, reference

from handrail.errors import ConfigError, ToolError
from handrail_reference.services.images import Images, open_images
from handrail_reference.services.images.image_engine import as_png

KEY = "sk-local-image-key"
ENGINES = {"openai": "openai:gpt-image-1", "gemini": "gemini:gemini-2.5-flash-image"}


class ImageService:
    """Speaks `POST /v1/images/generations` of OpenAI and `:generateContent` of Gemini."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.problems: list[str] = []
        self.answer: tuple[int, dict[str, str], bytes] | None = None
        self.closes = False
        self.slow = 0.0
        self.refusal = ""
        self.refuses_after = 1_000
        self.kind = "PNG"
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.requests.append(body)
                if service.closes:
                    self.connection.close()
                    return
                time.sleep(service.slow)
                is_openai = self.path == "/v1/images/generations"
                given = self.headers.get("Authorization") if is_openai else self.headers.get("x-goog-api-key")
                if given != (f"Bearer {KEY}" if is_openai else KEY):
                    service.problems.append("wrong key")
                status, headers, out = service.answer or (service._openai(body) if is_openai else service._gemini(body))
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(out)))
                self.end_headers()
                self.wfile.write(out)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)

    def _picture(self, width: int, height: int) -> str:
        out = BytesIO()
        Image.new("RGB", (width, height), (20, 90, 120)).save(out, self.kind)
        return base64.b64encode(out.getvalue()).decode()

    def _openai(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        if set(body) != {"model", "prompt", "size", "n", "output_format"} or body["model"] != "gpt-image-1":
            self.problems.append(f"wrong body {sorted(body)}")
        if self.refusal:
            error = {"code": self.refusal, "type": "image_generation_user_error", "message": "Your request: SECRET"}
            return 400, {}, json.dumps({"error": error}).encode()
        width, height = map(int, body["size"].split("x"))
        usage = {"input_tokens": 12, "output_tokens": 4160, "total_tokens": 4172,
                 "input_tokens_details": {"text_tokens": 12, "image_tokens": 0}}  # fmt: skip
        data = [{"b64_json": self._picture(width, height)} for _ in range(body["n"])]
        return 200, {}, json.dumps({"created": 1, "size": body["size"], "data": data, "usage": usage}).encode()

    def _gemini(self, body: dict[str, Any]) -> tuple[int, dict[str, str], bytes]:
        config = body["generationConfig"]
        if config["responseModalities"] != ["IMAGE"]:
            self.problems.append("no image was asked for")
        if self.refusal.startswith("prompt "):
            return 200, {}, json.dumps({"promptFeedback": {"blockReason": self.refusal.split()[1]}}).encode()
        if self.refusal or len(self.requests) > self.refuses_after:
            return 200, {}, json.dumps({"candidates": [{"finishReason": self.refusal or "IMAGE_SAFETY"}]}).encode()
        width, height = {"1:1": (1024, 1024), "2:3": (832, 1248), "3:2": (1248, 832)}[
            config["imageConfig"]["aspectRatio"]
        ]
        part = {"inlineData": {"mimeType": "image/png", "data": self._picture(width, height)}}
        usage = {"promptTokenCount": 8, "candidatesTokenCount": 1290, "totalTokenCount": 1298}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}
        return 200, {}, json.dumps({"candidates": [candidate], "usageMetadata": usage}).encode()


@pytest.fixture
def service() -> Iterator[ImageService]:
    made = ImageService()
    yield made
    made.close()


def opened(folder: Path, vendor: str, service: ImageService, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Images:
    monkeypatch.setenv("IMAGE_KEY", KEY)
    base = service.address + ("/v1" if vendor == "openai" else "")
    return open_images(
        folder, directory="pictures", engine=ENGINES[vendor], api_key_env="IMAGE_KEY", base_url=base, **more
    )


@pytest.mark.parametrize(
    ("vendor", "size", "measures", "total"),
    [
        ("openai", "square", (1024, 1024), 4172),
        ("openai", "portrait", (1024, 1536), 4172),
        ("gemini", "landscape", (1248, 832), 1298),
    ],
)
async def test_an_image_is_drawn_in_the_services_own_size_with_its_cost(
    tmp_path: Path,
    service: ImageService,
    monkeypatch: pytest.MonkeyPatch,
    vendor: str,
    size: Any,
    measures: Any,
    total: int,
) -> None:
    images = opened(tmp_path, vendor, service, monkeypatch)
    (picture,) = await images.generate("a fox", size=size)
    assert (picture.width, picture.height) == measures
    assert picture.engine == ENGINES[vendor]
    assert picture.usage["totalTokens"] == total
    assert not picture.is_placeholder
    found = await images.find(picture.id)
    assert found is not None
    assert (found.engine, found.width) == (ENGINES[vendor], measures[0])
    assert images.session_attributes == {"paid_images": True}, "a person is asked, because it costs money"
    assert service.problems == []
    await images.aclose()


@pytest.mark.parametrize("vendor", ["openai", "gemini"])
async def test_a_picture_is_packed_beside_the_loop_that_everybody_waits_for(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    threads = []

    def noted(picture: bytes, engine: str) -> bytes:
        threads.append(threading.current_thread())
        return as_png(picture, engine)

    monkeypatch.setattr(f"handrail_reference.services.images.{vendor}_engine.as_png", noted)
    images = opened(tmp_path, vendor, service, monkeypatch)
    assert len(await images.generate("a house", count=2)) == 2
    assert len(threads) == 2
    assert threading.main_thread() not in threads
    await images.aclose()


async def test_two_images_of_gemini_are_two_requests_and_their_cost_is_added(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.kind = "JPEG"
    images = opened(tmp_path, "gemini", service, monkeypatch)
    first, second = await images.generate("a fox", count=2)
    assert len(service.requests) == 2
    assert (first.usage["totalTokens"], second.usage) == (2596, {})
    await images.aclose()


@pytest.mark.parametrize(
    ("vendor", "refusal"),
    [
        ("openai", "moderation_blocked"),
        ("gemini", "IMAGE_SAFETY"),
        ("gemini", "prompt PROHIBITED_CONTENT"),
    ],
)
async def test_a_refusal_for_safety_is_told_with_the_services_code_and_not_its_words(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str, refusal: str
) -> None:
    service.refusal = refusal
    images = opened(tmp_path, vendor, service, monkeypatch)
    with pytest.raises(ToolError, match="refused this prompt for safety reasons") as told:
        await images.generate("a fox")
    assert refusal.split()[-1] in str(told.value)
    assert "SECRET" not in str(told.value)
    assert (told.value.type, told.value.retryable) == ("PERMANENT", False)
    assert not list(tmp_path.rglob("*.png"))
    await images.aclose()


BROKEN = {
    "wrong key": ((401, {}, b'{"error":{"message":"bad key sk-local-image-key","code":401}}'), "AUTH"),
    "too many": ((429, {"Retry-After": "7"}, b'{"error":{"message":"slow","code":429}}'), "RATE_LIMIT"),
    "down": ((503, {}, b'{"error":{"message":"down","code":503}}'), "TRANSIENT"),
    "html": ((200, {"Content-Type": "text/html"}, b"<html>Sign in</html>"), "TRANSIENT"),
    "no image": ((200, {}, b'{"data":[{"b64_json":"bm8="}],"candidates":[{"content":{"parts":[{"inlineData":{"mimeType":'
                  b'"image/png","data":"bm8="}}]}}],"created":1}'), "PERMANENT"),
}  # fmt: skip


@pytest.mark.parametrize("vendor", ENGINES)
@pytest.mark.parametrize("case", BROKEN)
async def test_a_service_that_fails_or_lies_is_one_sentence_and_leaves_no_file(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str, case: str
) -> None:
    service.answer, wanted = BROKEN[case]
    images = opened(tmp_path, vendor, service, monkeypatch)
    with pytest.raises(ToolError) as told:
        await images.generate("a fox")
    assert told.value.type == wanted
    assert KEY not in str(told.value)
    assert len(service.requests) == 1, "nothing that is paid for is asked twice"
    assert not list(tmp_path.rglob("*.png"))
    await images.aclose()


@pytest.mark.parametrize("vendor", ENGINES)
async def test_nothing_is_paid_for_that_cannot_be_kept(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    images = opened(tmp_path, vendor, service, monkeypatch)
    images._folder._max_images = 1
    with pytest.raises(ToolError, match="No more images can be kept") as told:
        await images.generate("a fox", count=2)
    assert (service.requests, told.value.partial_side_effects) == ([], False)
    (tmp_path / "pictures").rename(tmp_path / "moved")
    (tmp_path / "pictures").write_text("no folder")
    with pytest.raises(ToolError, match="could not be stored"):
        await images.generate("a fox")
    assert service.requests == []
    await images.aclose()


@pytest.mark.parametrize("vendor", ENGINES)
async def test_an_image_that_is_lost_after_it_was_paid_for_is_said(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str
) -> None:
    images = opened(tmp_path, vendor, service, monkeypatch)
    monkeypatch.setattr(type(images._folder), "check_room", lambda folder, count: None)
    (tmp_path / "pictures").write_text("no folder")
    with pytest.raises(ToolError, match="drawn and paid for before that, and is lost") as told:
        await images.generate("a fox")
    assert (told.value.partial_side_effects, told.value.retryable) == (True, False)
    await images.aclose()


async def test_a_second_image_that_fails_says_that_the_first_was_paid_for(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = opened(tmp_path, "gemini", service, monkeypatch)
    service.refuses_after = 1
    with pytest.raises(ToolError, match=r"safety reasons.*drawn and paid for before that") as told:
        await images.generate("a fox", count=2)
    assert "nothing was drawn" not in str(told.value)
    assert told.value.partial_side_effects
    assert len(service.requests) == 2
    await images.aclose()


@pytest.mark.parametrize("vendor", ENGINES)
@pytest.mark.parametrize("way", ["closes", "slow", "gateway", "fails", "overloaded"])
async def test_a_service_that_goes_away_may_have_drawn(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, vendor: str, way: str
) -> None:
    service.closes, service.slow = way == "closes", 2.5 if way == "slow" else 0.0
    status = {"gateway": 504, "fails": 500, "overloaded": 503}.get(way)
    body = json.dumps({"error": {"message": "No.", "code": status}}).encode()
    service.answer = (status, {"Retry-After": "1"}, body) if status else None
    images = opened(tmp_path, vendor, service, monkeypatch, seconds=1)
    with pytest.raises(ToolError, match="may have been drawn and paid for") as told:
        await images.generate("a fox")
    assert told.value.partial_side_effects
    assert not told.value.retryable
    await images.aclose()


TOLD = {
    **{name: ({"answer": answer}, "") for name, (answer, _) in BROKEN.items()},
    "failed": ({"answer": (500, {}, b'{"error":{"message":"No. Never.","code":500}}')}, "may have been drawn"),
    "refused": ({"refusal": "moderation_blocked"}, "nothing was drawn."),
    "second refused": ({"refuses_after": 1}, "drawn and paid for before that"),
    "closed": ({"closes": True}, "did not answer"),
}


@pytest.mark.parametrize("name", TOLD)
async def test_a_failure_is_told_to_the_model_and_the_person_in_one_sentence(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    state, says = TOLD[name]
    vendor = "gemini" if name == "second refused" else "openai"
    images = opened(tmp_path, vendor, service, monkeypatch)
    for field, value in state.items():
        setattr(service, field, value)
    with reference("image_generate", images=images) as tools:
        async with tools.runtime(attributes=images.session_attributes) as runtime:
            session = await runtime.open_session()
            await session.call("image_generate", {"prompt": "a fox", "count": 2}, call_id="c1")
            event = await anext(aiter(session.events()))
            assert says in told(await runtime.approve(event.data["id"], token=event.data["token"]))
    await images.aclose()


async def test_the_tool_asks_a_person_and_gives_the_model_engine_and_cost(
    tmp_path: Path, service: ImageService, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = opened(tmp_path, "openai", service, monkeypatch)
    with reference("image_generate", images=images) as tools:
        async with tools.runtime(attributes=images.session_attributes) as runtime:
            session = await runtime.open_session()
            held = await session.call("image_generate", {"prompt": "a fox"}, call_id="c1")
            assert kind(held) == "CONFIRMATION_REQUIRED"
            assert service.requests == []
            event = await anext(aiter(session.events()))
            answer = await runtime.approve(event.data["id"], token=event.data["token"])
    (image,) = answer.data["images"]
    assert (image["engine"], image["placeholder"]) == ("openai:gpt-image-1", False)
    assert image["usage"]["outputTokens"] == 4160
    await images.aclose()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"engine": "dalle"}, 'must be "placeholder", "openai:gpt-image-1" or "gemini:MODEL"'),
        ({"engine": "openai:"}, "is not"),
        (
            {"engine": "openai:gpt-image-1", "api_key_env": "NOT_SET_HERE"},
            'needs a key in the environment variable "NOT_SET_HERE"',
        ),
    ],
)
def test_a_wrong_engine_stops_the_start(tmp_path: Path, settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as told:
        open_images(tmp_path, **settings)
    assert sentence in str(told.value)


async def test_the_placeholder_says_what_it_is(tmp_path: Path) -> None:
    images = open_images(tmp_path)
    (picture,) = await images.generate("a fox")
    assert picture.is_placeholder
    assert picture.engine.startswith("placeholder")
    found = await images.find(picture.id)
    assert found is not None
    assert found.is_placeholder
    assert images.session_attributes == {}
    await images.aclose()
