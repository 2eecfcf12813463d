"""`python -m benchmarks [NAME …]`: run the benchmarks, print a table each, and write `bench-results/*.json`."""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from benchmarks.report import Result, save, show

ALL = (
    "starting",
    "loading",
    "calling",
    "features",
    "writing",
    "postgres",
    "sessions",
    "knowledge",
    "picking",
    "serving",
    "protocol",
    "voice",
    "gateway",
    "capacity",
)


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in ALL]
    if unknown:
        print(f'There is no benchmark "{unknown[0]}"; known are {", ".join(ALL)}.', file=sys.stderr)
        return 2
    missed: list[Result] = []
    for name in names or ALL:
        print(f"\n{name}", flush=True)
        results: list[Result] = import_module(f"benchmarks.{name}").run()
        show(results)
        save(results, Path("bench-results") / f"{name}.json")
        missed += [result for result in results if not result.ok]
    for result in missed:
        print(
            f"beyond its limit: {result.name}: {result.value:.2f} {result.unit}, limit {result.limit:g}",
            file=sys.stderr,
        )
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
