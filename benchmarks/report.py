"""What a benchmark found: a ratio, its limit, and the figures behind it; printed as a table and written as JSON."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median


@dataclass
class Result:
    """One line of the report. `limit` None means: shown, not promised."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    note: str = ""

    @property
    def ok(self) -> bool:
        return self.limit is None or self.value <= self.limit


def interleaved(jobs: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each job, taken in turns, so that a noisy moment hits all of them."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for _ in range(rounds):
        for name, job in jobs.items():
            gc.collect()
            started = time.perf_counter()
            job()
            times[name].append(time.perf_counter() - started)
    return {name: median(values) for name, values in times.items()}


def show(results: list[Result]) -> None:
    width = max(len(result.name) for result in results)
    for result in results:
        limit = "" if result.limit is None else f"  (limit {result.limit:g}{' ok' if result.ok else ' EXCEEDED'})"
        print(f"{result.name:<{width}}  {result.value:10.3f} {result.unit:<10}{limit}  {result.note}")


def save(results: list[Result], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([{**asdict(result), "ok": result.ok} for result in results], indent=2) + "\n")
