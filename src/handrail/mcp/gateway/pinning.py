"""What a server offers now against what is pinned: the difference that a person sees before it is taken."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import orjson

from handrail.authoring.mcp.inspection import refusals
from handrail.authoring.mcp.lock import PinnedServer, pin_of, pinned_form
from handrail.authoring.mcp.server_config import UpstreamConfig
from handrail.contract.errors import ServiceError
from handrail.contract.ports import Clock
from handrail.mcp.gateway.upstream import Upstream, UpstreamDescription, UpstreamUnavailable

THE_SERVER = "(the server itself)"
"""Stands where the name of a tool does, when a server calls itself otherwise; no tool can have it as its name."""
_MAX_SHOWN = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChange:
    """What became of one tool, and where its definition differs: a JSON pointer, what was there, what is there now."""

    tool: str
    kind: str
    """`added`, `removed`, `changed` or `refused`."""
    differences: tuple[tuple[str, str, str], ...] = ()
    reason: str = ""

    def to_dict(self) -> dict[str, Any]:
        made: dict[str, Any] = {"tool": self.tool, "change": self.kind}
        if self.differences:
            made["differences"] = [{"place": place, "was": was, "is": now} for place, was, now in self.differences]
        return made | ({"reason": self.reason} if self.reason else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class PinReview:
    """The changes since the pins were taken, and the pins that taking them makes."""

    changes: tuple[ToolChange, ...]
    pinned: PinnedServer
    unchanged: int

    @property
    def is_same(self) -> bool:
        return not self.changes


async def offer_of(
    config: UpstreamConfig,
    *,
    project: Path,
    environment: Mapping[str, str],
    clock: Clock,
    auth: httpx2.Auth | None = None,
) -> UpstreamDescription:
    """What the server offers now. It is started for this, and stopped again; `ServiceError` with a sentence if it cannot be."""
    upstream = Upstream(config, environment=environment, project=project, clock=clock, auth=auth)
    try:
        return (await upstream.connection()).offer
    except UpstreamUnavailable as error:
        last = next((line for line in reversed(upstream.errors) if line.strip()), "")
        said = f' Its last line of output was: "{last.strip()[:300]}".' if last else ""
        raise ServiceError(f"{error}{said}") from None
    finally:
        await upstream.stop()


def review(config: UpstreamConfig, old: PinnedServer | None, offer: UpstreamDescription) -> PinReview:
    """What taking this offer would change."""
    known: Mapping[str, Mapping[str, Any]] = old.tools if old is not None else {}
    was_refused: Mapping[str, str] = old.refused if old is not None else {}
    refused = {
        **refusals(config, offer.definitions),
        **dict.fromkeys(offer.repeated, "the server lists it more than once"),
    }
    taken = {name: pinned_form(one) for name, one in offer.definitions.items() if name not in refused}
    changes: list[ToolChange] = []
    was, now = (old.identity.get("name", "") if old is not None else ""), offer.identity.get("name", "")
    if old is not None and was != now:
        changes.append(ToolChange(tool=THE_SERVER, kind="changed", differences=(("/name", _shown(was), _shown(now)),)))
    for name in sorted({*known, *offer.definitions}):
        if name in refused:
            if was_refused.get(name) != refused[name] or name in known:
                changes.append(ToolChange(tool=name, kind="refused", reason=refused[name]))
        elif name not in offer.definitions:
            changes.append(ToolChange(tool=name, kind="removed"))
        elif name not in known:
            changes.append(ToolChange(tool=name, kind="added"))
        elif pin_of(known[name]) != pin_of(taken[name]):
            differences = tuple(_differences(known[name], taken[name], ""))
            changes.append(ToolChange(tool=name, kind="changed", differences=differences))
    pinned = PinnedServer(tools=taken, refused=refused, identity=offer.identity)
    same = sum(name in known and pin_of(known[name]) == pin_of(one) for name, one in taken.items())
    return PinReview(changes=tuple(changes), pinned=pinned, unchanged=same)


def _differences(was: Any, now: Any, place: str) -> Iterator[tuple[str, str, str]]:
    if isinstance(was, Mapping) and isinstance(now, Mapping):
        for key in sorted({*was, *now}):
            below = f"{place}/{key.replace('~', '~0').replace('/', '~1')}"
            if key not in was:
                yield below, "", _shown(now[key])
            elif key not in now:
                yield below, _shown(was[key]), ""
            else:
                yield from _differences(was[key], now[key], below)
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from _differences(one, other, f"{place}/{index}")
    elif type(was) is not type(now) or was != now:
        yield place, _shown(was), _shown(now)


def _shown(value: Any) -> str:
    text = orjson.dumps(value).decode()
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text):,} characters)"
