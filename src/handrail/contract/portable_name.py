"""Which names every provider takes, of a tool and of a parameter."""

from __future__ import annotations

import re

PORTABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)
"""Tools are always called so; parameters may not be, and are then sent under another name."""
