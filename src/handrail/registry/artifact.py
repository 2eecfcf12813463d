"""The artifact's format: how it is laid out, sealed, and read back.

The file is JSON with one tool per line. Its first line carries a seal, the SHA-256 of the whole file with the seal's own
digits written as zeros, so that any edit or cut is noticed without parsing anything. Provider schemas lie in a file of
their own beside it, one line per provider, and are read when first asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

import orjson

from handrail.contract.errors import ArtifactError

FORMAT = 1
MAX_ARTIFACT_BYTES = 1 << 30
_ZEROS = "0" * 64
_SEAL = b'"seal":"sha256:'
_HEAD = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderFile:
    """Where the provider schemas lie, and the hash that they must have."""

    file: str
    sha256: str
    providers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """An artifact as read from disk, its seal verified."""

    path: Path
    tools_root: Path
    version: str
    git_commit: str | None
    build_timestamp: str
    entries: tuple[dict[str, Any], ...]
    provider_file: ProviderFile


def versioned_name(tool_id: str, version: str) -> str:
    """What one version of a tool is called where there are several."""
    return f"{tool_id}@{version}"


def render(head: Mapping[str, Any], entries: Sequence[Mapping[str, Any]]) -> bytes:
    """The bytes of an artifact: sealed, one tool per line."""
    first = orjson.dumps({"format": FORMAT, "seal": f"sha256:{_ZEROS}", **head})
    lines = b",\n".join(orjson.dumps(entry) for entry in entries)
    body = first[:-1] + b',"tools":[\n' + lines + b"\n]}\n"
    digest = sha256(body).hexdigest().encode()
    start = body.index(_SEAL) + len(_SEAL)
    return body[:start] + digest + body[start + 64 :]


def read_artifact(path: Path) -> Artifact:
    """The artifact at `path`; `ArtifactError` with one sentence if it cannot be used."""
    raw = _read(path)
    try:
        document = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise ArtifactError(
            f'"{path.name}" is not a whole artifact (it was cut off or is no JSON: {error.msg}); {_mend()}'
        ) from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ArtifactError(f'"{path.name}" is not an artifact of Handrail; {_mend()}')
    if document["format"] > FORMAT:
        raise ArtifactError(
            f'"{path.name}" has format {document["format"]}, which is newer than this Handrail reads ({FORMAT}); '
            "upgrade Handrail, or build the artifact again with this version."
        )
    if not _is_sealed(raw):
        raise ArtifactError(f'"{path.name}" was changed after it was built; an artifact is never edited: {_mend()}')
    return _artifact(path, document)


def read_providers(artifact: Artifact) -> bytes:
    """The bytes of the provider file, its hash verified."""
    path = artifact.path.parent / artifact.provider_file.file
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ArtifactError(
            f'The provider schemas "{path.name}" cannot be read ({error.strerror}); {_mend()}'
        ) from None
    if sha256(raw).hexdigest() != artifact.provider_file.sha256:
        raise ArtifactError(f'The provider schemas "{path.name}" were changed after they were built; {_mend()}')
    return raw


def _read(path: Path) -> bytes:
    try:
        if path.stat().st_size > MAX_ARTIFACT_BYTES:
            raise ArtifactError(f'"{path.name}" is larger than an artifact may be (1 GiB).')
        return path.read_bytes()
    except FileNotFoundError:
        raise ArtifactError(f'There is no artifact "{path}"; run `handrail build` to write it.') from None
    except OSError as error:
        raise ArtifactError(f'The artifact "{path}" cannot be read ({error.strerror}).') from None


def _is_sealed(raw: bytes) -> bool:
    start = raw.find(_SEAL, 0, _HEAD)
    if start < 0:
        return False
    start += len(_SEAL)
    hasher = sha256(raw[:start])
    hasher.update(_ZEROS.encode())
    hasher.update(memoryview(raw)[start + 64 :])
    return hasher.hexdigest().encode() == raw[start : start + 64]


def _artifact(path: Path, document: Mapping[str, Any]) -> Artifact:
    try:
        providers = document["providerSchemas"]
        return Artifact(
            path=path,
            tools_root=path.parent / document["toolsRoot"],
            version=document["version"],
            git_commit=document["gitCommit"],
            build_timestamp=document["buildTimestamp"],
            entries=tuple(document["tools"]),
            provider_file=ProviderFile(
                file=PurePosixPath(providers["file"]).name,
                sha256=providers["sha256"],
                providers=tuple(providers["providers"]),
            ),
        )
    except (KeyError, TypeError) as error:
        raise ArtifactError(f'"{path.name}" lacks {error}; {_mend()}') from None


def _mend() -> str:
    return "run `handrail build` to write it anew."
