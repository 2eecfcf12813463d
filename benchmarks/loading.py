"""Building and loading large catalogues."""

from __future__ import annotations

import gc
import tempfile
import time
import tracemalloc
from pathlib import Path

from jsonschema_rs import Draft202012Validator

from benchmarks.catalogue import parameters, write_tools
from benchmarks.report import Result, interleaved
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.registry import Registry

_SMALL, _LARGE = 1_000, 10_000


def _built(folder: Path, count: int) -> tuple[Path, float]:
    write_tools(folder / "tools", count)
    started = time.perf_counter()
    result = build(BuildPlan(tools=folder / "tools", artifact=folder / "tool_registry.json", project=folder))
    path = write(result, stamp_for(result, {}))
    return path, time.perf_counter() - started


def _compile(count: int) -> list[Draft202012Validator]:
    return [Draft202012Validator(parameters(number), validate_formats=True) for number in range(count)]


def run() -> list[Result]:
    with tempfile.TemporaryDirectory() as side:
        half, half_seconds = _built(Path(side) / "half", _SMALL // 2)
        small, small_seconds = _built(Path(side) / "small", _SMALL)
        large, _ = _built(Path(side) / "large", _LARGE)
        schemas = [parameters(number) for number in range(_SMALL)]
        times = interleaved(
            {
                "compile": lambda: [Draft202012Validator(schema, validate_formats=True) for schema in schemas],
                "load": lambda: Registry.load(small),
                "eager": lambda: Registry.load(small, validators="eager"),
            },
            rounds=9,
        )
        registry = Registry.load(small)
        listing = interleaved({"listing": lambda: registry.provider_schemas("openai-chat")}, rounds=5)["listing"]
        ten = interleaved({"small": lambda: Registry.load(small), "large": lambda: Registry.load(large)}, rounds=3)
        gc.collect()
        tracemalloc.start()
        kept = Registry.load(small)
        size, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert len(kept) == _SMALL
        assert half.exists()
    return [
        Result(
            "load 1,000 tools / compile their schemas",
            times["load"] / times["compile"],
            "x",
            1.5,
            "hashes checked, lazy validators",
        ),
        Result("the same with eager validators", times["eager"] / times["compile"], "x"),
        Result("first listing for one provider / compile", listing / times["compile"], "x", 1.5),
        Result("load 10,000 tools / load 1,000", ten["large"] / ten["small"], "x", 11.0),
        Result("memory per loaded tool", size / _SMALL / 1024, "KiB"),
        Result("build 1,000 tools", small_seconds, "s", 5.0),
        Result("build 1,000 / build 500", small_seconds / half_seconds, "x", None, "2 is linear"),
    ]
