"""Who answers after a start: with a key in the environment, with an Ollama, with neither, with a broken one."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from tests.clients.tiny_gguf import write_tiny_gguf

from handrail.testing.servers import OllamaServer, OpenAIChatServer, Reply

TOML = '[tools]\nreference = ["format_datetime"]\n\n[store]\nurl = "memory:"\n'


class Running:
    """A server, and what it said when it was ready."""

    def __init__(self, told: dict[str, Any]) -> None:
        self.told = told
        self._http = httpx.Client(
            base_url=told["url"], headers={"Authorization": f"Bearer {told['key']}"}, timeout=30, trust_env=False
        )

    def model(self) -> dict[str, Any]:
        return self._http.get("/api/model").json()

    def choose(self, name: str) -> dict[str, Any]:
        answer = self._http.post("/api/model", json={"model": name})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metrics(self) -> dict[str, Any]:
        return self._http.get("/metrics", headers={"Accept": "application/json"}).json()

    def say(self, text: str) -> str:
        body = {"messages": [{"role": "user", "content": text}]}
        answer = self._http.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"][0]["message"]["content"]

    def close(self) -> None:
        self._http.close()


def command(*words: str) -> list[str]:
    return [sys.executable, "-W", "error", "-m", "handrail", *words]


@contextmanager
def serving(project: Path, *words: str, **environment: str) -> Iterator[Running]:
    (project / "handrail.toml").write_text(TOML, "utf-8")
    process = subprocess.Popen(
        command("serve", "--port", "0", "--json", *words), cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )  # fmt: skip
    try:
        line = process.stdout.readline()
        assert line, process.stderr.read().decode()
        running = Running(json.loads(line))
        yield running
        running.close()
    finally:
        process.terminate()
        process.communicate(timeout=30)


def failed_start(project: Path, *words: str, **environment: str) -> str:
    (project / "handrail.toml").write_text(TOML, "utf-8")
    done = subprocess.run(
        command("serve", "--port", "0", *words), cwd=project, capture_output=True, timeout=60, check=False,
        env={**os.environ, "PYTHONUTF8": "1", **environment},
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stdout == b""
    said = done.stderr.decode()
    assert "Traceback" not in said
    return said


async def test_a_key_is_offered_and_nothing_is_sent_before_somebody_says_so(tmp_path):
    async with OpenAIChatServer([Reply("Here is OpenAI.")]) as vendor:
        environment = {**vendor.environment, "OPENAI_BASE_URL": vendor.base_url}

        def play() -> None:
            with serving(tmp_path, **environment) as server:
                assert server.told["model"] == "demo"
                assert server.told["offers"] == ["openai:gpt-5-mini"]
                assert "language model" in server.told["modelReason"]
                assert "OpenAI" not in server.say("hello")
                assert server.model()["offers"] == [
                    {"model": "openai:gpt-5-mini", "reason": "OPENAI_API_KEY is set", "vendor": "127.0.0.1"}
                ]
                assert server.choose("openai:gpt-5-mini")["reason"] == "an operator chose it in the console"
                assert vendor.requests == []
                assert server.say("hello") == "Here is OpenAI."

        await asyncio.to_thread(play)
        assert [request.path for request in vendor.requests] == ["/v1/chat/completions"]
        assert vendor.requests[0].body["model"] == "gpt-5-mini"


async def test_an_ollama_of_this_machine_answers_by_itself(tmp_path):
    models = {"qwen3:4b": ["completion", "tools"], "all-minilm": ["embedding"]}
    async with OllamaServer([Reply("Here is Ollama.")], api_key="", models=models) as ollama:

        def play() -> None:
            with serving(tmp_path, OLLAMA_HOST=ollama.base_url) as server:
                assert server.told["model"] == "ollama:qwen3:4b"
                assert ollama.base_url in server.told["modelReason"]
                assert server.say("hello") == "Here is Ollama."

        await asyncio.to_thread(play)
    assert [request.path for request in ollama.requests][-1] == "/api/chat"


def test_with_neither_the_demo_answers_and_says_why(tmp_path):
    with serving(tmp_path) as server:
        assert (server.told["model"], server.told["offers"]) == ("demo", [])
        shown = server.model()
        assert shown["sentence"] == "Answered by the demo model: no language model is connected."
        assert len(shown["ways"]) == 3


def test_a_broken_ollama_is_said_and_the_demo_answers_instead(tmp_path):
    class Broken(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(500)

        def log_message(self, *_: object) -> None:
            """Standard error is the tests'."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Broken) as ollama:
        threading.Thread(target=ollama.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{ollama.server_port}"
        broken = f"Ollama at {address} does not work: it answers with the status 500"
        with serving(tmp_path, OLLAMA_HOST=address) as server:
            assert server.told["model"] == "demo"
            assert broken in server.told["modelReason"]
            assert server.model()["broken"] == broken
            assert server.say("hello")
        done = subprocess.run(
            command("doctor", "--json"), cwd=tmp_path, capture_output=True, timeout=60, check=False,
            env={**os.environ, "PYTHONUTF8": "1", "OLLAMA_HOST": address},
        )  # fmt: skip
        said = {check["name"]: check["message"] for check in json.loads(done.stdout)}
        assert said["model"].startswith(f"Answered by the demo model: no language model is connected ({broken};")
        ollama.shutdown()


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        ("ollama:qwen3", "nobody answers at http://127.0.0.1:9; start it with `ollama serve`."),
        ("anthropic:m", 'The model "anthropic:m" needs a key; set ANTHROPIC_API_KEY in the environment.'),
    ],
)
def test_a_broken_one_stops_the_start_with_a_sentence_and_nothing_takes_its_place(tmp_path, model, sentence):
    assert sentence in failed_start(tmp_path, HANDRAIL_AGENT_MODEL=model, OPENAI_API_KEY="k")


