"""What both kinds of run share: their folder with built tools, their processes, and the figures that they end in."""

import multiprocessing
import tempfile
from dataclasses import dataclass, fields
from multiprocessing.context import ForkServerContext
from pathlib import Path

from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write


@dataclass(slots=True)
class RunFigures:
    """What became of a run. Every list of it must be empty, except in a control."""

    seed: int = 0
    seconds: float = 0.0
    kills: int = 0

    @property
    def faults(self) -> dict[str, list[str]]:
        """Everything that must not be, by its name."""
        lists = {item.name: getattr(self, item.name) for item in fields(self)}
        return {name: found for name, found in lists.items() if isinstance(found, list) and found}

    def report(self) -> None:
        print(self)
        for name, found in self.faults.items():
            print(f"  {name}: {found[:5]}")


def room() -> tempfile.TemporaryDirectory[str]:
    """A folder in memory, where there is one: a killed process loses nothing there either, and more of them fit into a minute."""
    memory = Path("/dev/shm")
    return tempfile.TemporaryDirectory(prefix="handrail-crash-", dir=memory if memory.is_dir() else None)


def build_effects(folder: Path) -> None:
    """Build the tools of `tests.crash.effects` into a new folder."""
    tools = folder / "tools"
    tools.mkdir(parents=True)
    artifact = folder / "tool_registry.json"
    result = build(BuildPlan(tools=tools, artifact=artifact, modules=("tests.crash.effects",), project=folder))
    assert not result.errors, result.errors
    write(result, stamp_for(result, {}))


_RUNS = [f"tests.crash.{name}" for name in ("worker", "server", "load", "repeated_calls", "harness")]


def warm_processes(*more: str) -> ForkServerContext:
    """Where processes start quickly: forked from one that has imported what any of them runs, and `more`. There is one for all
    kinds of run, so that it imports for all of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*_RUNS, *more])
    return context
