"""What commands print: JSON for programs, plain lines for people, progress on long work."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, redirect_stdout
from typing import Any, TextIO

import orjson

from handrail.contract.hidden_characters import escaped, escaped_json

_BAR_AFTER_SECONDS = 0.5
_LINE_EVERY_SECONDS = 2.0


def print_json(value: Any) -> None:
    try:
        text = orjson.dumps(value, option=orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:
        # A file's name may hold bytes that are no text; here they are written as escapes.
        text = json.dumps(value, indent=2)
    sys.stdout.write(escaped_json(text) + "\n")


def show(text: str) -> None:
    """Print lines for people; what files, tools and users have put into them cannot move the cursor or hide."""
    sys.stdout.write(escaped(text, "\n\t") + "\n")


def warn(text: str) -> None:
    """The same, on standard error."""
    sys.stderr.write(escaped(text, "\n\t") + "\n")


def printable(text: str) -> str:
    """Text that cannot steer a terminal: ids, names and arguments come from models and callers."""
    return escaped(text)


def count(number: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def authors_speak_aside() -> AbstractContextManager[object]:
    """While tools and their modules run, what they print goes to standard error: standard output is for our answer."""
    return redirect_stdout(sys.stderr)


def progress_for(
    what: str, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic
) -> Callable[[int, int], None]:
    """A function to call with (done, total): a bar on a terminal, else a line every two seconds; nothing if it is quick."""
    out = stream or sys.stderr
    terminal = out.isatty()
    shown_at = clock()
    last = -1

    def report(done: int, total: int) -> None:
        nonlocal last, shown_at
        now, percent = clock(), 100 * done // max(total, 1)
        if last < 0 and now - shown_at < (_BAR_AFTER_SECONDS if terminal else _LINE_EVERY_SECONDS):
            return
        if done != total and (percent == last or (not terminal and now - shown_at < _LINE_EVERY_SECONDS)):
            return
        last, shown_at = percent, now
        if terminal:
            bar = "█" * (percent // 5) + "·" * (20 - percent // 5)
            out.write(f"\r{what} {bar} {done}/{total}" + ("\n" if done == total else ""))
        else:
            out.write(f"{what}: {done} of {total}\n")
        out.flush()

    return report
