"""Distributions that can be merged: DDSketch, as trees of numbers (`handrail.contract.usage`).

A value is counted in the bin of its logarithm, so that a bin's value is at most `ACCURACY` off, and adding up bins loses nothing.
That is all of DDSketch that is needed here: its library would bring two packages to everybody. A test compares the two.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

ACCURACY = 0.01
"""A quantile is at most so much off, as a share of its value. Changing it makes stored bins meaningless."""
_GAMMA = (1 + ACCURACY) / (1 - ACCURACY)
_LOG_GAMMA = math.log(_GAMMA)


def bin_of(value: float) -> int:
    """The bin of a value above zero."""
    return math.ceil(math.log(value) / _LOG_GAMMA)


def value_of(bin_: int) -> float:
    """The value in the middle of a bin, as errors are counted."""
    return 2 * math.exp(bin_ * _LOG_GAMMA) / (1 + _GAMMA)


def add_value(tree: dict[str, Any], value: float) -> None:
    """Count one value that is not negative."""
    if not tree:
        tree.update(count=0, sum=0.0, zero=0, bins={})
    tree["count"] += 1
    tree["sum"] += value
    if value <= 0.0:
        tree["zero"] += 1
        return
    name, bins = str(bin_of(value)), tree["bins"]
    bins[name] = bins.get(name, 0) + 1


def quantiles(tree: Mapping[str, Any], *shares: float) -> list[float]:
    """The values at these shares, by nearest rank; zeros for an empty distribution."""
    counted = [(0.0, tree.get("zero", 0))]
    if tree.get("bins"):
        counted += [(value_of(key), count) for key, count in sorted((int(name), n) for name, n in tree["bins"].items())]
    total = sum(count for _, count in counted)
    return [_at_rank(counted, -(-total * round(share * 100) // 100)) for share in shares]


def _at_rank(counted: Sequence[tuple[float, int]], rank: int) -> float:
    # The library rounds a rank down, which makes the smaller of two values the 99th percentile.
    left = max(rank, 1)
    for value, count in counted:
        left -= count
        if left <= 0:
            return value
    return 0.0
