"""`handrail.lock`: what the servers said of their tools when a person took them in. Committed, and written by commands alone.

Each tool stands there in full, so that a change can be shown, beside the hash of its canonical form, which is its pin.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from handrail.contract.errors import ConfigError, JsonError
from handrail.schema.strict_json import digest, parse_document

LOCK_FILE = "handrail.lock"
LOCK_FORMAT = 1
MAX_LOCK_BYTES = 64 * 1024 * 1024
PINNED = ("name", "title", "description", "inputSchema", "outputSchema", "annotations", "execution")
"""What a pin covers of a definition: all that models, people and policy go by. Icons and `_meta` reach none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PinnedServer:
    """The tools of one server that were taken in, and those that were refused, each with the reason."""

    tools: Mapping[str, Mapping[str, Any]]
    refused: Mapping[str, str] = field(default_factory=dict)
    identity: Mapping[str, str] = field(default_factory=dict)
    """What the server called itself; for people."""

    def pins(self) -> dict[str, str]:
        return {name: pin_of(definition) for name, definition in self.tools.items()}


def pinned_form(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What of a server's definition is pinned."""
    return {key: definition[key] for key in PINNED if definition.get(key) is not None}


def pin_of(definition: Mapping[str, Any]) -> str:
    """The hash of a definition; `JsonError` if it has no canonical form."""
    return f"sha256:{digest(pinned_form(definition))}"


def read_lock(project: Path) -> dict[str, PinnedServer]:
    """What is pinned, by server; empty without a file, `ConfigError` with one sentence for one that cannot be used."""
    path = project / LOCK_FILE
    try:
        if path.stat().st_size > MAX_LOCK_BYTES:
            raise ConfigError(f"{LOCK_FILE} is larger than a lock file can be; restore it from version control.")
        document = parse_document(path.read_bytes(), max_bytes=MAX_LOCK_BYTES)
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ConfigError(f"{LOCK_FILE} cannot be read ({error.strerror}).") from None
    except JsonError as error:
        raise ConfigError(f"{LOCK_FILE} is not JSON ({error.message.rstrip('.')}); {_MEND}") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise ConfigError(f"{LOCK_FILE} is not a lock file of Handrail; {_MEND}")
    if document["format"] > LOCK_FORMAT:
        raise ConfigError(
            f"{LOCK_FILE} has format {document['format']}, which is newer than this Handrail reads ({LOCK_FORMAT}); "
            "upgrade Handrail."
        )
    servers = document.get("servers")
    if not isinstance(servers, dict):
        raise ConfigError(f'{LOCK_FILE} lacks "servers"; {_MEND}')
    return {name: _server(name, content) for name, content in servers.items()}


_MEND = "restore it from version control, or pin the servers anew with `handrail mcp update`."


def _server(name: str, content: Any) -> PinnedServer:
    parts: list[Any] = [content.get(key) for key in ("tools", "refused", "server")] if isinstance(content, dict) else []
    if len(parts) != 3 or not all(isinstance(part, dict) for part in parts):
        raise ConfigError(f'{LOCK_FILE} has no whole entry for the server "{name}"; {_MEND}')
    tools, refused, identity = parts
    taken: dict[str, Mapping[str, Any]] = {}
    for tool, entry in tools.items():
        definition = entry.get("definition") if isinstance(entry, dict) else None
        if (
            not isinstance(definition, dict)
            or definition.get("name") != tool
            or not _fits(definition, entry.get("hash"))
        ):
            raise ConfigError(
                f'{LOCK_FILE} was edited by hand: the tool "{tool}" of the server "{name}" does not fit its hash; '
                f"restore the file, or see and take the server's own words with `handrail mcp update {name}`."
            )
        taken[tool] = definition
    if not all(isinstance(text, str) for table in (refused, identity) for text in table.values()):
        raise ConfigError(f'{LOCK_FILE} has no whole entry for the server "{name}"; {_MEND}')
    return PinnedServer(tools=taken, refused=refused, identity=identity)


def _fits(definition: Mapping[str, Any], expected: Any) -> bool:
    try:
        return pinned_form(definition) == definition and pin_of(definition) == expected
    except (JsonError, RecursionError):
        return False


def render_lock(servers: Mapping[str, PinnedServer]) -> bytes:
    """The bytes of the file: sorted and indented, so that a change is reviewed line by line."""
    document = {
        "format": LOCK_FORMAT,
        "servers": {
            name: {
                "server": dict(one.identity),
                "tools": {
                    tool: {"hash": pin_of(definition), "definition": pinned_form(definition)}
                    for tool, definition in one.tools.items()
                },
                "refused": dict(one.refused),
            }
            for name, one in servers.items()
        },
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def write_lock(project: Path, servers: Mapping[str, PinnedServer]) -> None:
    """Write the file to the side, then put it in place."""
    path = project / LOCK_FILE
    aside = path.with_name(f".{LOCK_FILE}.new")
    try:
        aside.write_bytes(render_lock(servers))
        aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{LOCK_FILE} cannot be written ({error.strerror}).") from None
