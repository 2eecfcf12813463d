"""A definition as a function declaration of `generateContent`."""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted
from handrail.providers.gemini.function_declaration import as_meant, declaration

__all__ = ["adapt", "as_meant"]


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `functionDeclarations`, and what it could not say."""
    return declaration(definition)
