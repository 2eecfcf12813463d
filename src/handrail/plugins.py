"""Entry points: how the core finds what other packages bring, such as tools and models. docs/extending.md has the rules.

A package declares them in its `pyproject.toml`; nothing is imported until it is used. Handrail's own neighbour, the package
`handrail-reference`, is found in the same way and in no other.
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from handrail.contract.errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

TOOLS = "handrail.tools"
"""Name of the collection → package whose folder holds folders of tools."""
SERVICES = "handrail.services"
"""Name of the capability → factory, as in `[services.NAME]`."""
MODELS = "handrail.models"
"""Scheme, as in `model = "scheme:…"` → factory of a model."""
PROVIDERS = "handrail.providers"
"""Name of a provider → its `Provider`."""
COMMANDS = "handrail.commands"
"""Name of the command → module with `HELP`, `configure(parser)` and `run(options)`."""


@cache
def entry_points_of(group: str) -> Mapping[str, EntryPoint]:
    """What the installed packages declare in this group, by name. `ConfigError` if two packages claim one name."""
    from importlib.metadata import entry_points  # noqa: PLC0415  # takes a while, and most programs ask for none

    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=group):
        other = found.get(point.name)
        # An environment may list one package twice, as an editable install beside its build does.
        if other is not None and other.value != point.value:
            raise ConfigError(
                f'Two installed packages supply "{point.name}" in "{group}": {package_of(other)} and {package_of(point)}; '
                "uninstall one of them."
            )
        found[point.name] = point
    return dict(sorted(found.items()))


def load_plugin(group: str, name: str) -> Any:
    """What an entry point names. `ConfigError` with one sentence if there is none of that name, or it cannot be imported."""
    points = entry_points_of(group)
    if name not in points:
        near = get_close_matches(name, list(points), n=1)
        hint = f'; did you mean "{near[0]}"?' if near else f"; there are {', '.join(points)}." if points else "."
        raise ConfigError(f'No installed package supplies "{name}" in "{group}"{hint}')
    try:
        return points[name].load()
    except (Exception, SystemExit) as error:  # another package's module may raise anything
        raise ConfigError(broken(points[name], error)) from error


def load_module(group: str, name: str) -> ModuleType:
    """As `load_plugin`, for a group whose entry points name modules."""
    found = load_plugin(group, name)
    if not isinstance(found, ModuleType):
        point = entry_points_of(group)[name]
        raise ConfigError(
            f'The {group} plugin "{name}" of {package_of(point)} must name a module; "{point.value}" is not.'
        )
    return found


@cache
def tools_folder(name: str) -> Path:
    """The folder of an installed collection of tools. Its package is found, not imported."""
    point = entry_points_of(TOOLS).get(name)
    if point is None:
        load_plugin(TOOLS, name)
        raise AssertionError(name)
    try:
        spec = find_spec(point.value)
    except (Exception, SystemExit) as error:  # finding a package imports the packages around it
        raise ConfigError(broken(point, error)) from error
    places = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not places:
        raise ConfigError(
            f'The tools "{name}" of {package_of(point)} must be a package with a folder; "{point.value}" is none.'
        )
    return Path(places[0])


def package_of(point: EntryPoint) -> str:
    """The distribution that declares an entry point, for a sentence."""
    return f'"{point.dist.name}"' if point.dist is not None else "an unknown package"


def broken(point: EntryPoint, error: BaseException) -> str:
    """The sentence about a plugin that cannot be used."""
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    return (
        f'"{point.name}" ("{point.value}") of the package {package_of(point)} cannot be loaded: {reason}; '
        "update or uninstall that package."
    )


def import_named(text: str, purpose: str) -> Any:
    """The object that `module:name` names; `ConfigError` with one sentence about `purpose` if there is none."""
    module_name, _, attribute = text.partition(":")
    try:
        module = import_module(module_name)
    except (Exception, SystemExit) as error:  # an author's module may raise anything
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise ConfigError(f'{purpose}: the module "{module_name}" cannot be imported: {reason}.') from error
    try:
        return getattr(module, attribute)
    except AttributeError:
        near = get_close_matches(attribute, [name for name in vars(module) if not name.startswith("_")], n=1)
        hint = f'; did you mean "{near[0]}"?' if near else "."
        raise ConfigError(f'{purpose}: the module "{module_name}" has no "{attribute}"{hint}') from None
