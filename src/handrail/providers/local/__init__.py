"""Models from a file of this machine: `local:model.gguf` runs any GGUF file in a child process, without a server or a network.

The engine is llama.cpp (the package `xllamacpp`, the extra "local"). What the model may write is constrained by a JSON schema
made from the tools (`tool_call_grammar`), because small models rarely keep to a provider's own format of calls.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from handrail.contract.errors import ConfigError, missing_extra
from handrail.providers.local.gguf import read_header
from handrail.providers.local.local_model import LocalModel
from handrail.providers.local.process import EngineProcess
from handrail.providers.streaming_model import ClientLimits

__all__ = ["LocalModel", "local_problem", "open_local"]

_SMALL_BYTES = 3_000_000_000
"""A file below this holds a model of up to about four thousand million parameters."""
_MAX_CONTEXT = 8_192
"""More is rarely needed, and each token of it costs memory whether it is used or not."""


def local_problem(path: Path) -> str | None:
    """Why this file cannot be run as a model, in a sentence; None if it can be tried."""
    if find_spec("xllamacpp") is None:
        return str(missing_extra(f'The model "local:{path.name}"', "local"))
    try:
        read_header(path)
    except ConfigError as error:
        return str(error)
    return None


def open_local(path: Path, *, limits: ClientLimits | None = None, instructions: str = "") -> LocalModel:
    """The model in this file. It is loaded by `load`, or at the first request; `ConfigError` if it cannot be one."""
    problem = local_problem(path)
    if problem is not None:
        raise ConfigError(problem)
    header = read_header(path)
    context = min(header.context_length or _MAX_CONTEXT, _MAX_CONTEXT)
    seconds = (limits or ClientLimits()).idle_seconds
    engine = EngineProcess(path, context=context, idle_seconds=seconds)
    is_small = path.stat().st_size < _SMALL_BYTES
    return LocalModel(path.name, engine, context=context, is_small=is_small, instructions=instructions)
