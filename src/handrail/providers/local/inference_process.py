"""The child process that runs a model. It imports nothing of Handrail and is started by its path; `process.py` talks to it.

Lines of JSON come in (`load` first, then requests and `cancel`) and go out (`ready`, pieces of text, `done`, `failed`). The end
of its input ends it, so that it cannot outlive a parent that was killed.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import SimpleQueue
from typing import Any

_BATCH = 256
"""Tokens of a prompt that are read at once; between two batches a request can be cancelled."""
_SPEED_TOKENS = 8
_UNFINISHED = "does not match the expected"
"""What the engine says of an answer that was cut: it is no whole JSON then."""


def main() -> None:
    # Native code may print; the answers need a channel of their own.
    out = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    Engine(out).serve()


class Engine:
    """One model, one request at a time."""

    def __init__(self, out: Any) -> None:
        self._out = out
        self._writing = threading.Lock()
        self._requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._cancelled = 0
        """Requests up to this number are not wanted any more."""
        self._server: Any = None

    def serve(self) -> None:
        threading.Thread(target=self._work, daemon=True).start()
        for line in sys.stdin:
            message = json.loads(line)
            if "cancel" in message:
                self._cancelled = max(self._cancelled, int(message["cancel"]))
            else:
                self._requests.put(message)
        os._exit(0)  # the engine's own threads may be busy, and nobody waits for them

    def _work(self) -> None:
        while True:
            message = self._requests.get()
            try:
                if "load" in message:
                    self._load(message["load"])
                else:
                    self._answer(message)
            except Exception as error:  # noqa: BLE001  # the engine may raise anything; the parent says it in a sentence
                self._tell({"id": message.get("id"), "failed": str(error) or type(error).__name__})

    def _load(self, wanted: dict[str, Any]) -> None:
        import xllamacpp  # noqa: PLC0415  # may fail for want of a system library, which is reported

        begun = time.monotonic()  # noqa: TID251  # this process has no clock port
        with tempfile.TemporaryDirectory(prefix="handrail-engine-") as folder:
            params = xllamacpp.CommonParams()
            params.model.path = wanted["path"]
            params.n_ctx = wanted["context"]
            params.n_parallel = 1
            params.n_batch = params.n_ubatch = _BATCH
            params.cache_ram_mib = 0
            params.verbosity = 1
            params.ui = False
            # The engine always opens an HTTP server. It is on a socket that only this user can reach, with a key that nobody has.
            params.hostnames = [str(Path(folder) / "engine.sock")]
            params.api_keys = [secrets.token_hex(32)]
            self._server = xllamacpp.Server(params)
        loaded = time.monotonic() - begun  # noqa: TID251
        speed = self._measure()
        self._tell({"ready": {"loadSeconds": loaded, "tokensPerSecond": speed, "memoryBytes": _memory()}})

    def _measure(self) -> float:
        """Tokens that are written in a second, on a few words."""
        body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": _SPEED_TOKENS, "ignore_eos": True}
        answer = self._server.handle_chat_completions(body)
        return float(answer.get("timings", {}).get("predicted_per_second", 0.0))

    def _answer(self, request: dict[str, Any]) -> None:
        number = int(request["id"])
        body = {
            **request["body"],
            "stream": True,
            "cache_prompt": True,
            "return_progress": True,
        }
        last: dict[str, Any] = {"finish_reason": "stop"}
        problems: list[str] = []

        def heard(piece: Any) -> bool:
            for one in piece if isinstance(piece, list) else [piece]:
                if "error" in one:  # raising would get lost in the engine's own thread
                    problems.append(str(one["error"].get("message", "unknown error")))
                if "timings" in one:
                    last["timings"] = one["timings"]
                for choice in one.get("choices", ()):
                    last["finish_reason"] = choice.get("finish_reason") or last["finish_reason"]
                    text = choice.get("delta", {}).get("content")
                    self._tell({"id": number, "text": text} if text else {"id": number, "alive": True})
            return self._cancelled >= number

        if self._cancelled < number:
            answer = self._server.handle_chat_completions(body, heard)
            if isinstance(answer, dict):
                heard(answer)
        if problems and _UNFINISHED in problems[0]:
            last["finish_reason"] = "length"
        elif problems:
            raise RuntimeError(problems[0])
        timings = last.get("timings", {})
        done = {
            "reason": "cancelled" if self._cancelled >= number else last["finish_reason"],
            "input": int(timings.get("prompt_n", 0)) + int(timings.get("cache_n", 0)),
            "output": int(timings.get("predicted_n", 0)),
            "tokensPerSecond": float(timings.get("predicted_per_second", 0.0)),
            "memoryBytes": _memory(),
        }
        self._tell({"id": number, "done": done})

    def _tell(self, message: dict[str, Any]) -> None:
        with self._writing:
            self._out.write(json.dumps(message) + "\n")
            self._out.flush()


def _memory() -> int:
    """Bytes of memory that this process holds now; at its peak, where the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        return next(int(line.split()[1]) * 1024 for line in status.splitlines() if line.startswith("VmRSS:"))
    except (OSError, StopIteration):
        pass  # this system does not say; the peak has to do
    try:
        import resource  # noqa: PLC0415  # not on every system
    except ImportError:
        return 0
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


if __name__ == "__main__":
    main()
