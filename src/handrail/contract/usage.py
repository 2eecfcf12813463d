"""How tools were used, by day: counts that outlive a process and are the sum over all processes.

A row is about one tool in one version, for one tenant, on one day (UTC). The row with an empty tool is about turns and about
calls that named no tool. Nothing in a row is personal: no user, no session, no argument, and no name that a model made up.

What is counted is a tree of numbers, so that rows of several processes, tenants or days are merged by adding number to number.
A distribution is a tree as well: `{"count": 3, "sum": 30.5, "zero": 0, "bins": {"115": 2, "160": 1}}`, with the bins of a
DDSketch whose relative error is one percent (`handrail.observe.sketch`).

| name | what is counted |
| --- | --- |
| `calls` | calls that were answered: executed, refused or held; a held call that runs later is the same call |
| `executed` | handlers that ran to an outcome |
| `outcomes` | how executions ended: `ok`, or the error type |
| `refusals` | refusals, by gate |
| `refused` | refusals, by error type |
| `held`, `declined` | calls that waited for a person; those that a person declined |
| `replayed` | calls that were answered from an earlier execution; they are not among `calls` |
| `latency`, `size` | distributions of executions: milliseconds, and bytes of `data` as JSON |
| `turns` | turns that used the tool, by how they ended: see `TURN_OUTCOMES` |
| `sessions` | closed sessions that used the tool: `n`, `sums` of what each counted, and `products` of each pair of these |

`sessions` is what statistics by session need. With x and y counted in each session, n, the sums and the products give the mean,
variance and covariance of x and y over sessions, and so the error of a ratio such as errors per call, although the calls of
one session are not independent. `SESSION_COUNTS` has the names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations_with_replacement
from typing import Any, NamedTuple, Protocol

TURN_OUTCOMES = ("completed", "failed", "held", "declined", "interrupted")
"""How a turn ended for a tool: its last call succeeded; its last call failed or was refused; its last call waited for a person;
a person declined a call; the user interrupted the turn."""

SESSION_COUNTS = ("calls", "errors", "refused", "held", "declined", "latency", "turns", "completed")
"""What is counted in each session: calls, executions that failed, refusals, held and declined calls, milliseconds of all
executions, turns, and turns that were completed."""

SESSION_PRODUCTS = tuple(combinations_with_replacement(SESSION_COUNTS, 2))
"""The pairs whose products are summed; that of `calls` and `errors` is called `calls*errors`."""


class UsageRow(NamedTuple):
    """What was counted for one tool, in one version, for one tenant, on one day."""

    day: str
    """Such as `2026-11-18`, in UTC."""
    tenant: str
    tool: str
    version: str
    counts: Mapping[str, Any]


def add_counts(total: dict[str, Any], more: Mapping[str, Any]) -> None:
    """Add a tree of numbers to another, in place."""
    for name, value in more.items():
        if isinstance(value, Mapping):
            add_counts(total.setdefault(name, {}), value)
        else:
            total[name] = total.get(name, 0) + value


class UsageStore(Protocol):
    """The usage of tools in a store. Days are `YYYY-MM-DD`, so that they sort as texts."""

    async def add(self, rows: Sequence[UsageRow], *, writer: str, batch: int) -> bool:
        """Add rows to what is stored; whether they were added. A writer numbers its batches upwards: one that is stored already
        is left out, so that it may be sent again after `StoreUnavailable`."""
        ...

    async def rows(self, *, since: str = "", until: str = "9999", tool: str | None = None) -> list[UsageRow]:
        """What was counted from one day to another, both included; by day, tenant, tool and version."""
        ...

    async def tools_by_calls(
        self, *, since: str = "", limit: int = 100, tenant: str | None = None
    ) -> list[tuple[str, int]]:
        """The tools with the most calls since a day, the most used first, with their numbers of calls; of one tenant, or all."""
        ...

    async def prune(self, *, before: str) -> int:
        """Delete what was counted before a day; how many rows."""
        ...
