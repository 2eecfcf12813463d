"""Runs a reference tool as it is run for a model: arguments checked, defaults filled in, the result checked, too."""

import asyncio
import importlib
import inspect
import json
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

import handrail
import handrail_reference
from handrail.contract.envelope import ToolFailure

TOOLS = Path(handrail_reference.__file__).parent / "tools"

RunTool = Callable[[str, dict[str, Any]], dict[str, Any]]


@pytest.fixture(scope="session")
def run_tool() -> RunTool:
    """`run_tool("validate_email", {"email": "…"})` gives the envelope."""
    return _run


@cache
def _definition(tool_id: str) -> dict[str, Any]:
    definition = json.loads((TOOLS / tool_id.replace("_", "-") / "schema.json").read_text(encoding="utf-8"))
    for name in ("parameters", "outputSchema"):
        definition[name + "Validator"] = Draft202012Validator(definition[name], validate_formats=True)
    return definition


@cache
def _handler(tool_id: str) -> ModuleType:
    """The handler, as a module of a package of its own, so that it can import the files beside it."""
    package = ModuleType(f"_tool_{tool_id}")
    package.__path__ = [str(TOOLS / tool_id.replace("_", "-"))]
    sys.modules[package.__name__] = package
    return importlib.import_module(f"{package.__name__}.handler")


def _run(tool_id: str, args: dict[str, Any]) -> dict[str, Any]:
    definition = _definition(tool_id)
    violations = [error.message for error in definition["parametersValidator"].iter_errors(args)]
    if violations:
        return _failed(handrail.ToolError(handrail.ErrorType.VALIDATION, " ".join(violations)))
    properties = definition["parameters"]["properties"]
    defaults = {name: schema["default"] for name, schema in properties.items() if "default" in schema}
    try:
        envelope = _handler(tool_id).execute(defaults | args, SimpleNamespace(mode="text"))
        if inspect.isawaitable(envelope):
            envelope = asyncio.run(_finish(envelope))
    except handrail.ToolError as error:
        return _failed(error)
    assert envelope["ok"] is True
    json.dumps(envelope, allow_nan=False)
    definition["outputSchemaValidator"].validate(envelope["data"])
    return envelope


async def _finish(awaitable: Any) -> Any:
    return await awaitable


def _failed(error: handrail.ToolError) -> dict[str, Any]:
    return {"ok": False, "error": ToolFailure.from_error(error).to_dict()}
