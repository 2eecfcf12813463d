"""The registration of a provider: plain data that every list of providers is made from. `catalogue.py` has the list.

Modules are named as text and imported when they are first needed, so that a registration costs nothing and brings no SDK.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, cast

from handrail.contract.call import IdScope
from handrail.contract.definition import ToolDefinition
from handrail.providers.adapted import Adapted


class AdapterModule(Protocol):
    """A provider's adapter: the module that writes a definition in the provider's format.

    It may also have `as_meant(definition, args)`, where its format makes a model send arguments that have to be undone.
    """

    def adapt(self, definition: ToolDefinition) -> Adapted: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelClient:
    """How a model of the provider is opened, and what has to be installed and set for that."""

    opener: str
    """"module:callable", called as `open(name, api_key=…, base_url=…, limits=…)`; it gives a `Model` or a `LiveModel`."""
    is_live: bool = False
    """Whether the model listens and speaks: named in `[voice]`, not in `[agent]`."""
    schemes: tuple[str, ...] = ()
    """What may stand before the colon in the name of a model, the one that is shown first; empty: the provider's name."""
    packages: tuple[str, ...] = ()
    """What has to be importable."""
    distribution: str = ""
    """Where the first of the packages is installed from."""
    versions: tuple[str, str | None] = ("0", None)
    """The first version of the distribution that works, and the first that does not any more."""
    extra: str = ""
    """The extra of Handrail that installs it all; empty: the distribution is installed by its own name."""
    keys: tuple[str, ...] = ()
    """Environment variables that may hold the key; the first that is set counts."""
    needs_key: bool = True
    address_variable: str = ""
    """The environment variable that may hold the base URL."""
    default_address: str = ""
    """The base URL of a server on this machine, where nothing else is said; empty: the SDK knows the vendor's."""
    url_schemes: tuple[str, ...] = ("http", "https")
    vendor_host: str = ""
    """The host of the vendor's own endpoint, where call ids are unique in a session; its regions stand before it."""
    suggested_model: str = ""
    """The model that is offered where a key is found; empty: none is."""
    problem: str = ""
    """"module:function", asked as `problem(address, model)` before a model is used: why it cannot answer, or None."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """One format: how tools are written in it, how its events are read, and how its models are opened."""

    name: str
    vendor: str
    """Who it is, in sentences for people."""
    adapter: str
    """The `AdapterModule`."""
    transport: str
    """The module that reads the provider's events and writes its messages."""
    aliases: tuple[str, ...] = ()
    id_scope: IdScope = "message"
    """For how long every server of this protocol keeps call ids apart, whoever runs it."""
    client: ModelClient | None = None
    """None: the provider calls us, as MCP clients do."""
    max_tools: int | None = None
    """Tools in one request; None if no limit is known."""
    request_limits: str = ""
    """"module:function" for limits of one request that are not a number of tools; gives ends of sentences."""

    @property
    def schemes(self) -> tuple[str, ...]:
        """What may stand before the colon in the name of its models; empty if it has none."""
        return (self.client.schemes or (self.name,)) if self.client is not None else ()

    def adapter_module(self) -> AdapterModule:
        return cast(AdapterModule, import_module(self.adapter))

    def exceeded_limits(self, schemas: Sequence[Mapping[str, Any]]) -> Iterable[str]:
        """Why these tools cannot be offered in one request, as ends of a sentence that begins with the provider."""
        if self.max_tools is not None and len(schemas) > self.max_tools:
            yield f"takes at most {self.max_tools} tools in one request; these are {len(schemas):,}"
        if self.request_limits:
            yield from load(self.request_limits)(schemas)


def load(name: str) -> Any:
    """The object that "module:name" names; its module is imported now."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module), attribute)
