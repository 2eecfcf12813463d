"""What an adapter gives back: a provider's form of a tool, and every keyword that lost meaning on the way to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

RENAMED = "properties"
"""The keyword of a loss that is only a name which the provider refuses; `pointer` is the property's."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A keyword of the parameters that the provider's format cannot express as it is.

    `pointer` is its place in the definition's `parameters` (where the keyword is missing, that of the schema that lacks
    it), and `done` says what was done instead, as the end of a sentence.
    """

    keyword: str
    pointer: str
    done: str
    minor: bool = False
    """Whether a model still reads it: in the description of the value, or by the list of an object's properties.

    A build lists these and does not warn of them: an author cannot say it any better, and arguments are checked anyway.
    """


@dataclass(frozen=True, slots=True)
class Adapted:
    """`schema` is new and may be changed by whoever asked for it. No losses: it says all that the definition says."""

    schema: dict[str, Any]
    losses: tuple[Loss, ...] = ()
