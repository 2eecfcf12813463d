"""Reference tools that reach a service, built alone and called through the real pipeline."""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import handrail
import handrail_reference
from handrail.build.guide import examples_in
from handrail.runtime.session import Session
from handrail.stores import MemoryStore
from handrail.testing import ToolKit, VirtualClock, open_tools

TOOLS = [Path(package.__file__).parent / "tools" for package in (handrail, handrail_reference)]


def place_of(directory: str) -> Path:
    """Where the folder of one of Handrail's own tools is: the core has one, the reference package the others."""
    return next(root / directory for root in TOOLS if (root / directory).is_dir())


@contextmanager
def reference(*names: str, **capabilities: Any) -> Iterator[ToolKit]:
    """These reference tools and no other, so that one that is being written does not stand in the way."""
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            directory = name.replace("_", "-")
            shutil.copytree(place_of(directory), Path(folder) / directory, ignore=shutil.ignore_patterns("__pycache__"))
        with open_tools(folder, capabilities=capabilities) as tools:
            yield tools


def in_virtual_time(tools: ToolKit, clock: VirtualClock, **options: Any) -> Any:
    """A runtime in which time passes when the test says so."""
    return tools.runtime(**{"store": MemoryStore(clock=clock.milliseconds), "clock": clock, **options})


def sent(session: Session) -> list[dict[str, Any]]:
    """The messages for the client that wait on the session's events."""
    listener = session.events_queue.attach()
    session.events_queue.detach(listener)
    return [dict(event.data) for event in listener.waiting if event.type == "message"]


def kind(response: handrail.ToolResponse) -> str | None:
    return None if response.error is None else response.error.type.value


def shown(tools: ToolKit, tool: str) -> list[tuple[Any, Any]]:
    """The guide's examples: arguments, and the response that is shown for them or None."""
    pairs: list[tuple[Any, Any]] = []
    for example in examples_in(tools.registry.documentation(tool)):
        if example.kind == "arguments":
            pairs.append((json.loads(example.text), None))
        else:
            pairs[-1] = (pairs[-1][0], json.loads(example.text))
    return pairs


def fits(response: handrail.ToolResponse, example: Any, *, besides: tuple[str, ...] = ()) -> bool:
    """Whether an answer is the one that the guide shows, but for members that differ each time."""
    if example is None:
        return True
    wire = response.to_dict()
    if "ok" in example:
        return (
            bool(wire["ok"] == example["ok"])
            and {name: wire["error"].get(name) for name in example["error"]} == example["error"]
        )
    data = {name: value for name, value in wire.get("data", {}).items() if name not in besides}
    return data == {name: value for name, value in example.items() if name not in besides}
