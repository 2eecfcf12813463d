"""Check every tool, report all problems at once, and write the registry only if there are none."""

from __future__ import annotations

import logging
import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from handrail.app import build_plan, host_policy
from handrail.build.compiler import BuildPlan, BuildResult, build
from handrail.build.diff import diff_registries, paired_entries, unbumped
from handrail.build.watch import changes
from handrail.build.writer import is_current, stamp_for, write
from handrail.cli.output import authors_speak_aside, count, print_json, progress_for, show, warn
from handrail.cli.project import current_settings
from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import HandrailError, UsageError
from handrail.providers.adapted import RENAMED
from handrail.registry.artifact import read_artifact
from handrail.registry.host_policy import NO_HOST_POLICY, HostPolicy
from handrail.registry.registry import environment_from
from handrail.registry.version_rules import check_rules

_LOG = logging.getLogger("handrail.build")
EXAMPLES = """examples:
  handrail build
  handrail build --strict --json
  handrail build --check
  handrail build --against released/tool_registry.json
  handrail build --watch"""


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("directory", nargs="?", help="the folder of tools (default: that of handrail.toml, else tools)")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="where to write the artifact (default: tool_registry.json beside it)"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the artifact is not what would be written"
    )
    parser.add_argument("--strict", action="store_true", help="warnings fail the build")
    parser.add_argument(
        "--against", metavar="OLD", help="fail on changes that break callers of OLD without a major version"
    )
    parser.add_argument("--watch", action="store_true", help="build again whenever a file changes (development)")
    parser.add_argument("--json", action="store_true", help="print findings and result as JSON")


def run(options: Namespace) -> int:
    if options.watch and (options.check or options.json):
        raise UsageError("--watch goes with neither --check nor --json.")
    if options.watch and environment_from(os.environ.get("HANDRAIL_ENV")) == "production":
        raise UsageError("--watch is for development; HANDRAIL_ENV is production.")
    settings = current_settings()
    plan = build_plan(settings, options.directory, options.output)
    if options.watch:
        return _watch(plan, options)
    return _once(plan, options, host_policy(settings) if options.directory is None else NO_HOST_POLICY)


def _once(plan: BuildPlan, options: Namespace, host: HostPolicy = NO_HOST_POLICY) -> int:
    with authors_speak_aside():
        result = build(plan, None if options.json else progress_for("building"))
    if not result.errors:
        versions: dict[str, list[str]] = {}
        for entry in result.entries:
            versions.setdefault(entry["toolId"], []).append(entry["version"])
        # What no server could start with is not written.
        check_rules(host.versions, versions)
        host.entries(result.entries)
    broken = _breaking(result, options.against)
    failed = bool(result.errors or broken or (options.strict and result.warnings))
    written = False
    stale = False
    if not failed and options.check:
        stale = not is_current(result)
    elif not failed:
        stamp = stamp_for(result, os.environ)
        write(result, stamp)
        names = ", ".join(entry["toolId"] for entry in result.entries)
        _LOG.info("Built registry %s, commit %s: %s", result.version, stamp.git_commit or "none", names)
        written = True
    if options.json:
        _print_json(result, broken, written, stale)
    else:
        _print_text(result, broken, options, written, stale)
    return 1 if failed or stale else 0


def _breaking(result: BuildResult, against: str | None) -> list[str]:
    if against is None or result.errors:
        return []
    before, after = paired_entries(read_artifact(Path(against)).entries, result.entries)
    old, new = definitions_of(before), definitions_of(after)
    return [
        f"{change.tool} {change.place}: {change.message}" for change in unbumped(diff_registries(old, new), old, new)
    ]


def definitions_of(entries: Mapping[str, Mapping[str, Any]]) -> dict[str, ToolDefinition]:
    """The definitions of an artifact's entries, without loading any handler."""
    return {
        name: ToolDefinition.from_checked({**entry, "parameters": entry["jsonSchema"]})
        for name, entry in entries.items()
    }


def _print_json(result: BuildResult, broken: list[str], written: bool, stale: bool) -> None:
    print_json(
        {
            "findings": [finding.to_dict() for finding in result.findings],
            "losses": [loss.to_dict() for loss in result.losses],
            "limits": list(result.limits),
            "breaking": broken,
            "version": result.version or None,
            "tools": [entry["toolId"] for entry in result.entries],
            "written": written,
            "stale": stale,
        }
    )


def _print_text(result: BuildResult, broken: list[str], options: Namespace, written: bool, stale: bool) -> None:
    for finding in result.findings:
        warn(str(finding))
    for limit in result.limits:
        warn(f"note: {limit}")
    for line in broken:
        warn(f"breaking without a new major version: {line}")
    name = os.path.relpath(result.plan.artifact)
    if result.errors:
        warn(f"{count(len(result.errors), 'problem')}; nothing was written.")
    elif broken:
        warn(f"{count(len(broken), 'breaking change')}; nothing was written.")
    elif options.strict and result.warnings:
        sys.stderr.write(
            f"{count(len(result.warnings), 'warning')}, which --strict does not let pass; nothing was written.\n"
        )
    elif stale:
        warn(f"{name} is stale or missing; run `handrail build`.")
    elif written:
        show(f"Built {count(len(result.entries), 'tool')} into {name}, version {result.version}.{_renamed(result)}")
    else:
        show(f"{name} is current, version {result.version}.")


def _renamed(result: BuildResult) -> str:
    """The parameters whose names a provider refuses, as a sentence."""
    found: dict[str, list[str]] = {}
    for loss in result.losses:
        if loss.minor and loss.keyword == RENAMED:
            name = loss.place.rpartition("/")[2].replace("~1", "/").replace("~0", "~")
            found.setdefault(f"{loss.tool}.{name}", []).append(loss.provider)
    told = "; ".join(f'"{name}" ({", ".join(providers)})' for name, providers in sorted(found.items()))
    return f" Sent under another name, and renamed back in calls: {told}." if told else ""


def _watch(plan: BuildPlan, options: Namespace) -> int:
    try:
        for _ in changes(plan, time.sleep):
            try:
                _once(plan, options)
            except HandrailError as error:
                warn(f"handrail build: {error}")
            print("Watching for changes; Ctrl-C ends it.", flush=True)
    except KeyboardInterrupt:
        return 0
    return 0
