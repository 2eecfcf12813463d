"""Versions of one tool compared by what their sessions counted: shares and means with confidence intervals, and which differences
are more than chance.

Calls of one session are not independent, and sessions are what a rule hands out; so every error is taken over sessions. A share
is a ratio of two sums, and its variance that of its linearised residuals (the delta method), which `sessions` of
`handrail.contract.usage` holds in sums and products. `handrail.observe.significance` tests each difference. Several measures are
looked at together: by Holm's procedure, the chance to claim any difference where there is none is at most one minus the level,
for all comparisons of a tool.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import sqrt
from statistics import NormalDist
from typing import Any, NamedTuple

from handrail.contract.usage import SESSION_COUNTS, UsageRow
from handrail.observe.significance import Arm, chance_of_difference
from handrail.observe.usage_report import merged

LEVEL = 0.95
MIN_SESSIONS = 100
"""With fewer sessions of a version nothing is claimed: the error of a ratio is known well for many only."""
_Z = NormalDist().inv_cdf(0.5 + LEVEL / 2)


class Measure(NamedTuple):
    """What is compared: one count of a session per another. A share is between 0 and 1."""

    name: str
    counted: str
    per: str
    is_share: bool = True
    least: float = 0.0
    """Smaller differences are not claimed, however sure they are."""


MEASURES = (
    Measure("failed calls", "errors", "calls"),
    Measure("refused calls", "refused", "calls"),
    Measure("declined confirmations", "declined", "held"),
    Measure("completed turns", "completed", "turns"),
    # Two copies of the same code differ by less than that, by where they lie in memory.
    Measure("ms in the tool per call", "latency", "calls", is_share=False, least=0.1),
    Measure("calls per session", "calls", "", is_share=False),
)


class Estimate(NamedTuple):
    """A value with its interval."""

    value: float
    low: float
    high: float

    def to_dict(self) -> dict[str, float]:
        return {"value": round(self.value, 6), "low": round(self.low, 6), "high": round(self.high, 6)}


class Contrast(NamedTuple):
    """How a version differs from the one that it is compared with."""

    measure: str
    version: str
    difference: float
    low: float
    high: float
    p: float
    """The chance of a difference as large as this where there is none."""
    claimed: bool

    def to_dict(self) -> dict[str, Any]:
        numbers = {name: round(getattr(self, name), 6) for name in ("difference", "low", "high", "p")}
        return {"measure": self.measure, "version": self.version, **numbers, "claimed": self.claimed}


class Comparison(NamedTuple):
    """The versions of one tool; the first is the one that the others are compared with."""

    tool: str
    versions: tuple[str, ...]
    sessions: Mapping[str, int]
    estimates: Mapping[str, Mapping[str, Estimate]]
    """By measure and version; a version without anything to count has none."""
    contrasts: tuple[Contrast, ...]

    def to_dict(self) -> dict[str, Any]:
        return {
            "tool": self.tool,
            "level": LEVEL,
            "comparedWith": self.versions[0],
            "sessions": dict(self.sessions),
            "estimates": {
                measure: {version: one.to_dict() for version, one in found.items()}
                for measure, found in self.estimates.items()
            },
            "differences": [one.to_dict() for one in self.contrasts],
        }


def comparisons(rows: Iterable[UsageRow]) -> list[Comparison]:
    """One for each tool of which several versions were used."""
    by_tool: dict[str, dict[str, Mapping[str, Any]]] = {}
    for (tool, version), counts in merged(rows, "version").items():
        if counts.get("sessions", {}).get("n"):
            by_tool.setdefault(tool, {})[version] = counts["sessions"]
    return [compare(tool, versions) for tool, versions in by_tool.items() if len(versions) > 1]


def compare(tool: str, sessions: Mapping[str, Mapping[str, Any]]) -> Comparison:
    """The versions of a tool by their `sessions`; the first is the one that the others are compared with."""
    names = tuple(sessions)
    estimates: dict[str, dict[str, Estimate]] = {}
    for measure in MEASURES:
        made = {version: estimate(measure, counted) for version, counted in sessions.items()}
        found = {version: one for version, one in made.items() if one is not None}
        if found:
            estimates[measure.name] = found
    numbers = {version: int(counted["n"]) for version, counted in sessions.items()}
    first, *others = names
    raw = [
        contrast
        for measure in MEASURES
        for version in others
        if min(numbers[first], numbers[version]) >= MIN_SESSIONS
        and (contrast := _contrast(measure, version, sessions[first], sessions[version])) is not None
    ]
    return Comparison(tool, names, numbers, estimates, tuple(_with_claims(raw)))


def estimate(measure: Measure, counted: Mapping[str, Any]) -> Estimate | None:
    """The measure over all sessions of a version; None if there is nothing to measure."""
    arm = _arm(measure, counted)
    if arm.sessions < 2 or not arm.per:
        return None
    value, variance = arm.value, arm.variance
    if measure.is_share:
        value = min(1.0, value)
    if not measure.is_share:
        return Estimate(value, max(0.0, value - _Z * sqrt(variance)), value + _Z * sqrt(variance))
    # Wilson's interval, for as many independent calls as would have this variance; without any variance, one for each session.
    effective = (
        min(arm.per, value * (1 - value) / variance)
        if variance > 0 and 0 < value < 1
        else min(float(arm.sessions), arm.per)
    )
    spread = 1 + _Z * _Z / effective
    centre = (value + _Z * _Z / (2 * effective)) / spread
    half = _Z / spread * sqrt(max(0.0, value * (1 - value) / effective + _Z * _Z / (4 * effective * effective)))
    return Estimate(value, max(0.0, centre - half), min(1.0, centre + half))


def _arm(measure: Measure, counted: Mapping[str, Any]) -> Arm:
    sums, products, sessions = counted.get("sums", {}), counted.get("products", {}), int(counted["n"])
    count, squares = sums.get(measure.counted, 0), _product(products, measure.counted, measure.counted)
    if not measure.per:  # per session: the other count is one in each
        return Arm(sessions, count, sessions, squares, count, sessions)
    mixed, below = _product(products, measure.counted, measure.per), _product(products, measure.per, measure.per)
    return Arm(sessions, count, sums.get(measure.per, 0), squares, mixed, below)


def _product(products: Mapping[str, float], one: str, other: str) -> float:
    first, second = sorted((one, other), key=SESSION_COUNTS.index)
    return products.get(f"{first}*{second}", 0)


def _contrast(measure: Measure, version: str, base: Mapping[str, Any], other: Mapping[str, Any]) -> Contrast | None:
    """How a version differs; None if either has nothing to measure, or if no session of either differs from another."""
    first, second = estimate(measure, base), estimate(measure, other)
    if first is None or second is None:
        return None
    arms = _arm(measure, base), _arm(measure, other)
    p = chance_of_difference(*arms, is_share=measure.is_share)
    if p is None:
        return None
    difference = second.value - first.value
    if measure.is_share:  # Newcombe's interval: from the bounds of both shares, so that no failure is no certainty
        below = sqrt((second.value - second.low) ** 2 + (first.high - first.value) ** 2)
        above = sqrt((second.high - second.value) ** 2 + (first.value - first.low) ** 2)
    else:
        below = above = _Z * sqrt(arms[0].variance + arms[1].variance)
    return Contrast(measure.name, version, difference, difference - below, difference + above, p, claimed=False)


def _with_claims(found: Sequence[Contrast]) -> list[Contrast]:
    """Holm's procedure: the smallest chance must be below the error divided by all comparisons, the next by one fewer."""
    left = len(found)
    claimed: set[int] = set()
    for place in sorted(range(len(found)), key=lambda place: found[place].p):
        if found[place].p > (1 - LEVEL) / left:
            break
        claimed.add(place)
        left -= 1
    least = {measure.name: measure.least for measure in MEASURES}
    return [
        one._replace(claimed=place in claimed and abs(one.difference) >= least[one.measure])
        for place, one in enumerate(found)
    ]


