"""`handrail init` and `handrail new`: a project, and a tool that builds and passes its own generated test."""

from __future__ import annotations

import json
import os.path
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

from handrail.build.rules.reserved_name import RESERVED
from handrail.contract.errors import UsageError
from handrail.contract.fields import CATEGORIES, TOOL_ID, one_of

SCHEMA_COPY = ".handrail/tool.schema.json"

_TOML = """\
# Settings of this project. Every key can be overridden by HANDRAIL_<SECTION>_<KEY>.

[tools]
directory = "tools"   # one folder per tool
modules = []          # Python modules with decorated tools
reference = []        # tools that come with Handrail, such as "format_datetime"; "*" takes all of them

[registry]
validators = "lazy"   # or "eager": compile every schema at start

[store]
url = "sqlite:///handrail.db"   # sessions, ledger, confirmations; "memory:" for a throw-away one

[audit]
directory = "audit"

[policy.voice]        # what a turn may cost; 0 means no limit
retrieval_calls = 2
total_calls = 3

[policy.text]
retrieval_calls = 5
"""

_GITIGNORE = """\
# Written by `handrail build`, never edited, never committed.
tool_registry.json
tool_registry.*.jsonl
tool_registry.json.*
# What a running project leaves behind.
*.db
*.db-*
*.db.owners*
audit/
images/
server-keys.json
console-key
__pycache__/
.venv/
"""

_TEST = '''\
"""Tests of the tool {tool_id}, run through the same pipeline that a model's calls go through."""

from pathlib import Path

from handrail.testing import open_tools

TOOLS = Path(__file__).parent.parent / {directory}


def test_every_example_of_the_guide_runs():
    with open_tools(TOOLS) as tools:
        examples = tools.examples("{tool_id}")
        assert examples
        for arguments in examples:
            response = tools.call("{tool_id}", arguments, approved=True)
            assert response.ok, response.error


def test_an_argument_that_the_model_made_up_is_refused():
    with open_tools(TOOLS) as tools:
        response = tools.call("{tool_id}", {{"made_up": 1}})
        assert response.error.type == "VALIDATION"
'''

_ACTION_TEST = '''\
"""Tests of the tool {tool_id}, run through the same pipeline that a model's calls go through.

Nobody approves a call here, so that nothing is changed. To see an approved call run, give the tool a stand-in for its service
and never the service itself: `open_tools(TOOLS, capabilities={{"orders": stand_in}})`, then `tools.call(…, approved=True)`.
"""

from pathlib import Path

from handrail.testing import open_tools

TOOLS = Path(__file__).parent.parent / {directory}


def test_every_example_of_the_guide_waits_for_a_person():
    with open_tools(TOOLS) as tools:
        examples = tools.examples("{tool_id}")
        assert examples
        for arguments in examples:
            response = tools.call("{tool_id}", arguments)
            assert response.error.type == "CONFIRMATION_REQUIRED", response
            assert response.error.confirmation_request["preview"]


def test_an_argument_that_the_model_made_up_is_refused():
    with open_tools(TOOLS) as tools:
        response = tools.call("{tool_id}", {{"made_up": 1}})
        assert response.error.type == "VALIDATION"
'''

_RETRIEVAL = '''\
"""Looks a record up by its id. Replace RECORDS by your own source."""

from handrail import ErrorType, ToolError

RECORDS = {
    "A-1001": {"id": "A-1001", "status": "shipped", "items": 3},
    "A-1002": {"id": "A-1002", "status": "waiting", "items": 1},
}


async def execute(args, ctx):
    record = RECORDS.get(args["id"])
    if record is None:
        raise ToolError(ErrorType.NOT_FOUND, f'There is no record "{args["id"]}".')
    return {"ok": True, "data": {"record": record}}
'''

_ACTION = '''\
"""Changes a record. Replace RECORDS by your own service, and give it ctx.idempotency_key."""

from handrail import ErrorType, ToolError

RECORDS = {"A-1001": {"status": "waiting"}}


async def execute(args, ctx):
    record = RECORDS.get(args["id"])
    if record is None:
        raise ToolError(ErrorType.NOT_FOUND, f'There is no record "{args["id"]}".')
    record["status"] = args["status"]
    return {"ok": True, "data": {"id": args["id"], "status": record["status"]}}
'''

_UTILITY = '''\
"""Counts the words of a text. Replace it by your own computation."""


async def execute(args, ctx):
    words = args["text"].split()
    return {"ok": True, "data": {"words": len(words), "longest": max(words, key=len, default="")}}
'''


def init_project(folder: Path) -> list[str]:
    """Make a project; the names of what was written. Nothing that exists is overwritten."""
    if (folder / "handrail.toml").exists():
        raise UsageError(f'"{folder}" is a project already: it has a handrail.toml.')
    if folder.exists() and not folder.is_dir():
        raise UsageError(f'"{folder}" exists and is not a folder.')
    written = {
        "handrail.toml": _TOML,
        ".gitignore": _GITIGNORE,
        SCHEMA_COPY: editor_schema(),
        "tools/.gitkeep": "",
        "tests/.gitkeep": "",
    }
    return [name for name, text in written.items() if write_new(folder / name, text)]


