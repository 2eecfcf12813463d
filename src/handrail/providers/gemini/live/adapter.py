"""A definition as a function declaration of a live session: that of a request, and whether the model waits for it.

What is not said depends on the model. A conversation whose answers come before their facts is of no use, so it waits.
"""

from __future__ import annotations

from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted
from handrail.providers.gemini.function_declaration import as_meant, declaration

__all__ = ["adapt", "as_meant"]


def adapt(definition: ToolDefinition) -> Adapted:
    """The tool as an entry of `functionDeclarations` in the set-up, and what it could not say."""
    made = declaration(definition)
    return Adapted({**made.schema, "behavior": "BLOCKING"}, made.losses)
