"""What is no message is answered with the protocol's error over pipes and over HTTP, and the rest continues."""

import http.client
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
from tests.mcp.conftest import Notes
from tests.mcp.served_project import CLIENT, headers_of, project

from handrail.mcp.server.stdio import MAX_FRAME_BYTES

HUGE = 2**70
"""More than 64 bits: a number all the same."""
CALLS: list[tuple[Any, str, dict[str, Any], int | None]] = [
    (5, "tools/dance", {}, -32601),
    (6, "tools/call", {"name": "no_such_tool", "arguments": {}}, -32602),
    (7, "tools/list", {"_meta": {**CLIENT, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}}, -32022),
    (8, "tools/list", {"cursor": "9" * 5_000}, -32602),
    (9, "tools/list", {"cursor": "-1"}, -32602),
    (10, "tools/call", {"name": "echo", "arguments": {"text": "x"}, "requestState": "nonsense"}, -32602),
    (11, "tools/call", {"name": "echo", "arguments": {"text": HUGE}, "requestState": "nonsense"}, -32602),
    (HUGE, "tools/list", {}, None),
    (12, "tools/call", {"name": "echo", "arguments": {"text": "still here"}}, None),
]
FRAMES = [
    (b"{not json", -32700),
    (b'[{"jsonrpc": "2.0", "id": 2, "method": "ping"}]', -32600),
    (b'{"jsonrpc": "2.0", "id": 3, "method": 5}', -32600),
    (b'{"jsonrpc": "2.0", "id": 1.5, "method": "tools/list"}', -32600),
    (b'{"jsonrpc": "2.0", "id": null, "method": "tools/list"}', -32600),
    (b'{"jsonrpc": "2.0", "id": true, "method": "tools/list"}', -32600),
    (b'{"jsonrpc": "2.0", "id": 4, "x": "' + b"a" * (MAX_FRAME_BYTES + 10) + b'"}', -32600),
]


def message(number: Any, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps(
        {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": CLIENT, **params}}
    ).encode()


class Piped:
    """`handrail mcp`, frame by frame."""

    def __init__(self, folder: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "handrail", "mcp"],
            cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def send(self, frame: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(frame + b"\n")
        self.process.stdin.flush()

    def next(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        found: dict[str, Any] = json.loads(self.process.stdout.readline())
        return found

    def ask(self, number: Any, method: str, **params: Any) -> dict[str, Any]:
        self.send(message(number, method, params))
        return self.next()

    def end(self) -> str:
        """What it said on standard error."""
        _, said = self.process.communicate(timeout=20)
        assert self.process.returncode == 0
        return said.decode()


def check_answer(answer: dict[str, Any], number: Any, code: int | None) -> None:
    assert answer["id"] == number
    assert answer.get("error", {}).get("code") == code, answer


def test_bad_frames_over_pipes_are_answered_and_a_good_one_after_them_is_served(tmp_path: Path) -> None:
    piped = Piped(project(tmp_path))
    try:
        for frame, code in FRAMES:
            piped.send(frame)
            check_answer(piped.next(), 3 if b'id": 3' in frame else None, code)
        piped.send(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 999}}')
        for number, method, params, code in CALLS:
            check_answer(piped.ask(number, method, **params), number, code)
        wrong = piped.ask(13, "tools/call", name="echo", arguments={"txt": 1})
        assert wrong["result"]["isError"] is True
        assert wrong["result"]["structuredContent"]["error"]["type"] == "VALIDATION"
        held = piped.ask(14, "tools/call", name="pay", arguments={"amount": 1})
        assert f'"handrail serve" in {tmp_path}' in held["result"]["structuredContent"]["error"]["message"]
    finally:
        said = piped.end()
    assert said.count("A client sent a frame that is no message") == len(FRAMES)
    assert said.count("A client's request was refused with the error -3") == sum(code is not None for *_, code in CALLS)
    assert "Traceback" not in said


def test_bad_frames_over_http_are_answered_and_a_good_one_after_them_is_served(notes: Notes) -> None:
    log = notes.folder / "serve.log"
    before = log.read_text().count("Traceback")
    plain = {**headers_of(notes, "x"), "Content-Type": "application/json"}
    with httpx2.Client(timeout=30) as client:
        for frame, code in FRAMES:
            answer = client.post(notes.mcp, content=frame, headers=plain)
            if len(frame) > MAX_FRAME_BYTES:
                assert answer.status_code == 413
            else:
                assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), frame
        # So much that it is still being sent when it is refused, by a client that sends all of it before it reads.
        plainly = http.client.HTTPConnection(notes.url.removeprefix("http://"), timeout=30)
        plainly.request("POST", "/mcp", body=b" " * 8 * MAX_FRAME_BYTES, headers=plain)
        assert plainly.getresponse().status == 413
        plainly.close()
        for number, method, params, code in CALLS:
            version = params.get("_meta", CLIENT)["io.modelcontextprotocol/protocolVersion"]
            named = {"Mcp-Method": method, "Mcp-Name": params.get("name", "x"), "MCP-Protocol-Version": version}
            answer = client.post(notes.mcp, content=message(number, method, params), headers={**plain, **named})
            check_answer(answer.json(), number, code)
    said = log.read_text()
    assert said.count("Traceback") == before
    assert 0 < said.count("A request over MCP with the key") < len(FRAMES), (
        "one line of many, because they may come without end"
    )
