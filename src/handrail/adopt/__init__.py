"""Adoption: what people already have becomes a governed tool, and governed tools are handed to the frameworks they use.

`from_…` stands in a module that `[tools] modules` names and gives what `@tool` gives; `to_…` takes a session and gives the
framework's own objects, whose calls pass the session's pipeline. No framework is imported before one of its tools is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from handrail.adopt.exporting.langchain import to_langchain
    from handrail.adopt.exporting.openai_agents import to_openai_agents
    from handrail.adopt.exporting.pydantic_ai import to_pydantic_ai
    from handrail.adopt.importing.function import from_function
    from handrail.adopt.importing.langchain import from_langchain
    from handrail.adopt.importing.openai_agents import from_openai_agents
    from handrail.adopt.importing.pydantic_ai import from_pydantic_ai

__all__ = [
    "from_function",
    "from_langchain",
    "from_openai_agents",
    "from_pydantic_ai",
    "to_langchain",
    "to_openai_agents",
    "to_pydantic_ai",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    way, _, home = name.partition("_")
    value = getattr(import_module(f"{__name__}.{'importing' if way == 'from' else 'exporting'}.{home}"), name)
    globals()[name] = value
    return value
