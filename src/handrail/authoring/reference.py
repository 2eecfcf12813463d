"""Tools that come with installed packages: folders as an author would write them, which a project may take in.

`[tools] reference` names them. Each belongs to a collection: `handrail` for those of the core, otherwise the name of the entry
point (`handrail.tools`) of the package that brings it. The artifact names the collection, which is found again in whatever
place the package is installed, so no path of this machine is written down.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from handrail.authoring.directory import read_folder, tool_folders
from handrail.authoring.source import ToolSource
from handrail.contract.errors import ConfigError, missing_extra
from handrail.plugins import TOOLS, entry_points_of, tools_folder

ALL = "*"
CORE = "handrail"
"""The collection of the core itself."""
REFERENCE = "reference"
"""The collection of the package `handrail-reference`; `*` alone means the core's and these."""


def collections() -> tuple[str, ...]:
    """The collections of tools that are installed here."""
    return (CORE, *(name for name in entry_points_of(TOOLS) if name != CORE))


def collection_root(name: str) -> Path:
    """The folder of an installed collection; `ConfigError` if there is none of that name, or it cannot be found."""
    return Path(__file__).parent.parent / "tools" if name == CORE else tools_folder(name)


def read_reference(names: Sequence[str]) -> list[ToolSource]:
    """The tools that these names mean, each once. An unknown name is a `ConfigError`.

    A name is a tool's id, `collection:tool_id`, `collection:*`, or `*` for all of Handrail's own.
    """
    if not names:
        return []
    known: dict[str, dict[str, str]] = {}
    broken: dict[str, ConfigError] = {}
    for name in collections():
        try:
            known[name] = {folder.replace("-", "_"): folder for folder in tool_folders(collection_root(name))}
        except ConfigError as error:  # a package that cannot be loaded breaks only what names its tools
            broken[name] = error
    chosen: dict[tuple[str, str], None] = {}
    for name in names:
        collection, separator, tool = name.rpartition(":")
        places = [collection] if separator else [one for one in (CORE, REFERENCE) if one in known or one == CORE]
        if (separator and collection in broken) or (tool == ALL and not separator and REFERENCE in broken):
            raise broken[collection or REFERENCE]
        if separator and collection not in known:
            raise ConfigError(_no_collection(name, collection, list(known)))
        if tool == ALL:
            if not separator and REFERENCE not in known:
                raise missing_extra("Using all reference tools", "reference")
            chosen.update(dict.fromkeys((place, tool_id) for place in places for tool_id in known[place]))
        else:
            try:
                chosen[_find(name, tool.replace("-", "_"), places if separator else list(known), known)] = None
            except ConfigError:
                if separator or not broken:
                    raise
                raise next(iter(broken.values())) from None  # it may be there that the tool is
    return [
        read_folder(collection_root(place), known[place][tool_id], origin=place)
        for place, tool_id in sorted(chosen, key=lambda one: (one[1], one[0]))
    ]


def _find(name: str, tool_id: str, places: Sequence[str], known: Mapping[str, Mapping[str, str]]) -> tuple[str, str]:
    """The collection and the id of the one tool that a name means."""
    found = [place for place in places if tool_id in known[place]]
    if len(found) > 1:
        either = " or ".join(f'"{place}:{tool_id}"' for place in found)
        raise ConfigError(f'"reference" in [tools] names "{name}", which several packages have; write {either}.')
    if found:
        return found[0], tool_id
    ids = [one for place in places for one in known[place]]
    near = get_close_matches(tool_id, ids, n=1)
    if not near and REFERENCE not in known:
        raise missing_extra(f'The reference tool "{name}"', "reference")
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(ids)}."
    raise ConfigError(f'"reference" in [tools] names "{name}", which is no reference tool; {hint}')


def _no_collection(name: str, collection: str, known: list[str]) -> str:
    near = get_close_matches(collection, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"installed are {', '.join(known)}."
    return f'"reference" in [tools] names "{name}", but no installed package has the tools "{collection}"; {hint}'
