"""The project that a command works on: found from the current folder upwards, its settings read once.

Commands that only look at settings use it too, so what opens or builds a registry is imported where that is done.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from handrail.contract.errors import BuildError, UsageError
from handrail.plugins import SERVICES, entry_points_of
from handrail.settings import FILE, STORE_FILE, Settings, find_project, load_settings

if TYPE_CHECKING:
    from handrail.registry import Registry


def current_settings() -> Settings:
    return load_settings(find_project(Path.cwd()), os.environ)


def settings_of(folder: str) -> Settings:
    """The settings of the project in a folder that an option names; `UsageError` if there is none."""
    if not Path(folder).is_dir():
        raise UsageError(f'--project must be a folder; "{folder}" is not one.')
    settings = load_settings(find_project(Path(folder).absolute()), os.environ)
    if not is_project(settings):
        raise UsageError(f'There is no project in the folder "{folder}"; `handrail init "{folder}"` makes one.')
    return settings


def with_reference_tools(settings: Settings) -> Settings:
    """A folder without any tools is served those that come with Handrail."""
    named = settings.tools_modules or settings.tools_reference or settings.mcp_servers or settings.tools_path.is_dir()
    return settings if named else replace(settings, tools_reference=("*",))


def is_project(settings: Settings) -> bool:
    """Whether the current folder, or one above it, holds something of a project."""
    return bool(
        (settings.project / FILE).is_file()
        or settings.tools_modules
        or any(path.exists() for path in (settings.tools_path, settings.artifact_path))
        or _has_own_database(settings)
        or any(name in os.environ for name in ("HANDRAIL_STORE_URL", "HANDRAIL_AUDIT_DIRECTORY"))
    )


def _has_own_database(settings: Settings) -> bool:
    """Whether a database of Handrail's lies there. Any program may have files that end in ".db", so only those count that the
    store and the services of installed packages make by default: without a `handrail.toml` nobody has named another."""
    names = {path.name for path in settings.project.glob("*.db")}
    if not names.isdisjoint((STORE_FILE, settings.server_conversations)):
        return True
    return bool(names) and not names.isdisjoint(f"{service}.db" for service in entry_points_of(SERVICES))


def project_settings() -> Settings:
    """The settings of the project here; `UsageError` if there is none. For commands that look at what a project has stored, which
    must not make one."""
    settings = current_settings()
    if not is_project(settings):
        raise UsageError(
            "There is no project in this folder, so nothing is stored; change to a project's folder, or make one with "
            "`handrail init`."
        )
    return settings


@contextmanager
def kept_or_scratch(settings: Settings, command: str, meanwhile: str = "") -> Iterator[Settings]:
    """The settings as they are; but where nothing is a project yet, those of a folder that goes away with the command, so that
    a first try leaves nothing behind. `meanwhile` says what the command does there."""
    if is_project(settings):
        yield settings
        return
    sys.stderr.write(
        f"handrail {command}: there is no project in this folder, so {meanwhile}nothing is kept; `handrail init` makes one.\n"
    )
    with TemporaryDirectory(prefix="handrail-") as folder:
        yield replace(settings, project=Path(folder))


def say_without_project(settings: Settings, command: str) -> None:
    """Said first: what follows may be another folder's affair."""
    if not is_project(settings):
        sys.stderr.write(
            f"handrail {command}: there is no project in this folder, so the tools that come with Handrail are meant; "
            "`handrail init` makes one.\n"
        )


def unbuilt(settings: Settings, name: str) -> str:
    """A sentence if there is a folder of this tool that no build has taken in; otherwise nothing."""
    folders = settings.tools_path.iterdir() if settings.tools_path.is_dir() else ()
    there = any(one.name.replace("-", "_") == name and (one / "schema.json").is_file() for one in folders)
    return f'The tool "{name}" is not built yet; run `handrail build`.' if there else ""


def tools_at_hand(settings: Settings, artifact: str | None = None) -> tuple[Settings, Registry]:
    """The registry that was built, or is named; where there is neither one nor tools to build, those that come with Handrail.
    The settings are those that fit it."""
    from handrail.app import open_registry

    chosen = with_reference_tools(settings)
    if artifact is None and chosen is not settings and not settings.artifact_path.exists():
        return chosen, fresh_registry(chosen)
    return settings, open_registry(settings, artifact)


def fresh_registry(settings: Settings, artifact: str | None = None) -> Registry:
    """The registry that is named, as it is; or the project's, which in development is built first if it is not current.

    In production a tool whose handler changed since the build is left out; the registry's `refused` names it.
    """
    from handrail.app import build_plan, open_registry
    from handrail.cli.output import authors_speak_aside, progress_for
    from handrail.registry.registry import environment_from

    if artifact is None and environment_from(os.environ.get("HANDRAIL_ENV")) == "development":
        from handrail.build.compiler import BROKEN_PINS, build, compile_unjudged
        from handrail.build.writer import is_current, stamp_for, write

        plan = build_plan(settings)
        with authors_speak_aside():
            same = compile_unjudged(plan)
            result = None if same is not None and is_current(same) else build(plan, progress_for("building"))
        if result is not None and result.errors:
            raise BuildError("The tools do not build:\n" + "\n".join(str(finding) for finding in result.errors))
        if result is not None:
            write(result, stamp_for(result, os.environ))
            for finding in result.warnings:
                if finding.rule == BROKEN_PINS:  # the others say nothing of what is served now
                    sys.stderr.write(f"handrail: {finding.message} {finding.fix}\n")
    return open_registry(settings, artifact, refuse_one=True)


def add_role_flag(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--role",
        action="append",
        default=[],
        dest="roles",
        metavar="ROLE",
        help="a role of the user, such as `manager`; may be given several times",
    )
