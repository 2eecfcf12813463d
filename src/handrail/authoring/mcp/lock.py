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


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenEntry:
    """The entry of a server that was edited by hand: what is wrong with it, and what stands there."""

    fault: str
    content: Any
    readable: PinnedServer
    """What of it can be read: to show a person what differs, and for nothing else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LockFile:
    """The file's content: the servers whose entries hold, and those whose do not."""

    servers: Mapping[str, PinnedServer] = field(default_factory=dict)
    broken: Mapping[str, BrokenEntry] = field(default_factory=dict)

    def taking(self, pinned: Mapping[str, PinnedServer]) -> LockFile:
        """The same with these servers as they are pinned now."""
        broken = {name: one for name, one in self.broken.items() if name not in pinned}
        return LockFile(servers={**self.servers, **pinned}, broken=broken)

    def pins_of(self, name: str) -> PinnedServer | None:
        """What is pinned of a server, None if nothing is; `ConfigError` if its entry is broken."""
        if name in self.broken:
            raise ConfigError(self.broken[name].fault)
        return self.servers.get(name)


def pinned_form(definition: Mapping[str, Any]) -> dict[str, Any]:
    """What of a server's definition is pinned."""
    return {key: definition[key] for key in PINNED if definition.get(key) is not None}


def pin_of(definition: Mapping[str, Any]) -> str:
    """The hash of a definition; `JsonError` if it has no canonical form."""
    return f"sha256:{digest(pinned_form(definition))}"


def read_lock(project: Path) -> LockFile:
    """What is pinned; nothing without a file, `ConfigError` with one sentence for a file of which no entry can be read."""
    path = project / LOCK_FILE
    try:
        if path.stat().st_size > MAX_LOCK_BYTES:
            raise ConfigError(f"{LOCK_FILE} is larger than a lock file can be; restore it from version control.")
        document = parse_document(path.read_bytes(), max_bytes=MAX_LOCK_BYTES)
    except FileNotFoundError:
        return LockFile()
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
    entries = {name: _entry(name, content) for name, content in servers.items()}
    return LockFile(
        servers={name: one for name, one in entries.items() if isinstance(one, PinnedServer)},
        broken={name: one for name, one in entries.items() if isinstance(one, BrokenEntry)},
    )


_MEND = "restore it from version control, or pin the servers anew with `handrail mcp update`."


def _entry(name: str, content: Any) -> PinnedServer | BrokenEntry:
    parts: list[Any] = [content.get(key) for key in ("tools", "refused", "server")] if isinstance(content, dict) else []
    whole = len(parts) == 3 and all(isinstance(part, dict) for part in parts)
    tools, refused, identity = parts if whole else ({}, {}, {})
    texts = [{key: text for key, text in table.items() if isinstance(text, str)} for table in (refused, identity)]
    whole = whole and texts == [refused, identity]
    taken: dict[str, Mapping[str, Any]] = {}
    edited: list[str] = []
    for tool, entry in tools.items():
        definition = entry.get("definition") if isinstance(entry, dict) else None
        pin = _pin_in(definition, tool)
        if isinstance(definition, dict) and pin is not None:
            taken[tool] = pinned_form(definition)
        if pin is None or taken[tool] != definition or pin != entry.get("hash"):
            edited.append(tool)
    readable = PinnedServer(tools=taken, refused=texts[0], identity=texts[1])
    if whole and not edited:
        return readable
    fault = f'{LOCK_FILE} has no whole entry for the server "{name}"'
    if edited:
        fault = f'{LOCK_FILE} was edited by hand: the tool "{edited[0]}" of the server "{name}" does not fit its hash'
    fault += f"; restore the file, or see and take the server's own words with `handrail mcp update {name}`."
    return BrokenEntry(fault=fault, content=content, readable=readable)


def _pin_in(definition: Any, tool: str) -> str | None:
    """The pin of what stands in the file as the definition of this tool; None if it can be none."""
    if not isinstance(definition, dict) or definition.get("name") != tool:
        return None
    try:
        return pin_of(definition)
    except (JsonError, RecursionError):
        return None


def render_lock(lock: LockFile) -> bytes:
    """The bytes of the file: sorted and indented, so that a change is reviewed line by line. What is broken stays as it is."""
    document = {
        "format": LOCK_FORMAT,
        "servers": {name: one.content for name, one in lock.broken.items()}
        | {
            name: {
                "server": dict(one.identity),
                "tools": {
                    tool: {"hash": pin_of(definition), "definition": pinned_form(definition)}
                    for tool, definition in one.tools.items()
                },
                "refused": dict(one.refused),
            }
            for name, one in lock.servers.items()
        },
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def write_lock(project: Path, lock: LockFile) -> None:
    """Write the file to the side, then put it in place."""
    path = project / LOCK_FILE
    aside = path.with_name(f".{LOCK_FILE}.new")
    try:
        aside.write_bytes(render_lock(lock))
        aside.replace(path)
    except OSError as error:
        raise ConfigError(f"{LOCK_FILE} cannot be written ({error.strerror}).") from None
