"""The chance of a difference between two arms of an experiment as large as the one seen, where there is none.

Arms are seldom equal, and failures are rare; then no one test is sound alone. A variance taken from each arm looks certain in
a small arm that had no failure yet. A variance taken from both together is wrong where the versions are called differently.
So both are asked, and the larger chance counts. Where few failures are expected no normal distribution is near: their number is
then tested exactly (Fisher's test), in units of sessions that fail together.
"""

from __future__ import annotations

from math import ceil, exp, floor, lgamma, sqrt
from statistics import NormalDist
from typing import NamedTuple

FEW = 20
"""Below this expected number of events, in either arm, the exact test decides."""
_NORMAL = NormalDist()


class Arm(NamedTuple):
    """The sessions of one version for one measure: sums over sessions of a count, of what it is taken per, and of products."""

    sessions: int
    total: float
    per: float
    squared: float
    with_per: float
    per_squared: float

    @property
    def value(self) -> float:
        return self.total / self.per

    @property
    def variance(self) -> float:
        """The variance of the value, by the differences of this arm's sessions from it."""
        return self.residuals(self.value) * self.sessions / (self.sessions - 1) / (self.per * self.per)

    def residuals(self, value: float) -> float:
        """The sum over sessions of the squared difference between the count and what this value predicts."""
        return max(0.0, self.squared - 2 * value * self.with_per + value * value * self.per_squared)


def chance_of_difference(first: Arm, second: Arm, *, is_share: bool) -> float | None:
    """Two-sided; None if no session differs from what both arms together predict, or all of a share did, or none."""
    both = (first.total + second.total) / (first.per + second.per)
    sessions = first.sessions + second.sessions
    spread = (first.residuals(both) + second.residuals(both)) / (sessions - 1)
    if spread <= 0 or (is_share and not 0 < both < 1):
        return None
    if is_share:
        alike = spread * (sessions - 1) / (both * (1 - both) * (first.per + second.per))
        together = max(1.0, alike)
        rare = min(both, 1 - both) * min(first.per, second.per) / together
        if rare < FEW:
            return _exact(first, second, together, missed=both > 0.5)
    difference = second.value - first.value
    pooled = spread * (first.sessions / first.per**2 + second.sessions / second.per**2)
    chances = [_two_sided(difference / sqrt(pooled), sessions - 2)]
    if separate := first.variance + second.variance:
        chances.append(_two_sided(difference / sqrt(separate), 2 * min(first.sessions, second.sessions) - 2))
    return max(chances)


def _two_sided(t: float, freedom: int) -> float:
    """The chance of a value of Student's t beyond this, either way, by the normal distribution that is nearest."""
    z = abs(t) * (1 - 1 / (4 * freedom)) / sqrt(1 + t * t / (2 * freedom))
    return 2 * (1 - _NORMAL.cdf(z))


def _exact(first: Arm, second: Arm, together: float, *, missed: bool) -> float:
    """Twice the smaller tail of the events that fall to the second arm, given those of both. `together` events count as one."""
    sizes = [floor(arm.per / together) for arm in (first, second)]
    # An arm cannot have more than there were, though it may have counted so: a later answer falls to another time.
    totals = [min(arm.total, arm.per) for arm in (first, second)]
    counts = [
        (arm.per - total if missed else total) / together for arm, total in zip((first, second), totals, strict=True)
    ]
    events = min(sum(sizes), round(sum(counts)))
    expected = events * sizes[1] / sum(sizes)
    # What is no whole number is taken nearer to what is expected, so that rounding claims nothing.
    if counts[1] > expected:
        least = max(floor(counts[1]), 0)
        tail = range(least, min(events, sizes[1]) + 1)
    else:
        tail = range(max(0, events - sizes[0]), min(ceil(counts[1]), events) + 1)
    return min(1.0, 2 * sum(_hypergeometric(number, events, sizes[1], sum(sizes)) for number in tail))


def _hypergeometric(number: int, events: int, size: int, total: int) -> float:
    return exp(_choose(events, number) + _choose(total - events, size - number) - _choose(total, size))


def _choose(whole: int, part: int) -> float:
    """The logarithm of the binomial coefficient."""
    if not 0 <= part <= whole:
        return float("-inf")
    return lgamma(whole + 1) - lgamma(part + 1) - lgamma(whole - part + 1)
