"""Measure how far a reader walks to follow one request: functions entered, files opened, switches from file to file.

    python scripts/walk.py [NAME …] [--list] [--json]

Each walk plays one request through real parts and records which functions of Handrail are entered: distinct functions, the
distinct files that hold them, and the distinct calls from a function into one of another file. A first, unmeasured request
brings imports and compiled plans out of the way. What is asked of a server is asked twice more, on a connection that is open, and
counts if it is entered both times. Tasks that are seen at work while nothing is asked (the housekeeper, watches) are left out,
with what they have done in threads and ask of the store. Server and voice run as `handrail serve` in a process
of its own, against local servers that speak the providers' protocols; the code of those protocols is left out too, but for the
microphone's frames.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from websockets.sync.client import connect

from handrail.cli import main as command_line
from handrail.testing import open_tools
from handrail.testing.servers import OpenAIChatServer, Reply, call
from handrail.testing.servers.live import Ask, OpenAIRealtimeServer, Say, Turn, silence, speech
from handrail.testing.servers.live import call as spoken_call

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = tuple(str(ROOT / "src" / name) + os.sep for name in ("handrail", "handrail_reference"))
PROTOCOLS = ("src/handrail/providers/", "src/handrail/clients/")
KEY = "hr_key_of_the_walk_0001"
API_KEY = "local-key"
LIMITS = {
    "read": (25, 10),
    "write": (70, 20),
    "held": (200, 35),
    "approve": (None, None),
    "frame": (15, 11),
    "utterance": (220, 35),
}
"""The limits of functions and files; none where only the figure is wanted."""


Place: TypeAlias = tuple[str, str]
"""File and function."""


class Recorder:
    """Which functions of Handrail are entered between `start` and `stop`, in all threads begun after `install`."""

    def __init__(self) -> None:
        self._functions: set[Place] = set()
        self._switches: set[tuple[Place, Place]] = set()
        self._background: set[Place] = set()
        """Where tasks begin that work while nothing is asked."""
        self._their_requests: dict[int, object] = {}
        """What such tasks have asked the threads of the store for, kept so that no other gets its id."""
        self._is_idle = False
        self._is_on = False

    def install(self) -> None:
        threading.setprofile(self._entered)
        sys.setprofile(self._entered)

    def idle(self) -> None:
        """From here until `start` nothing is asked: whatever works is background."""
        self._is_idle = True

    def start(self) -> None:
        self._functions.clear()
        self._switches.clear()
        self._is_idle, self._is_on = False, True

    def stop(self) -> dict[str, Any]:
        self._is_on = False
        return {"functions": sorted(self._functions), "switches": sorted(self._switches)}

    def _entered(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not (self._is_on or self._is_idle):
            return
        place = _place(frame)
        if place is None:
            return
        caller, root, is_task, is_theirs, back = None, place, False, False, frame.f_back
        while back is not None and not is_task:
            is_task = _begins_work(back)
            is_theirs = is_theirs or id(getattr(back.f_locals.get("job"), "request", None)) in self._their_requests
            found = _place(back)
            caller, root = caller or found, found or root
            back = back.f_back
        if self._is_idle:
            if is_task:
                self._background.add(root)
        elif root in self._background:
            if place[1] == "Worker.submit":
                request = frame.f_locals["request"]
                self._their_requests[id(request)] = request
        elif not is_theirs:
            self._functions.add(place)
            if caller is not None and caller[0] != place[0]:
                self._switches.add((caller, place))


def _begins_work(frame: FrameType) -> bool:
    """Whether a task's step begins here, or what a task has done in a thread."""
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    return (name == "_run" and path.endswith("asyncio/events.py")) or (
        name == "run" and path.endswith("concurrent/futures/thread.py")
    )


def _place(frame: FrameType) -> Place | None:
    """File and function, if it is one of ours; a comprehension belongs to the function that it stands in."""
    code = frame.f_code
    if not code.co_filename.startswith(PACKAGES) or code.co_name.startswith("<"):
        return None
    return code.co_filename[len(str(ROOT)) + 1 :], code.co_qualname


