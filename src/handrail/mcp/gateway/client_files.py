"""Configuration files of MCP clients that people have: Claude Desktop, Claude Code, Cursor, VS Code, and others of their form.

A value of `env` or of a header may be a secret, so no value is copied: the server gets the name of a variable, and whoever
imports learns which variables to set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from handrail.authoring.mcp.server_config import SERVER_NAME, upstream_config
from handrail.contract.errors import ConfigError, UsageError

MAX_FILE_BYTES = 4 * 1024 * 1024
_KEYS = ("mcpServers", "servers", "context_servers")
"""Where clients keep their servers: most of them, VS Code, Zed. VS Code's settings have `mcp` around it."""
# `*+` does not go back over the white space: a file of commas and spaces would take its length's square.
_LAST_COMMA = re.compile(r",\s*+[}\]]")
_INPUT = re.compile(r"\$\{(?:input|env):([^}]+)\}")
_PLACEHOLDER = re.compile(r"\$\{[^}]*\}")
_SECRET_ARGUMENT = re.compile(r"(?:key|token|secret|password|passwd|auth|credential)", re.IGNORECASE)
_LONG_RANDOM = re.compile(r"(?=[A-Za-z0-9_\-]*\d)(?=[A-Za-z0-9_\-]*[A-Za-z])[A-Za-z0-9_\-]{24,}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedServer:
    """One server of a file: its table for `[mcp.servers.NAME]`, or why it is left out."""

    name: str
    original: str
    values: Mapping[str, Any] = field(default_factory=dict)
    variables: tuple[str, ...] = ()
    """The variables whose values stand in the file, and have to be set for Handrail."""
    refused: str = ""


def read_client_file(path: Path) -> list[ImportedServer]:
    """The servers in a client's file; `UsageError` with one sentence if it is not one."""
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UsageError(f'"{path.name}" is too large for a configuration file of an MCP client.')
        # Editors on Windows put a byte order mark in front.
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f'"{path.name}" is not text.') from None
    except OSError as error:
        raise UsageError(f'"{path}" cannot be read ({error.strerror}).') from None
    try:
        document = json.loads(_plain_json(text))
    except (ValueError, RecursionError):
        raise UsageError(f'"{path.name}" is not JSON, as the configuration files of MCP clients are.') from None
    servers = _servers_of(document)
    if servers is None:
        raise UsageError(f'"{path.name}" names no MCP servers: it has neither "mcpServers" nor "servers".')
    taken: set[str] = set()
    return [_imported(str(name), content, taken) for name, content in servers.items()]


def _servers_of(document: Any) -> Mapping[str, Any] | None:
    for place in (document, document.get("mcp") if isinstance(document, Mapping) else None):
        if isinstance(place, Mapping):
            for key in _KEYS:
                if isinstance(place.get(key), Mapping):
                    found: Mapping[str, Any] = place[key]
                    return found
    return None


def _imported(original: str, content: Any, taken: set[str]) -> ImportedServer:
    name = _name_of(original, taken)
    if not isinstance(content, Mapping):
        return ImportedServer(name=name, original=original, refused="it is no object")
    try:
        values, variables = _values(name, content)
        upstream_config(name, values)
    except (ConfigError, ValueError) as error:
        return ImportedServer(name=name, original=original, refused=str(error).rstrip("."))
    return ImportedServer(name=name, original=original, values=values, variables=tuple(variables))


def _values(name: str, content: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    variables: list[str] = []
    if isinstance(content.get("url") or content.get("serverUrl"), str):
        url = content.get("url") or content["serverUrl"]
        if content.get("type") == "sse":
            raise ValueError("it speaks the older transport over server-sent events, which is not supported")
        values: dict[str, Any] = {"url": _without_query_secrets(_filled_in('"url"', str(url)))}
        headers = content.get("headers") or {}
        if isinstance(headers, Mapping) and headers:
            values["headers"] = {}
            for header in headers:
                # Their values stay where they are: mostly they are credentials, and the table goes into a file that is
                # committed.
                variable = f"{name}_{header}".upper().replace("-", "_")
                values["headers"][str(header)] = variable
                variables.append(variable)
        return values, variables
    command, args = content.get("command"), content.get("args") or []
    if not isinstance(command, str) or not isinstance(args, list) or not all(isinstance(one, str) for one in args):
        raise ValueError('it has neither a "command" nor a "url"')
    for word in secrets_in(args):
        raise ValueError(f'its argument {word} looks like a secret; pass it by "env", and add the server by hand')
    _filled_in('"command"', command)
    for at, word in enumerate(args, 1):
        _filled_in(f"argument number {at}", word)
    env = content.get("env") or {}
    if not isinstance(env, Mapping):
        raise ValueError('its "env" is no object')
    names = [str(one) for one in env]
    variables += [one for one in names if one not in ("PATH", "HOME")]
    values = {"command": [command, *args], "env": list(dict.fromkeys(["PATH", "HOME", *names]))}
    if isinstance(content.get("cwd"), str):
        values["cwd"] = _filled_in('"cwd"', content["cwd"])
    return values, variables


def secrets_in(args: Sequence[str]) -> Iterator[str]:
    """Arguments that a person would not want to find in a file that is committed, without what they hold."""
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        before = args[at - 1] if at and args[at - 1].startswith("-") else ""
        if equals and flag.startswith("-") and _SECRET_ARGUMENT.search(flag) and value:
            yield f'"{flag}"'
        elif before and "=" not in before and _SECRET_ARGUMENT.search(before) and not word.startswith("-"):
            yield f'after "{before}"'
        elif _INPUT.search(word) or _LONG_RANDOM.fullmatch(word):
            yield f"number {at + 1}"


def _filled_in(place: str, text: str) -> str:
    """The text as it is; `ValueError` for one with a variable of its client's, which would be taken for itself here."""
    found = _PLACEHOLDER.search(text)
    if found is not None:
        raise ValueError(
            f'its {place} has "{found[0][:80]}", which only its client fills in; write the value there, and import it again'
        )
    return text


def _without_query_secrets(url: str) -> str:
    if "?" in url and (_SECRET_ARGUMENT.search(url.partition("?")[2]) or _LONG_RANDOM.search(url.partition("?")[2])):
        raise ValueError("its address has what looks like a secret; use a header, and add the server by hand")
    return url


def _name_of(original: str, taken: set[str]) -> str:
    plain = re.sub(r"[^a-z0-9_]+", "_", original.lower()).strip("_")[:30]
    plain = plain if SERVER_NAME.fullmatch(plain) else f"server_{plain}"[:30].rstrip("_")
    name, at = plain, 2
    while name in taken:
        name, at = f"{plain[:28]}_{at}", at + 1
    taken.add(name)
    return name


def _plain_json(text: str) -> str:
    """The text without comments and trailing commas, which the files of editors may have."""
    made: list[str] = []
    at, inside = 0, False
    while at < len(text):
        char = text[at]
        if inside:
            made.append(text[at : at + 2] if char == "\\" else char)
            at += 2 if char == "\\" else 1
            inside = char != '"'
        elif char == '"':
            inside = True
            made.append(char)
            at += 1
        elif text.startswith("//", at):
            end = text.find("\n", at)
            at = len(text) if end < 0 else end
        elif text.startswith("/*", at):
            end = text.find("*/", at)
            at = len(text) if end < 0 else end + 2
        elif char == "," and _LAST_COMMA.match(text, at):
            at += 1
        else:
            made.append(char)
            at += 1
    return "".join(made)