def rendered(comparison: Comparison) -> str:
    """The comparison for people: a line for each measure, with what each version has and how it differs."""
    base, *others = comparison.versions
    percent = f"{LEVEL * 100:g} %"
    heads = [
        f"{version} ({number:,} session{'' if number == 1 else 's'})"
        for version, number in ((version, comparison.sessions[version]) for version in comparison.versions)
    ]
    lines = [["", *heads, *(f"{version} differs by" for version in others)]]
    shares = {measure.name: measure.is_share for measure in MEASURES}
    told = {(one.measure, one.version): one for one in comparison.contrasts}
    for name, found in comparison.estimates.items():
        cells = [_interval(found.get(version), shares[name]) for version in comparison.versions]
        lines.append([name, *cells, *(_difference(told.get((name, version)), shares[name]) for version in others)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    table = "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
    number = len(comparison.contrasts)
    if not number:
        said = f"Fewer than {MIN_SESSIONS} ended sessions of a version: nothing is compared yet."
    else:
        claims = [one for one in comparison.contrasts if one.claimed]
        words = "; ".join(
            f"{one.measure} of {one.version} {'higher' if one.difference > 0 else 'lower'}" for one in claims
        )
        said = f"Shown at {percent} over {number} comparisons with {base}: {words or 'no difference'}."
    return f"{comparison.tool}, by ended session, intervals at {percent}\n{table}\n{said}"


def _interval(one: Estimate | None, is_share: bool) -> str:
    if one is None:
        return "-"
    if is_share:
        return f"{one.value * 100:.2f} % ({one.low * 100:.2f} to {one.high * 100:.2f})"
    return f"{one.value:,.3g} ({one.low:,.3g} to {one.high:,.3g})"


def _difference(one: Contrast | None, is_share: bool) -> str:
    if one is None:
        return "-"
    scale, unit = (100, " points") if is_share else (1, "")
    low, high = one.low * scale, one.high * scale
    mark = " *" if one.claimed else ""
    return f"{one.difference * scale:+.3g}{unit} ({low:+.3g} to {high:+.3g}){mark}"