# ------------------------------------------------------------------------------------------------ walks in this process
def _tool(folder: Path, name: str, handler: str, **more: Any) -> None:
    tool = folder / name
    tool.mkdir(parents=True)
    described = {"type": "string", "description": "What it is about."}
    nested = {
        "type": "object",
        "description": "Which ones.",
        "additionalProperties": False,
        "properties": {"kind": described, "limit": {"type": "integer", "description": "At most."}},
    }
    schema = {
        "toolId": name, "version": "1.0.0", "description": f"The tool {name}.", "category": "action",
        "sideEffects": "writes", "idempotent": False, "requiresConfirmation": False, "allowedModes": ["text", "voice"],
        "latencyBudgetMs": 1500, "waivers": {"action-unconfirmed": "A walk.", "voice-latency": "A walk."},
        "parameters": {
            "type": "object", "properties": {"q": described, "filter": nested}, "required": ["q"],
            "additionalProperties": False,
        },
        **more,
    }  # fmt: skip
    (tool / "schema.json").write_text(json.dumps(schema))
    (tool / "guide.md").write_text(f"# {name}\n\nDoes what {name} does.\n")
    (tool / "handler.py").write_text(f"async def execute(args, ctx):\n    return {handler}\n")


def _project(folder: Path, settings: str = "") -> Path:
    found = "{'ok': True, 'data': {'results': ['one']}}"
    reads = {"category": "retrieval", "sideEffects": "read_only", "idempotent": True, "waivers": {}}
    _tool(folder / "tools", "look", found, **reads)
    _tool(folder / "tools", "note", found)
    _tool(folder / "tools", "pay", found, requiresConfirmation=True, preview="Pay {q} ({filter})", waivers={})
    (folder / "handrail.toml").write_text(settings)
    return folder


async def _called(recorder: Recorder, folder: Path, name: str) -> dict[str, Any]:
    args = {"q": "tables", "filter": {"kind": "round", "limit": 3}}
    with open_tools(folder / "tools") as tools:
        async with tools.runtime(store=f"sqlite:///{folder / 'walk.db'}") as runtime:
            session = await runtime.open_session(mode="text", user="ana")
            for number in range(3):
                await session.begin_turn(f"m{number}")
                if number == 2:
                    recorder.start()
                answer = await session.call(
                    name, json.dumps(args), call_id=f"call_{number:09d}", provider="openai-chat"
                )
                assert answer.ok, answer
            return recorder.stop()


def _in_process(name: str) -> Callable[[], dict[str, Any]]:
    def walk() -> dict[str, Any]:
        recorder = Recorder()
        recorder.install()
        try:
            with tempfile.TemporaryDirectory() as folder:
                return asyncio.run(_called(recorder, _project(Path(folder)), name))
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    return walk


# --------------------------------------------------------------------------------------------- walks through the server
def serve(out: str) -> None:
    """`handrail serve` with a recorder that two signals start and stop; its findings go to the file `out`."""
    recorder = Recorder()
    recorder.install()

    def stop(*_: object) -> None:
        Path(out + ".part").write_text(json.dumps(recorder.stop()))
        Path(out + ".part").replace(out)

    signal.signal(signal.SIGWINCH, lambda *_: recorder.idle())
    signal.signal(signal.SIGUSR1, lambda *_: recorder.start())
    signal.signal(signal.SIGUSR2, stop)
    sys.exit(command_line(["serve", "--port", "0", "--json", "--key", KEY]))


class Served:
    """A server in a process of its own."""

    def __init__(self, folder: Path, process: subprocess.Popen[str], url: str, pid: int) -> None:
        self.folder = folder
        self.url = url
        self._process = process
        self._pid = pid
        self._connection = HTTPConnection(url.partition("://")[2], timeout=60)

    def idle(self) -> None:
        """Let the recorder see what works while nothing is asked; what the request before left to do is done by then. Statistics
        and checkpoints are stored every five seconds."""
        time.sleep(1.5)
        os.kill(self._pid, signal.SIGWINCH)
        time.sleep(7.5)

    def start(self) -> None:
        self._connection.close()  # the server has closed it by now
        self._connection.connect()
        time.sleep(0.1)
        os.kill(self._pid, signal.SIGUSR1)
        time.sleep(0.02)

    def stop(self) -> dict[str, Any]:
        out = self.folder / "walk.json"
        os.kill(self._pid, signal.SIGUSR2)
        for _ in range(1000):
            if out.exists():
                found: dict[str, Any] = json.loads(out.read_text())
                out.unlink()
                return found
            time.sleep(0.01)
        raise RuntimeError("The server did not tell what was recorded.")

    def post(self, path: str, body: Mapping[str, Any], **headers: str) -> bytes:
        headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json", **headers}
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 300:
            raise RuntimeError(f"{path}: {answer.status} {content!r}")
        return content

    def open(self) -> dict[str, Any]:
        opened: dict[str, Any] = json.loads(self.post("/api/sessions", {}))
        return opened


