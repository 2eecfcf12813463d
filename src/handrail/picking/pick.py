"""`pick_tools`: from a large catalogue down to the tools that one request needs.

The index of a catalogue is made at the first request and kept for the next ones: by version for a registry or snapshot, by
the very objects for a list of definitions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar, overload

from handrail.contract.definition import Mode, ToolDefinition
from handrail.contract.errors import UsageError
from handrail.picking.embedding_index import EmbedsTexts
from handrail.picking.index import Scorer, ToolIndex
from handrail.registry.registry import Registry
from handrail.registry.snapshot import LoadedTool, Snapshot

_KEPT = 8

Given = TypeVar("Given", ToolDefinition, Mapping[str, Any], dict[str, Any])


@dataclass(frozen=True, slots=True)
class _Kept:
    """An index and its tools. While they are held, no other object can have the identities that the key is made of."""

    index: ToolIndex
    tools: Mapping[str, Any]
    embedder: EmbedsTexts | None
    said: Sequence[object]
    """What the plain data among them said: data can be changed in place, and then the index is made anew."""


_indexes: OrderedDict[Hashable, _Kept] = OrderedDict()
_lock = Lock()


@overload
def pick_tools(
    query: str,
    definitions: Snapshot | Registry,
    k: int = 8,
    *,
    embedder: EmbedsTexts | None = None,
    scorer: Scorer | None = None,
    mode: Mode | None = None,
    always: Sequence[str] = (),
    token_budget: int | None = None,
    min_score: float | None = None,
) -> list[ToolDefinition]: ...


@overload
def pick_tools(
    query: str,
    definitions: Iterable[Given],
    k: int = 8,
    *,
    embedder: EmbedsTexts | None = None,
    scorer: Scorer | None = None,
    mode: Mode | None = None,
    always: Sequence[str] = (),
    token_budget: int | None = None,
    min_score: float | None = None,
) -> list[Given]: ...


def pick_tools(
    query: str,
    definitions: Iterable[Any] | Registry,
    k: int = 8,
    *,
    embedder: EmbedsTexts | None = None,
    scorer: Scorer | None = None,
    mode: Mode | None = None,
    always: Sequence[str] = (),
    token_budget: int | None = None,
    min_score: float | None = None,
) -> list[Any]:
    """The definitions that the query needs, best first: at most `k`, none if none fits.

    `definitions` is a registry, a snapshot, or a list of definitions or of `schema.json` data. With an `embedder`, words and
    meanings decide together; without, words alone. `always` names tools that come first whatever the query is, `mode` leaves
    out tools of another mode, `token_budget` limits what the declarations cost together (four characters are a token), and
    `min_score` (0 to 1) is how well a tool must fit. With an embedder this blocks while it computes: call it in a thread.
    """
    if isinstance(definitions, (Snapshot, Registry)):
        kept = _of_snapshot(definitions.generation if isinstance(definitions, Registry) else definitions, embedder)
    else:
        kept = _of_list(_listed(definitions), embedder)
    picked = kept.index.pick(
        query, k, scorer=scorer, mode=mode, always=always, token_budget=token_budget, min_score=min_score
    )
    found = [kept.tools[one.tool_id] for one in picked]
    return [tool.definition if isinstance(tool, LoadedTool) else tool for tool in found]


def _listed(definitions: Iterable[Any]) -> tuple[Any, ...]:
    if isinstance(definitions, Mapping):
        if "toolId" in definitions:
            raise UsageError("pick_tools takes a list of definitions; put this one into a list.")
        return tuple(definitions.values())
    if isinstance(definitions, (str, bytes)) or not isinstance(definitions, Iterable):
        raise UsageError(f"pick_tools takes a list of definitions or a snapshot, not {type(definitions).__name__}.")
    return tuple(definitions)


def _of_snapshot(snapshot: Snapshot, embedder: EmbedsTexts | None) -> _Kept:
    key = (snapshot.key, tuple(snapshot.tools), id(embedder))
    return _lately(key, ()) or _keep(key, _made(tuple(snapshot), embedder, ()))


def _of_list(tools: tuple[Any, ...], embedder: EmbedsTexts | None) -> _Kept:
    key = (tuple(map(id, tools)), id(embedder))
    said = [tool.get("description") for tool in tools if type(tool) is dict]
    return _lately(key, said) or _keep(key, _made(tools, embedder, said))


def _made(tools: tuple[Any, ...], embedder: EmbedsTexts | None, said: Sequence[object]) -> _Kept:
    index = ToolIndex(tools, embedder=embedder)
    named: dict[str, Any] = {}
    for tool in tools:
        named.setdefault(tool["toolId"] if isinstance(tool, Mapping) else tool.tool_id, tool)
    return _Kept(index, named, embedder, said)


def _lately(key: Hashable, said: Sequence[object]) -> _Kept | None:
    with _lock:
        kept = _indexes.get(key)
        if kept is None or kept.said != said:
            return None
        _indexes.move_to_end(key)
        return kept


def _keep(key: Hashable, made: _Kept) -> _Kept:
    """The index that is used from now on: another thread's, if that was faster, so that its vectors are made once."""
    with _lock:
        kept = _indexes.get(key)
        if kept is None or kept.said != made.said:
            kept = _indexes[key] = made
        _indexes.move_to_end(key)
        if len(_indexes) > _KEPT:
            _indexes.popitem(last=False)
        return kept
