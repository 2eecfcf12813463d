"""What a client finds beside the tools: guides as resources, a summary of the tools as a prompt, and those tools of the
project that its settings offer as resources or prompts as well."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from handrail.mcp.server.declarations import declaration
from handrail.mcp.server.options import McpOptions
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.availability import hidden_tools
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

GUIDE_URI = "handrail://guide/"
SUMMARY = "handrail_tools"
"""The prompt that says what the tools are for."""
_PLACE = re.compile(r"\{([a-zA-Z_][a-zA-Z0-9_]*)\}")
_MAX_VALUES = 100


class McpCatalogue:
    """What a session is offered, made once for each registry version and set of tools."""

    def __init__(self, runtime: RuntimeCore, options: McpOptions) -> None:
        self._runtime = runtime
        self._options = options
        self._declared: dict[tuple[str, tuple[str, ...], bool], list[dict[str, Any]]] = {}
        self._addresses = [(uri, _pattern(uri), tool) for uri, tool in options.resources.items()]

    def tools_of(self, session: Session) -> list[LoadedTool]:
        allowed, off, hidden = session.plans.allowed, self._runtime.switches, hidden_tools(session, "text")
        return [
            tool
            for tool in session.snapshot.by_mode["text"]
            if tool.tool_id in allowed and tool.tool_id not in off and tool.tool_id not in hidden
        ]

    def tools(self, session: Session, *, modern: bool) -> list[dict[str, Any]]:
        offered = self.tools_of(session)
        key = (session.snapshot.key, tuple(tool.tool_id for tool in offered), modern)
        declared = self._declared.get(key)
        if declared is None:
            declared = [self._declaration(tool, modern=modern) for tool in offered]
            if len(self._declared) > 32:
                self._declared.clear()
            self._declared[key] = declared
        return declared

    def _declaration(self, tool: LoadedTool, *, modern: bool) -> dict[str, Any]:
        entry = declaration(tool.definition)
        if modern and tool.tool_id in self._options.task_tools:
            entry["execution"] = {"taskSupport": "required"}
        return entry

    # Resources

    def resources(self, session: Session) -> list[dict[str, Any]]:
        known = {tool.tool_id: tool for tool in self.tools_of(session)}
        own = [
            {"uri": uri, "name": tool, "description": known[tool].definition.description}
            for uri, _, tool in self._addresses
            if tool in known and not _PLACE.search(uri)
        ]
        guides = [
            {
                "uri": f"{GUIDE_URI}{tool.tool_id}",
                "name": f"guide of {tool.tool_id}",
                "description": tool.summary,
                "mimeType": "text/markdown",
            }
            for tool in known.values()
            if tool.documentation
        ]
        return own + guides

    def templates(self, session: Session) -> list[dict[str, Any]]:
        known = {tool.tool_id: tool for tool in self.tools_of(session)}
        return [
            {"uriTemplate": uri, "name": tool, "description": known[tool].definition.description}
            for uri, _, tool in self._addresses
            if tool in known and _PLACE.search(uri)
        ]

    def guide(self, session: Session, uri: str) -> str | None:
        name = uri.removeprefix(GUIDE_URI)
        return next((tool.documentation for tool in self.tools_of(session) if tool.tool_id == name), None)

    def call_for(self, session: Session, uri: str) -> tuple[str, dict[str, Any]] | None:
        """The tool that gives what is at an address, and its arguments."""
        for _, pattern, tool in self._addresses:
            found = pattern.fullmatch(uri)
            if found is not None and tool in session.plans.allowed:
                return tool, {name: unquote(value) for name, value in found.groupdict().items()}
        return None

    # Prompts

    def prompts(self, session: Session) -> list[dict[str, Any]]:
        known = {tool.tool_id: tool for tool in self.tools_of(session)}
        summary = {"name": SUMMARY, "description": "What the tools of this server are for."}
        return [summary, *(_prompt(known[name]) for name in self._options.prompts if name in known)]

    def is_prompt(self, name: str) -> bool:
        return name in self._options.prompts

    def summary(self, session: Session) -> str:
        lines = [f"- {tool.tool_id}: {tool.summary}" for tool in self.tools_of(session)]
        return "\n".join(["The tools of this server:", *lines])

    # Completion

    def completions(self, session: Session, tool_id: str, argument: str, begun: str) -> list[str]:
        """The values of an enumeration that begin so."""
        tool = next((one for one in self.tools_of(session) if one.tool_id == tool_id), None)
        if tool is None:
            return []
        schema = tool.definition.parameters.get("properties", {}).get(argument, {})
        values = schema.get("enum", ()) if isinstance(schema, Mapping) else ()
        texts = [value for value in values if isinstance(value, str)]
        return [text for text in texts if text.lower().startswith(begun.lower())][:_MAX_VALUES]

    def tool_of_template(self, uri: str) -> str | None:
        return self._options.resources.get(uri)


def contents_of(uri: str, blocks: Sequence[Mapping[str, Any]], text: str) -> list[dict[str, Any]]:
    """What a call has shown, as the contents of a resource; its data where it has shown nothing."""
    found: list[dict[str, Any]] = []
    for block in blocks:
        if block["type"] == "resource":
            found.append({**block["resource"], "uri": uri})
        elif block["type"] == "text":
            found.append({"uri": uri, "mimeType": "text/plain", "text": block["text"]})
        elif block["type"] in ("image", "audio"):
            found.append({"uri": uri, "mimeType": block["mimeType"], "blob": block["data"]})
    return found or [{"uri": uri, "mimeType": "application/json", "text": text}]


def _prompt(tool: LoadedTool) -> dict[str, Any]:
    schema = tool.definition.parameters
    required = schema.get("required", ())
    arguments = [
        {"name": name, "description": str(part.get("description", "")), "required": name in required}
        for name, part in schema.get("properties", {}).items()
    ]
    told = {"name": tool.tool_id, "description": tool.definition.description}
    return {**told, "arguments": arguments} if arguments else told


def _pattern(uri: str) -> re.Pattern[str]:
    parts = _PLACE.split(uri)
    texts = [re.escape(part) if place % 2 == 0 else f"(?P<{part}>[^/]+)" for place, part in enumerate(parts)]
    return re.compile("".join(texts))
