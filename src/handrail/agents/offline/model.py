"""The offline model as a model: it is asked, and streams words or calls. The same request always gives the same stream."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Iterator
from hashlib import sha256
from typing import Any

import orjson

from handrail.agents.offline.steps import Step, next_step
from handrail.agents.offline.view import View
from handrail.agents.tokens import tokens_of, tokens_of_json, tokens_of_messages
from handrail.contract.call import Call, IdScope
from handrail.contract.model import AssistantMessage, CallMade, Finished, ModelEvent, ModelRequest, TextDelta, Usage

NOTICE = (
    "(This is the offline model: it follows rules and quotes what it finds, without a language model behind it. "
    'To talk to a real one, set "model" under [agent] in handrail.toml.)'
)
_SIGN = "This is the offline model"
_PIECE = re.compile(r"\S+\s*|\s+")


class OfflineModel:
    """A model that needs no network and no key."""

    name = "offline"
    provider = "openai-chat"
    id_scope: IdScope = "session"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        # In a thread: ranking a large catalogue and reading long records would hold the loop.
        step, said_before = await asyncio.to_thread(_think, request)
        written = 0
        for number, (name, args) in enumerate(step.calls):
            written += tokens_of(name) + tokens_of_json(args)
            yield CallMade(Call(name, args, _call_id(request, number, name, args), self.provider, self.id_scope))
        text = step.text
        if text and not step.calls and not said_before and request.session.get("mode") != "voice":
            text = f"{text}\n\n{NOTICE}"
        for piece in _pieces(text):
            yield TextDelta(piece)
            await asyncio.sleep(0)
        read = (
            tokens_of(request.system) + tokens_of_messages(request.messages) + sum(map(tokens_of_json, request.tools))
        )
        yield Usage(read, written + tokens_of(text))
        yield Finished("calls" if step.calls else "stop")

    async def close(self) -> None:
        """Nothing is open."""


def _think(request: ModelRequest) -> tuple[Step, bool]:
    view = View(request)
    # In all that was said, not in the last answer of each turn: what became of an approval is told in the same turn.
    said = (message.text for message in request.messages if isinstance(message, AssistantMessage))
    return next_step(view), any(_SIGN in text for text in said)


def _pieces(text: str) -> Iterator[str]:
    """A few words at a time."""
    piece = ""
    for match in _PIECE.finditer(text):
        piece += match[0]
        if len(piece) >= 24:
            yield piece
            piece = ""
    if piece:
        yield piece


def _call_id(request: ModelRequest, number: int, name: str, args: dict[str, Any]) -> str:
    """The same for the same call in the same place of the same conversation, so that a turn that is gone through again
    meets what it called before."""
    place = [len(request.messages), tokens_of_messages(request.messages), number, name, args]
    return f"call_{sha256(orjson.dumps(place, option=orjson.OPT_SORT_KEYS)).hexdigest()[:20]}"
