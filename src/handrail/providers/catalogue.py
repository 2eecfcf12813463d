"""The one list of providers. Names, formats of the build, models, errors and the tables of the documentation come from it.

Other packages add theirs by an entry point; docs/providers.md, "Add a provider", shows both ways.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from functools import cache

from handrail.contract.errors import ConfigError, UsageError
from handrail.plugins import PROVIDERS, entry_points_of, load_plugin, package_of
from handrail.providers.provider import Provider, load

REGISTRATIONS = (
    "handrail.providers.openai:CHAT",
    "handrail.providers.openai:RESPONSES",
    "handrail.providers.openai:REALTIME",
    "handrail.providers.gemini:HTTP",
    "handrail.providers.gemini:LIVE",
    "handrail.providers.anthropic:MESSAGES",
    "handrail.providers.ollama:OLLAMA",
    "handrail.providers.mcp:MCP",
)
"""A provider of Handrail's own is one folder and one line here."""


_MAX_SLIPS = 2
"""A misspelt name is at most this many letters longer or shorter."""
_MISSPELT = 0.85
"""How like a provider's name another must be to be taken for it. "openai-agents" is no slip, and like "openai-chat" by 0.75."""


@cache
def own_providers() -> Mapping[str, Provider]:
    """Handrail's own providers by name, in the order of the list."""
    found: list[Provider] = [load(registration) for registration in REGISTRATIONS]
    return {provider.name: provider for provider in found}


def provider_names() -> tuple[str, ...]:
    """The names of all providers, those of other packages included. Nobody else's package is imported for that."""
    return (*own_providers(), *(name for name in entry_points_of(PROVIDERS) if name not in own_providers()))


def find_provider(name: str) -> Provider | None:
    """The provider with this name or alias; None if there is none. Another package is imported only for its own name."""
    for provider in own_providers().values():
        if name == provider.name or name in provider.aliases:
            return provider
    if name in entry_points_of(PROVIDERS):
        return _of_package(name)
    return next((provider for provider in _of_packages() if name in provider.aliases), None)


def get_provider(name: str) -> Provider:
    """The provider with this name or alias; `UsageError` with the known names if there is none."""
    found = find_provider(name)
    if found is not None:
        return found
    known = provider_names()
    aliases = (alias for one in own_providers().values() for alias in one.aliases)
    near = get_close_matches(name, (*known, *aliases), n=1)
    hint = f' Did you mean "{near[0]}"?' if near else ""
    raise UsageError(f'There is no provider "{name}"; there is {", ".join(known)}.{hint}')


def misspelt(name: str) -> str:
    """A sentence about a name that is nearly a provider's, and none; nothing about one of a host's own, such as a framework's."""
    known = (*provider_names(), *(alias for one in own_providers().values() for alias in one.aliases))
    near = [] if name in known else get_close_matches(name.lower(), known, n=1, cutoff=_MISSPELT)
    if not near or find_provider(name) is not None:
        return ""
    # "gemini-2" and "anthropic-eu" are what a host may call a connection of its own, and no slips of the hand.
    is_numbered = name.rstrip("0123456789").rstrip("-_") == near[0]
    if is_numbered or name.startswith((f"{near[0]}-", f"{near[0]}_")) or abs(len(name) - len(near[0])) > _MAX_SLIPS:
        return ""
    return f'There is no provider "{name}"; did you mean "{near[0]}"?'


def canonical_name(name: str) -> str:
    """The name of the provider that `name` means, be it that name or an alias; `UsageError` if there is none."""
    return get_provider(name).name


def provider_of_scheme(scheme: str) -> Provider | None:
    """Whose models have this scheme, as in "scheme:model"; None if nobody's."""
    for one in own_providers().values():
        if scheme in one.schemes:
            return one
    found = _of_package(scheme) if scheme in entry_points_of(PROVIDERS) else None
    return found if found is not None and found.schemes else None


def schemes(*, live: bool) -> tuple[str, ...]:
    """What is shown as the beginning of a model's name, one for each provider with such models."""
    own = [one for one in own_providers().values() if one.client is not None and one.client.is_live is live]
    return tuple(one.schemes[0] for one in own)


def _of_packages() -> Iterator[Provider]:
    return (_of_package(name) for name in entry_points_of(PROVIDERS) if name not in own_providers())


def _of_package(name: str) -> Provider:
    found = load_plugin(PROVIDERS, name)
    point = entry_points_of(PROVIDERS)[name]
    if not isinstance(found, Provider) or found.name != name:
        raise ConfigError(
            f'"{point.value}" of the package {package_of(point)} must be a `Provider` with the name "{name}"; '
            "update or uninstall that package."
        )
    return found