def new_tool(project: Path, tools: Path, name: str, category: str) -> list[Path]:
    """Write a tool and its test; the paths of what was written."""
    tool_id = name.replace("-", "_")
    # A leading underscore would make a folder that the build passes over.
    if not re.fullmatch(TOOL_ID, tool_id) or tool_id.startswith("_"):
        raise UsageError(
            f'"{name}" cannot be the name of a tool; use letters, digits and underscores, a letter first, at most 64.'
        )
    if tool_id in RESERVED:
        raise UsageError(f'"{name}" is a name that Handrail keeps for itself; choose another one.')
    if category not in CATEGORIES:
        raise UsageError(f'"{category}" is not a category; choose {one_of(CATEGORIES)}.')
    folder = tools / tool_id.replace("_", "-")
    if folder.exists() or (tools / tool_id).exists():
        raise UsageError(f'There is a tool "{tool_id}" already, in "{folder}".')
    write_new(project / SCHEMA_COPY, editor_schema())
    up = Path(os.path.relpath(project, folder)).as_posix()
    schema = {"$schema": f"{up}/{SCHEMA_COPY}", **_schema(tool_id, category)}
    directory = json.dumps(Path(os.path.relpath(tools, project)).as_posix(), ensure_ascii=False)
    test = (_ACTION_TEST if category == "action" else _TEST).format(tool_id=tool_id, directory=directory)
    handler = {"retrieval": _RETRIEVAL, "action": _ACTION, "utility": _UTILITY}[category]
    content = {
        folder / "schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n",
        folder / "guide.md": _guide(tool_id, category),
        folder / "handler.py": handler,
        project / "tests" / f"test_{tool_id}.py": test,
    }
    return [path for path, text in content.items() if write_new(path, text)]


def editor_schema() -> str:
    """The JSON Schema of `schema.json`, as it ships with the package."""
    return (files("handrail") / "schemas" / "tool.json").read_text(encoding="utf-8")


def _schema(tool_id: str, category: str) -> dict[str, Any]:
    title = tool_id.replace("_", " ").strip()
    identifier = {"type": "string", "description": "The record's id, such as A-1001.", "minLength": 1, "maxLength": 64}
    head: dict[str, Any] = {"toolId": tool_id, "version": "1.0.0"}
    if category == "action":
        return head | {
            "description": f"{title.capitalize()}: change the status of a record.",
            "category": "action",
            "sideEffects": "writes",
            "idempotent": False,
            "requiresConfirmation": True,
            "allowedModes": ["text"],
            "latencyBudgetMs": 1000,
            "preview": "Set {id} to {status}.",
            "parameters": _object({"id": identifier, "status": {"enum": ["waiting", "shipped", "cancelled"]}}),
            "outputSchema": _object({"id": {"type": "string"}, "status": {"type": "string"}}),
        }
    if category == "utility":
        return head | {
            "description": f"{title.capitalize()}: count the words of a text.",
            "category": "utility",
            "sideEffects": "none",
            "idempotent": True,
            "requiresConfirmation": False,
            "allowedModes": ["text", "voice"],
            "latencyBudgetMs": 100,
            "parameters": _object({"text": {"type": "string", "description": "The text.", "maxLength": 10000}}),
            "outputSchema": _object({"words": {"type": "integer"}, "longest": {"type": "string"}}),
        }
    return head | {
        "description": f"{title.capitalize()}: look a record up by its id.",
        "category": "retrieval",
        "sideEffects": "read_only",
        "idempotent": True,
        "requiresConfirmation": False,
        "allowedModes": ["text", "voice"],
        "latencyBudgetMs": 500,
        "parameters": _object({"id": identifier}),
        "outputSchema": _object({"record": {"type": "object"}}),
    }


def _object(properties: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "required": list(properties), "properties": properties}


def _guide(tool_id: str, category: str) -> str:
    summary, parameters, arguments, data, watch = {
        "retrieval": (
            "Looks a record up by its id and gives its current state.",
            "- **id** (required): the record's id, such as A-1001",
            '{ "id": "A-1001" }',
            '{ "record": { "id": "A-1001", "status": "shipped", "items": 3 } }',
            "- An id that does not exist is answered `NOT_FOUND`; ask the user for the right one instead of guessing.",
        ),
        "action": (
            "Changes the status of a record, after a person has approved it.",
            "- **id** (required): the record's id\n- **status** (required): waiting, shipped or cancelled",
            '{ "id": "A-1001", "status": "shipped" }',
            '{ "id": "A-1001", "status": "shipped" }',
            "- Say what you are about to change before you call it; the person sees a preview and decides.",
        ),
        "utility": (
            "Counts the words of a text and names the longest.",
            "- **text** (required): the text",
            '{ "text": "hold on to the handrail" }',
            '{ "words": 5, "longest": "handrail" }',
            "- Words are what white space separates.",
        ),
    }[category]
    return (
        f"# {tool_id}\n\n{summary}\n\n## Parameters\n{parameters}\n\n## Examples\n\n"
        f"```json\n{arguments}\n```\n\nResponse:\n```json\n{data}\n```\n\n## Watch out\n{watch}\n"
    )


def write_new(path: Path, text: str) -> bool:
    """Write a file unless there is one; whether it was written."""
    if path.exists():
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f'"{path}" cannot be written ({error.strerror}).') from None
    return True