@contextmanager
def _served(settings: str) -> Iterator[Served]:
    with tempfile.TemporaryDirectory() as side:
        folder = _project(Path(side), settings)
        command = [sys.executable, str(Path(__file__).resolve()), "--serve", str(folder / "walk.json")]
        environment = {**os.environ, "OPENAI_API_KEY": API_KEY, "HANDRAIL_ENV": "development"}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=folder, env=environment) as process:
            assert process.stdout is not None
            try:
                ready = json.loads(process.stdout.readline())
                yield Served(folder, process, ready["url"], int(ready["pid"]))
            finally:
                process.terminate()
                process.wait(60)


def _with_loop(work: Callable[[Any], Any], server: Any) -> Any:
    """`work` in a thread, while the local provider's server lives in a loop of this one."""

    async def play() -> Any:
        async with server as open_server:
            return await asyncio.to_thread(work, open_server)

    return asyncio.run(play())


def _message(approve: bool) -> Callable[[], dict[str, Any]]:
    """A user's message over HTTP until the call that the model makes is held; or the person's yes until its result."""

    def walk() -> dict[str, Any]:
        asked = [Reply(calls=[call("pay", q=f"bill {number}", filter={"limit": 3})]) for number in range(3)]
        replies = [one for reply in asked for one in (reply, Reply("It waits for you."), Reply("Thank you."))]
        return _with_loop(play, OpenAIChatServer(replies, api_key=API_KEY))  # type: ignore[no-any-return]

    def play(provider: Any) -> dict[str, Any]:
        settings = f'[agent]\nmodel = "openai-chat:walk"\nbase_url = "{provider.base_url}"\n'
        found: list[dict[str, Any]] = []
        with _served(settings) as served:
            session = served.open()
            path, secret = f"/api/sessions/{session['sessionId']}", {"X-Session-Token": session["token"]}
            for number in range(3):
                if number and not approve:
                    served.idle()
                    served.start()
                told = served.post(
                    f"{path}/messages",
                    {"id": f"m{number}", "text": f"Pay bill {number}."},
                    Accept="text/event-stream",
                    **secret,
                ).decode()
                if number and not approve:
                    found.append(served.stop())
                request = _data(told, "confirmation")
                if number and approve:
                    served.idle()
                    served.start()
                served.post(f"/api/confirmations/{request['id']}/approve", {"token": request["token"]}, **secret)
                if number and approve:
                    found.append(served.stop())
                time.sleep(1.0)  # the late result is told to the model
        return _shared(found)

    return walk


def _data(stream: str, kind: str) -> Any:
    """What the first event of this kind says."""
    for event in stream.split("\n\n"):
        if f"event: {kind}\n" in event:
            return json.loads(event.partition("data: ")[2].splitlines()[0])
    raise RuntimeError(f"There is no event {kind!r} in: {stream}")


