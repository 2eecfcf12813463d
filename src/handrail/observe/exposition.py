"""Writes numbers in the text format that Prometheus reads (version 0.0.4)."""

from __future__ import annotations

from collections.abc import Mapping

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Exposition:
    """Families of samples, in the order in which they are written."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def family(self, name: str, kind: str, help: str) -> None:
        """Begin a family; its samples follow."""
        escaped = help.replace("\\", "\\\\").replace("\n", "\\n")
        self._lines += (f"# HELP {name} {escaped}", f"# TYPE {name} {kind}")

    def sample(self, name: str, value: float, **labels: str) -> None:
        listed = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
        self._lines.append(f"{name}{{{listed}}} {value!r}" if listed else f"{name} {value!r}")

    def summary(self, name: str, quantiles: Mapping[float, float], total: float, count: int, **labels: str) -> None:
        for share, value in quantiles.items():
            self.sample(name, value, **labels, quantile=f"{share:g}")
        self.sample(f"{name}_sum", total, **labels)
        self.sample(f"{name}_count", count, **labels)

    def histogram(self, name: str, cumulated: Mapping[float, int], total: float, **labels: str) -> None:
        """`cumulated` says for each bound, of which the last is infinity, how many values do not exceed it."""
        count = 0
        for bound, count in cumulated.items():  # the last one is that of all values
            self.sample(f"{name}_bucket", count, **labels, le="+Inf" if bound == float("inf") else f"{bound:g}")
        self.sample(f"{name}_sum", total, **labels)
        self.sample(f"{name}_count", count, **labels)

    def render(self) -> str:
        return "\n".join(self._lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')
