"""The project that a command works on: found from the current folder upwards, its settings read once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from handrail.contract.errors import BuildError
from handrail.settings import Settings, find_project, load_settings

if TYPE_CHECKING:
    from handrail.registry import Registry


def current_settings() -> Settings:
    return load_settings(find_project(Path.cwd()), os.environ)


def with_reference_tools(settings: Settings) -> Settings:
    """A folder without any tools is served those that come with Handrail."""
    named = settings.tools_modules or settings.tools_reference or settings.tools_path.is_dir()
    return settings if named else replace(settings, tools_reference=("*",))


def fresh_registry(settings: Settings, artifact: str | None = None) -> Registry:
    """The registry that is named, as it is; or the project's, which in development is built first if it is not current."""
    from handrail.app import build_plan, open_registry
    from handrail.cli.output import authors_speak_aside, progress_for
    from handrail.registry.registry import environment_from

    if artifact is None and environment_from(os.environ.get("HANDRAIL_ENV")) == "development":
        from handrail.build.compiler import build
        from handrail.build.writer import is_current, stamp_for, write

        with authors_speak_aside():
            result = build(build_plan(settings), progress_for("building"))
        if result.errors:
            raise BuildError("The tools do not build:\n" + "\n".join(str(finding) for finding in result.errors))
        if not is_current(result):
            write(result, stamp_for(result, os.environ))
    return open_registry(settings, artifact)
