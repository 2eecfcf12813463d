"""`--log-level`: how much of Handrail's own log a command shows on standard error."""

from __future__ import annotations

import logging
import sys
from argparse import ArgumentParser

LEVELS = ("debug", "info", "warning", "error")


def add_log_level_flag(parser: ArgumentParser, *, default: str) -> None:
    parser.add_argument(
        "--log-level", choices=LEVELS, help=f"how much Handrail says on standard error (default: {default})"
    )


def log_to_stderr(level: str | None) -> None:
    """Warnings and worse; the level is for our own log alone: what libraries say at it may name addresses."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    if level is not None:
        logging.getLogger("handrail").setLevel(level.upper())
