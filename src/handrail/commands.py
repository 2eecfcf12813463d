"""What a command of another package may use (entry points `handrail.commands`): the current project, its services, and output.

`open_service` opens a service as the project configures it. `print_json`, `show`, `warn`, `count` and `progress_for` print as
Handrail's own commands do, and `confirm` asks the person at the terminal as they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from handrail.cli.output import count, print_json, progress_for, show, warn
from handrail.cli.project import current_settings, project_settings
from handrail.cli.terminal_input import confirm

__all__ = [
    "confirm",
    "count",
    "open_service",
    "print_json",
    "progress_for",
    "project_folder",
    "require_project",
    "service_settings",
    "show",
    "warn",
]


def project_folder() -> Path:
    """The folder of the project that the command works on: the nearest one upwards with a `handrail.toml`, else this one."""
    return current_settings().project


def require_project() -> None:
    """`UsageError` if there is no project here; for a command that looks at what is stored, which must not make a project."""
    project_settings()


def service_settings(name: str) -> Mapping[str, Any]:
    """What the project sets in `[services.NAME]`; defaults are the factory's."""
    config = current_settings().services.get(name)
    return {} if config is None else config.settings


def open_service(name: str, /, **settings: Any) -> AbstractAsyncContextManager[Any]:
    """A service of the project, open while the block runs; `settings` override those of `handrail.toml`."""
    from handrail.app import service_factory
    from handrail.runtime.services import open_service as opened

    return opened(service_factory(current_settings(), name, **settings))
