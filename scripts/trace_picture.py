"""Draw docs/pictures/spoken-booking.svg: the trace of a booking by voice, as a collector received it.

    python scripts/trace_picture.py [FILE]

`tests/observe/spoken_booking.py` plays the booking in real time against the local live server; the SDK of OpenTelemetry sends its
spans over OTLP to a receiver on loopback. Each bar of the picture is one of these spans. `make docs` does not run it, because the
durations differ from run to run; run it again when the tree of spans changes, which a test notices.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "pictures" / "spoken-booking.svg"

WIDTH, LEFT, RIGHT, TOP, ROW, BAR = 1120, 348, 152, 112, 34, 16
INDENT = 20
FONT = "system-ui, -apple-system, 'Segoe UI', 'Liberation Sans', 'DejaVu Sans', Arial, sans-serif"
INK, MUTED, GRID = "#1f2933", "#52606d", "#e4e7eb"
KINDS = {
    "conversation": ("the conversation", "#7b8794"),
    "client": ("the client", "#2f80c3"),
    "turn": ("a turn", "#8a5cc2"),
    "call": ("a tool call", "#d9730d"),
    "calendar": ("the calendar", "#2a8f5b"),
}
"""Kinds of spans: what the legend calls them, and their colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One span in its place in the tree; times in seconds since the trace began."""

    name: str
    path: tuple[str, ...]
    """The names of the spans that it is in, the outermost first, and its own."""
    parent: int | None
    """The number of the row that it is in."""
    start: float
    end: float
    note: str


def rows_of(spans: Iterable[Any]) -> list[Row]:
    """The spans of one trace (OTLP) as a tree: each before its children, children by the time when they began."""
    known = {span.span_id: span for span in spans}
    if not known:
        raise ValueError("No span was received.")
    if len({span.trace_id for span in known.values()}) > 1:
        raise ValueError("The spans are of more than one trace.")
    zero = min(span.start_time_unix_nano for span in known.values())
    inside: dict[bytes | None, list[Any]] = {}
    for span in sorted(known.values(), key=lambda one: one.start_time_unix_nano):
        inside.setdefault(span.parent_span_id if span.parent_span_id in known else None, []).append(span)
    rows: list[Row] = []

    def add(span: Any, parent: int | None) -> None:
        above = () if parent is None else rows[parent].path
        facts = {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in span.attributes}
        rows.append(
            Row(
                name=span.name,
                path=(*above, span.name),
                parent=parent,
                start=(span.start_time_unix_nano - zero) / 1e9,
                end=(span.end_time_unix_nano - zero) / 1e9,
                note=_note(facts),
            )
        )
        number = len(rows) - 1
        for child in inside.get(span.span_id, ()):
            add(child, number)

    for root in inside.get(None, ()):
        add(root, None)
    return rows


def _note(facts: Mapping[str, Any]) -> str:
    if facts.get("handrail.held"):
        return "held for a yes"
    if facts.get("error.type"):
        return str(facts["error.type"])
    if facts.get("gen_ai.operation.name") == "invoke_agent":
        return f"turn {facts['handrail.turn']}"
    if facts.get("handrail.connection"):
        return "carried out"
    return str(facts.get("reception.purpose", ""))


def _kind(row: Row) -> str:
    first = row.name.partition(" ")[0]
    known = {"invoke_agent": "turn", "execute_tool": "call", "calendar": "calendar", "voice": "conversation"}
    return known.get(first, "client")


def _duration(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.0f} ms" if seconds >= 0.01 else f"{seconds * 1000:.1f} ms"


def draw(rows: Sequence[Row], title: str, subtitle: str) -> str:
    """The picture: a row for each span, its name in the tree on the left, its bar on a common axis of time on the right."""
    last = max(row.end for row in rows)
    step = next(one for one in (0.001, 0.01, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60) if last / one <= 12 or one == 60)
    scale = (WIDTH - LEFT - RIGHT) / last
    bottom = TOP + ROW * len(rows)
    height = bottom + 62
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        f' font-family="{escape(FONT)}" role="img" aria-labelledby="title">',
        f'<title id="title">{escape(title)}</title>',
        f'<rect x="0.5" y="0.5" width="{WIDTH - 1}" height="{height - 1}" rx="10" fill="#ffffff" stroke="{GRID}"/>',
        f'<text x="28" y="42" font-size="20" font-weight="600" fill="{INK}">{escape(title)}</text>',
        f'<text x="28" y="66" font-size="13" fill="{MUTED}">{escape(subtitle)}</text>',
    ]
    for number in range(len(rows)):
        if number % 2 == 0:
            parts.append(f'<rect x="16" y="{TOP + ROW * number}" width="{WIDTH - 32}" height="{ROW}" fill="#f7f9fb"/>')
    tick = 0
    while tick * step <= last:
        x = LEFT + tick * step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{GRID}"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{TOP - 14}" font-size="12" fill="{MUTED}" text-anchor="middle">{tick * step:g} s</text>'
        )
        tick += 1
    for number, row in enumerate(rows):
        parts += _row(number, row, rows, scale)
    parts += _legend(bottom + 36, [_kind(row) for row in rows])
    return "\n".join([*parts, "</svg>", ""])


def _row(number: int, row: Row, rows: Sequence[Row], scale: float) -> list[str]:
    middle = TOP + ROW * number + ROW / 2
    x, width = LEFT + row.start * scale, max((row.end - row.start) * scale, 3.0)
    name_x = 28 + INDENT * (len(row.path) - 1)
    label = _duration(row.end - row.start) + (f" · {row.note}" if row.note else "")
    colour = KINDS[_kind(row)][1]
    lines = []
    if row.parent is not None:
        elder = max((n for n in range(number) if rows[n].parent == row.parent), default=None)
        above = TOP + ROW * (row.parent if elder is None else elder) + ROW / 2 + (9 if elder is None else 0)
        stem = 28 + INDENT * (len(rows[row.parent].path) - 1) + 5
        path = f"M{stem} {above}V{middle}H{name_x - 5}"
        lines.append(f'<path d="{path}" fill="none" stroke="#b8c2cc"/>')
    inside = (row.end - row.start) * scale > 7.5 * len(label)
    text_x, fill = (x + 8, "#ffffff") if inside else (x + width + 6, INK)
    return [
        f'<g class="span" data-path="{escape(" / ".join(row.path))}">',
        f"<title>{escape(row.name)}: {escape(label)}, from {_duration(row.start)}</title>",
        *lines,
        f'<text x="{name_x}" y="{middle + 4.5}" font-size="13" fill="{INK}">{escape(row.name)}</text>',
        f'<rect x="{x:.1f}" y="{middle - BAR / 2}" width="{width:.1f}" height="{BAR}" rx="{min(4, width / 2):.1f}"'
        f' fill="{colour}"/>',
        f'<text x="{text_x:.1f}" y="{middle + 4}" font-size="12" fill="{fill}">{escape(label)}</text>',
        "</g>",
    ]


def _legend(y: float, used: Sequence[str]) -> list[str]:
    parts, x = [], 28.0
    for kind, (name, colour) in KINDS.items():
        if kind in used:
            parts.append(f'<rect x="{x}" y="{y - 10}" width="12" height="12" rx="3" fill="{colour}"/>')
            parts.append(f'<text x="{x + 18}" y="{y}" font-size="12" fill="{MUTED}">{escape(name)}</text>')
            x += 46 + 6.6 * len(name)
    return parts


def main(arguments: list[str]) -> int:
    """Play the booking, and write the picture of what was received."""
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print("usage: trace_picture.py [FILE]", file=sys.stderr)
        return 2
    sys.path.insert(0, str(ROOT))
    play = import_module("tests.observe.spoken_booking").play
    with tempfile.TemporaryDirectory() as folder:
        rows = rows_of(asyncio.run(play(Path(folder), pace=1.0)))
    file = Path(arguments[0]) if arguments else PICTURE
    file.parent.mkdir(parents=True, exist_ok=True)
    subtitle = (
        f"{len(rows)} spans of one trace, received over OTLP; each hangs from its parent. Short ones are drawn wider."
    )
    file.write_text(
        draw(rows, "A spoken booking, from the microphone to the calendar and back", subtitle), encoding="utf-8"
    )
    print(f"{len(rows)} spans: {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
