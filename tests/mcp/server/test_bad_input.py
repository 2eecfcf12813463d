"""What is no message is answered with the protocol's error, and the rest continues."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.mcp.test_retries import CLIENT, project

from handrail.mcp.server.stdio import MAX_FRAME_BYTES


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
        body = {"jsonrpc": "2.0", "id": number, "method": method, "params": {"_meta": CLIENT, **params}}
        self.send(json.dumps(body).encode())
        return self.next()


def test_bad_frames_are_answered_and_a_good_one_after_them_is_served(tmp_path: Path) -> None:
    piped = Piped(project(tmp_path))
    try:
        listed = piped.ask(1, "tools/list")
        assert {tool["name"] for tool in listed["result"]["tools"]} == {"echo", "send_note"}
        piped.send(b"{not json")
        assert piped.next()["error"]["code"] == -32700
        piped.send(b'[{"jsonrpc": "2.0", "id": 2, "method": "ping"}]')
        assert piped.next()["error"]["code"] == -32600
        piped.send(b'{"jsonrpc": "2.0", "id": 3, "method": 5}')
        refused = piped.next()
        assert (refused["id"], refused["error"]["code"]) == (3, -32600)
        piped.send(b'{"jsonrpc": "2.0", "id": 4, "x": "' + b"a" * (MAX_FRAME_BYTES + 10) + b'"}')
        assert piped.next()["error"]["code"] == -32600
        assert piped.ask(5, "tools/dance")["error"]["code"] == -32601
        assert piped.ask(6, "tools/call", name="no_such_tool", arguments={})["error"]["code"] == -32602
        newer = {**CLIENT, "io.modelcontextprotocol/protocolVersion": "2030-01-01"}
        assert piped.ask(7, "tools/list", _meta=newer)["error"]["code"] == -32022
        piped.send(b'{"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 999}}')
        good = piped.ask(8, "tools/call", name="echo", arguments={"text": "still here"})
        assert good["result"]["structuredContent"]["data"] == "still here"
        wrong = piped.ask(9, "tools/call", name="echo", arguments={"txt": 1})
        assert wrong["result"]["isError"] is True
        assert wrong["result"]["structuredContent"]["error"]["type"] == "VALIDATION"
    finally:
        assert piped.process.stdin is not None
        piped.process.stdin.close()
        said = piped.process.stderr.read().decode() if piped.process.stderr is not None else ""
        assert piped.process.wait(20) == 0
        for stream in (piped.process.stdout, piped.process.stderr):
            assert stream is not None
            stream.close()
    assert said.count("A client sent a frame that is no message") == 4
    assert "Traceback" not in said
