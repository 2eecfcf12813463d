"""What picking reads of a tool, whatever form the tool comes in: a definition, a loaded tool, or plain `schema.json` data."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from handrail.contract.definition import ToolDefinition
from handrail.contract.errors import UsageError
from handrail.registry.snapshot import LoadedTool

Tool = ToolDefinition | LoadedTool | Mapping[str, Any]

_LONGEST_TEXT = 4_000
_MAX_PARAMETERS = 200
_DEEPEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogueEntry:
    """The texts by which one tool is found, its modes, and the data that its declaration is measured by."""

    tool_id: str
    description: str
    summary: str
    tags: str
    parameter_names: str
    parameter_texts: str
    modes: frozenset[str] | None
    """None: allowed in every mode."""
    parameters: Mapping[str, Any]

    @property
    def said(self) -> str:
        """The part of the description that counts."""
        return self.description[:_LONGEST_TEXT]

    def tokens(self) -> int:
        """About how many tokens this tool costs in a request: four characters of its declaration are one."""
        declaration = {"name": self.tool_id, "description": self.description, "parameters": self.parameters}
        return -(-len(json.dumps(declaration, ensure_ascii=False, default=str)) // 4)


def entry_of(tool: Tool) -> CatalogueEntry:
    """The entry of a tool; `UsageError` for what is none."""
    if isinstance(tool, ToolDefinition):
        return _entry(tool.tool_id, tool.description, "", tool.tags, tool.parameters, tool.allowed_modes)
    if isinstance(tool, LoadedTool):
        known = tool.definition
        return _entry(known.tool_id, known.description, tool.summary, known.tags, known.parameters, known.allowed_modes)
    if not isinstance(tool, Mapping):
        raise UsageError(
            f"pick_tools takes definitions, a snapshot or schema.json data, not {type(tool).__name__}; "
            "make one with `ToolDefinition.from_dict`."
        )
    name = tool.get("toolId")
    if not isinstance(name, str) or not name:
        raise UsageError('A tool to pick from has no "toolId"; give each the content of its schema.json.')
    return _entry(
        name,
        _text(tool.get("description"), longest=None),
        _text(tool.get("summary")),
        tool.get("tags"),
        tool.get("parameters") or tool.get("jsonSchema"),
        tool.get("allowedModes"),
    )


def _entry(
    tool_id: str, description: str, summary: str, tags: object, parameters: object, modes: object
) -> CatalogueEntry:
    schema: Mapping[str, Any] = parameters if isinstance(parameters, Mapping) else {}
    named = list(_properties(schema, 0))[:_MAX_PARAMETERS]
    return CatalogueEntry(
        tool_id=tool_id,
        description=description,
        summary=summary[:_LONGEST_TEXT] if summary != description else "",
        tags=" ".join(_texts(tags))[:_LONGEST_TEXT],
        parameter_names=" ".join(name for name, _ in named)[:_LONGEST_TEXT],
        parameter_texts="\n".join(text for _, text in named if text)[:_LONGEST_TEXT],
        modes=frozenset(_texts(modes)) if modes is not None else None,
        parameters=schema,
    )


def _properties(schema: object, depth: int) -> Iterator[tuple[str, str]]:
    """The names and descriptions of arguments, those of nested objects and of a list's items too."""
    if not _is_object(schema) or depth > _DEEPEST:
        return
    properties = schema.get("properties")
    for name, value in properties.items() if _is_object(properties) else ():
        yield str(name), _text(value.get("description")) if _is_object(value) else ""
        yield from _properties(value, depth + 1)
    yield from _properties(schema.get("items"), depth + 1)


def _is_object(value: object) -> TypeGuard[Mapping[str, Any]]:
    return isinstance(value, (dict, Mapping))  # dict first: asking the abstract class alone is ten times slower


def _text(value: object, *, longest: int | None = _LONGEST_TEXT) -> str:
    return value[:longest] if isinstance(value, str) else ""


def _texts(value: object) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, (list, tuple)) else []