def _voice(frames_only: bool) -> Callable[[], dict[str, Any]]:
    """A spoken utterance, the model's call and its spoken answer; or the microphone's frames alone."""

    def walk() -> dict[str, Any]:
        turns = [
            Turn(
                [Ask(spoken_call("note", q=f"number {number}", filter={"limit": 3})), Say("It is noted.")],
                hears="Note it.",
            )
            for number in range(3)
        ]
        return _with_loop(play, OpenAIRealtimeServer(turns, api_key=API_KEY))  # type: ignore[no-any-return]

    def play(provider: Any) -> dict[str, Any]:
        settings = f'[voice]\nmodel = "openai-realtime:walk"\nbase_url = "{provider.base_url}"\n'
        with _served(settings) as served:
            session = served.open()
            secret = {"X-Session-Token": session["token"]}
            ticket = json.loads(served.post(f"/api/sessions/{session['sessionId']}/voice", {}, **secret))
            address = served.url.replace("http", "ws", 1) + ticket["url"]
            with connect(address, subprotocols=[ticket["protocol"]], compression=None) as line:
                rate = max(ticket["audio"]["input"]["rates"])
                hello = {"protocol": ticket["protocol"], "ticket": ticket["ticket"], "audio": {"rate": rate}}
                line.send(json.dumps({"type": "hello", **hello, "abilities": {"sound": True}}))
                found: list[dict[str, Any]] = []
                for number in range(3):
                    _until(line, "ready" if number == 0 else None)
                    if number:
                        served.idle()
                    if number and frames_only:
                        return _shared([_heard(served, line, silence(80, rate), rate) for _ in range(6)])
                    if number:
                        served.start()
                    for frame in _frames(speech(1_000, rate) + silence(1_500, rate), rate):
                        line.send(frame)
                        time.sleep(0.002)
                    _until(line, "turn_done")
                    if number:
                        found.append(served.stop())
                return _shared(found)

    return walk


def _heard(served: Served, line: Any, pcm: bytes, rate: int) -> dict[str, Any]:
    served.start()
    for frame in _frames(pcm, rate):
        line.send(frame)
    time.sleep(0.05)
    return served.stop()


def _shared(found: list[dict[str, Any]]) -> dict[str, Any]:
    """What was entered every time: threads of the store and the audit work in some of such short moments, never in all."""
    return {kind: [one for one in found[0][kind] if all(one in other[kind] for other in found)] for kind in found[0]}


def _frames(pcm: bytes, rate: int) -> Iterator[bytes]:
    size = rate // 50 * 2
    for place in range(0, len(pcm), size):
        yield pcm[place : place + size]


def _until(line: Any, kind: str | None) -> None:
    while kind is not None:
        frame = line.recv(timeout=60)
        if isinstance(frame, str) and json.loads(frame)["type"] == kind:
            return


WALKS: dict[str, Callable[[], dict[str, Any]]] = {
    "read": _in_process("look"),
    "write": _in_process("note"),
    "held": _message(approve=False),
    "approve": _message(approve=True),
    "frame": _voice(frames_only=True),
    "utterance": _voice(frames_only=False),
}


def main(arguments: list[str]) -> int:
    """Play the walks, print a line each; 1 if one is longer than its limit."""
    parser = argparse.ArgumentParser(description="How far one walks through the files to follow a request.")
    parser.add_argument("names", nargs="*", help=f"which walks: {', '.join(WALKS)}; none: all")
    parser.add_argument("--list", action="store_true", help="print the functions of each walk by file")
    parser.add_argument("--json", action="store_true", help="print figures as JSON")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        serve(options.serve)
    unknown = [name for name in options.names if name not in WALKS]
    if unknown:
        parser.error(f'there is no walk "{unknown[0]}"; known are {", ".join(WALKS)}')
    figures: dict[str, dict[str, int]] = {}
    too_long = False
    for name in options.names or WALKS:
        found = WALKS[name]()
        functions = [place for place in found["functions"] if name == "frame" or not place[0].startswith(PROTOCOLS)]
        switches = [one for one in found["switches"] if name == "frame" or not one[1][0].startswith(PROTOCOLS)]
        files = sorted({file for file, _ in functions})
        max_functions, max_files = LIMITS[name]
        figures[name] = {"functions": len(functions), "files": len(files), "switches": len(switches)}
        over = len(functions) > (max_functions or 10**6) or len(files) > (max_files or 10**6)
        too_long = too_long or over
        if options.json:
            continue
        limit = f"   limit {max_functions} / {max_files}" if max_functions else ""
        print(
            f"{name:10} {len(functions):4} functions {len(files):3} files {len(switches):4} switches"
            f"{limit}{'   too long' if over else ''}",
            flush=True,
        )
        for file in files if options.list else ():
            print(f"    {file}: {', '.join(sorted(function for at, function in functions if at == file))}")
    if options.json:
        print(json.dumps(figures))
    return 1 if too_long else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
