"""The project that a command works on: found from the current folder upwards, its settings read once."""

from __future__ import annotations

import os
from pathlib import Path

from handrail.settings import Settings, find_project, load_settings


def current_settings() -> Settings:
    return load_settings(find_project(Path.cwd()), os.environ)
