"""What one tool was written as: its schema, guide and handler files, read but not yet judged.

Directory tools, decorator tools and tools of MCP servers all become a `ToolSource`; the lint rules judge it and the compiler
turns it into an entry of the artifact. Reading never raises for something that an author can cause: what went wrong is kept
here, and the rule that it belongs to reports it.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from handrail.contract.definition import ToolDefinition, find_problems
from handrail.contract.errors import JsonError, SchemaError
from handrail.schema.problems import find_schema_problems
from handrail.schema.strict_json import parse_document

Kind = Literal["directory", "function", "class", "mcp"]
PROJECT = "project"
"""The origin of the project's own tools; any other is the collection of an installed package (`authoring.reference`)."""

UPSTREAM_CAPABILITY = "mcp_servers"
"""The service that calls MCP servers; a tool of one needs it, as any tool needs its own."""
SCHEMA_FILE = "schema.json"
GUIDE_FILE = "guide.md"
HANDLER_FILE = "handler.py"
REQUIRED_FILES = (SCHEMA_FILE, GUIDE_FILE, HANDLER_FILE)
MAX_FILE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ModuleTool:
    """Where a decorated tool is found again at load time."""

    module: str
    name: str
    line: int
    services: Mapping[str, str] = field(default_factory=dict)
    """Its parameters that are services of the host → their names."""


@dataclass(frozen=True, slots=True)
class UpstreamTool:
    """Which tool of which MCP server is called, and the hash that its definition must have."""

    server: str
    tool: str
    pin: str
    writes: bool = True


@dataclass(kw_only=True)
class ToolSource:
    """One tool as its author left it. `folder` is relative to the tools directory, and is what findings name."""

    kind: Kind
    folder: str
    origin: str = PROJECT
    """Whose it is: the project's, or a collection of tools that an installed package brings."""
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Every regular file that was read, by name; for a decorated tool its module's source."""
    links: tuple[str, ...] = ()
    oversized: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    """What the operating system would not let us read; `.` is the folder itself."""
    given: ToolDefinition | None = None
    """The definition that a decorator already made."""
    given_guide: str | None = None
    module_tool: ModuleTool | None = None
    upstream: UpstreamTool | None = None

    def file(self, name: str) -> str:
        """The path of one of its files, as findings show it."""
        if self.kind == "directory":
            return f"{self.folder}/{name}" if self.origin == PROJECT else f"{self.origin}/tools/{self.folder}/{name}"
        if self.kind == "mcp":
            return "handrail.lock"
        return self.folder.replace(".", "/") + ".py"

    @property
    def expected_id(self) -> str:
        return self.folder.rsplit("/", 1)[-1].partition("@")[0].replace("-", "_")

    @property
    def version_label(self) -> str | None:
        """What the folder's name says of the version, as in `refund@2`; None if nothing."""
        _, marked, label = self.folder.rsplit("/", 1)[-1].partition("@")
        return label if marked and self.kind == "directory" else None

    @property
    def name(self) -> str:
        """What to call it in a sentence, however broken it is."""
        if self.definition is not None:
            return self.definition.tool_id
        return self.expected_id

    @cached_property
    def _parsed(self) -> tuple[Any, JsonError | None]:
        if self.given is not None:
            return self.given.to_dict(), None
        data = self.files.get(SCHEMA_FILE)
        if data is None:
            return None, None
        try:
            return parse_document(data, max_bytes=MAX_FILE_BYTES), None
        except JsonError as error:
            return None, error

    @property
    def raw(self) -> Mapping[str, Any] | None:
        """The content of schema.json, if it is a JSON object."""
        content = self._parsed[0]
        return content if isinstance(content, Mapping) else None

    @property
    def schema_trouble(self) -> JsonError | None:
        """Why schema.json could not be read as JSON."""
        return self._parsed[1]

    @property
    def schema_is_json(self) -> bool:
        return self.schema_trouble is None and (self.given is not None or SCHEMA_FILE in self.files)

    @cached_property
    def field_problems(self) -> list[Any]:
        """What the table of fields finds in schema.json."""
        if self.given is not None or not self.schema_is_json:
            return []
        return find_problems(self._parsed[0])

    @cached_property
    def schema_problems(self) -> Mapping[str, list[SchemaError]]:
        """The problems of `parameters` and `outputSchema` as JSON Schemas, for those that are there."""
        schemas = {name: (self.raw or {}).get(name) for name in ("parameters", "outputSchema")}
        return {name: find_schema_problems(schema) for name, schema in schemas.items() if isinstance(schema, Mapping)}

    @cached_property
    def definition(self) -> ToolDefinition | None:
        """The definition, if schema.json is right field by field."""
        if self.given is not None:
            return self.given
        if self.raw is None or self.field_problems:
            return None
        return ToolDefinition.from_checked(self.raw)

    @property
    def arguments(self) -> Mapping[str, Any] | None:
        """The schema of each argument, by name; None if they cannot be read."""
        if self.definition is None:
            return None
        found = self.definition.parameters.get("properties", {})
        return found if isinstance(found, Mapping) else None

    @cached_property
    def guide(self) -> str | None:
        """The text of the guide; None if it is missing or not UTF-8."""
        if self.kind != "directory":
            return self.given_guide
        return self._text(GUIDE_FILE)

    @cached_property
    def handler_tree(self) -> ast.Module | SyntaxError | None:
        """handler.py parsed, never run; the SyntaxError if it does not parse."""
        if self.kind != "directory":
            return None
        data = self.files.get(HANDLER_FILE)
        if data is None:
            return None
        return parse_python(data)

    def handler_files(self) -> dict[str, bytes]:
        """The files whose bytes are run, and so are hashed."""
        if self.kind != "directory":
            return dict(self.files)
        return {name: data for name, data in sorted(self.files.items()) if name.endswith(".py")}

    def _text(self, name: str) -> str | None:
        data = self.files.get(name)
        if data is None:
            return None
        try:
            return data.decode("utf-8").removeprefix("\ufeff").replace("\r\n", "\n")
        except UnicodeDecodeError:
            return None


def parse_python(data: bytes) -> ast.Module | SyntaxError:
    """Source code parsed and compiled, never run: some mistakes, such as a stray `return`, only the compiler sees."""
    try:
        # What Python only warns of, such as an odd escape, is its author's business and no news for a build.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compile(data, "<tool>", "exec", dont_inherit=True)
            return ast.parse(data)
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError, MemoryError) as error:
        return SyntaxError(str(error) or "it is nested too deeply")