def test_a_file_of_this_machine_answers_and_its_process_ends_with_the_server(tmp_path):
    pytest.importorskip("xllamacpp", exc_type=ImportError)
    write_tiny_gguf(tmp_path / "tiny.gguf")
    with serving(tmp_path, "--model", "local:tiny.gguf") as server:
        assert (server.told["model"], server.told["modelReason"]) == ("local:tiny.gguf", "--model names it")
        assert server.say("hello"), "nonsense, but an answer"
        figures = server.metrics()["model"]
        assert figures["name"] == "tiny.gguf"
        assert figures["memoryBytes"] > 1_000_000
        assert figures["outputTokens"] > 0
        children = Path(f"/proc/{server.told['pid']}/task/{server.told['pid']}/children").read_text("ascii").split()
        assert len(children) == 1
    assert not Path(f"/proc/{children[0]}").exists()


def test_a_file_that_is_damaged_stops_the_start_with_a_sentence(tmp_path):
    pytest.importorskip("xllamacpp", exc_type=ImportError)
    whole = write_tiny_gguf(tmp_path / "damaged.gguf")
    whole.write_bytes(whole.read_bytes()[:9_000])
    said = failed_start(tmp_path, "--model", "local:damaged.gguf")
    assert 'The model file "damaged.gguf" cannot be run' in said
    assert "There is no model file" in failed_start(tmp_path, "--model", "local:missing.gguf")


def test_people_read_who_answers_and_what_is_offered(tmp_path):
    (tmp_path / "handrail.toml").write_text(TOML, "utf-8")
    environment = {**os.environ, "PYTHONUTF8": "1", "ANTHROPIC_API_KEY": "k"}
    said = subprocess.run(
        command("chat", "hello"), cwd=tmp_path, capture_output=True, timeout=60, check=True, env=environment
    ).stderr.decode()
    assert "handrail chat: Answered by the demo model: no language model is connected." in said
    assert "ANTHROPIC_API_KEY is set: `--model anthropic:" in said
    assert "sends the conversation to api.anthropic.com" in said
    checked = subprocess.run(
        command("doctor"), cwd=tmp_path, capture_output=True, timeout=60, check=False, env=environment
    ).stdout.decode()
    assert "Answered by the demo model: no language model is connected" in checked
    assert "ANTHROPIC_API_KEY is set" in checked
