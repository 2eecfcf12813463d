"""Putting an artifact on disk: to the side first, then renamed, so that the old one stays whole whatever happens."""

from __future__ import annotations

import glob
import os
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from handrail.build.compiler import BuildResult, BuildStamp
from handrail.contract.errors import ArtifactError, BuildError
from handrail.registry.artifact import read_artifact


def stamp_for(result: BuildResult, environment: Mapping[str, str]) -> BuildStamp:
    """Commit and time of this build; `SOURCE_DATE_EPOCH` is honoured."""
    epoch = environment.get("SOURCE_DATE_EPOCH")
    if epoch is None:
        now = datetime.now(UTC)  # noqa: TID251  # the stamp stands outside the hash; SOURCE_DATE_EPOCH fixes it
    else:
        try:
            now = datetime.fromtimestamp(int(epoch), UTC)
        except (ValueError, OverflowError, OSError):
            raise BuildError(f'SOURCE_DATE_EPOCH is "{epoch}"; it must be a whole number of seconds.') from None
    return BuildStamp(git_commit=_git_commit(result.plan.project), timestamp=now.strftime("%Y-%m-%dT%H:%M:%SZ"))


GENERATIONS = 8
"""How many builds' provider schemas are kept: processes that run on an older artifact may still ask for theirs."""


def write(result: BuildResult, stamp: BuildStamp) -> Path:
    """Write the artifact and its provider schemas; `BuildError` if that cannot be, and then nothing has changed."""
    target = result.plan.artifact
    providers = target.with_name(result.provider_file)
    keep = {providers.name, _provider_file_of(target)}
    is_new = not providers.exists()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _replace(providers, result.providers)
        _replace(target, result.document(stamp))
    except OSError as error:
        if is_new:
            _forget(providers)
        raise BuildError(
            f'The artifact cannot be written to "{target}" ({error.strerror}); the old one was left as it is.'
        ) from None
    found = list(target.parent.glob(f"{glob.escape(target.stem)}.providers.*.jsonl"))
    for stale in sorted(found, key=_age)[GENERATIONS:]:
        if stale.name not in keep:
            _forget(stale)
    return target


def _age(path: Path) -> float:
    try:
        return -path.stat().st_mtime
    except OSError:
        return 0.0


def is_current(result: BuildResult) -> bool:
    """Whether the artifact on disk is what this build would write, apart from commit and time."""
    try:
        old = read_artifact(result.plan.artifact)
    except ArtifactError:
        return False
    stamp = BuildStamp(git_commit=old.git_commit, timestamp=old.build_timestamp)
    providers = result.plan.artifact.with_name(result.provider_file)
    return (
        result.plan.artifact.read_bytes() == result.document(stamp)
        and providers.is_file()
        and providers.read_bytes() == result.providers
    )


def _provider_file_of(target: Path) -> str:
    """What the artifact that is being replaced refers to: processes that run on it may still ask for it."""
    try:
        return read_artifact(target).provider_file.file
    except ArtifactError:
        return ""


def _replace(target: Path, data: bytes) -> None:
    handle, side = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
            os.fchmod(file.fileno(), 0o644)
        Path(side).replace(target)
    except BaseException:
        Path(side).unlink(missing_ok=True)
        raise


def _forget(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


def _git_commit(folder: Path) -> str | None:
    try:
        done = subprocess.run(
            ["git", "rev-parse", "--short=8", "HEAD"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None if done.returncode == 0 else None
