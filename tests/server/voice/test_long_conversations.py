"""A conversation that lasts holds no more after many turns than after some: everything that grows with it has a bound.

The bounds are made small, so that they are reached soon, and everything that can be reached from the line is counted: what has
no bound, whoever adds it, is seen here to grow.
"""

import asyncio
import gc
import sys
from collections import Counter, deque
from pathlib import Path
from typing import Any

import pytest
from tests.server.voice.kit import limits
from tests.server.voice.test_conversations import PROVIDERS, voice_setup

from handrail.agents import conversation as agents_conversation
from handrail.agents import unacknowledged_writes
from handrail.agents.voice.state import speech_output, turn_detection
from handrail.providers import live_history
from handrail.providers.openai.realtime import spoken_inputs as inputs
from handrail.registry import Registry
from handrail.runtime import known_calls
from handrail.runtime.core import RuntimeCore
from handrail.runtime.plan import Plans
from handrail.server.host import hosted_session
from handrail.server.voice import conversation_host as line_module
from handrail.stores.statements import conversations
from handrail.testing.servers.live import Ask, Say, Turn, call

SOME, MANY = 35, 90
SMALL = (
    (agents_conversation, "MAX_MESSAGES", 24),
    (unacknowledged_writes, "_MAX_KEPT", 4),
    (turn_detection, "_MAX_NAMED", 4),
    (speech_output, "_MAX_KEPT", 4),
    (live_history, "_MAX_ENTRIES", 12),
    (live_history, "_MAX_SEEN", 8),
    (inputs, "_MAX_KNOWN", 12),
    (known_calls, "MAX_KNOWN", 8),
    (conversations, "MAX_TURNS", 6),
    (hosted_session, "MAX_TURNS", 6),
    (line_module, "MAX_EVENTS", 40),
)
SHARED = (RuntimeCore, Registry, Plans, asyncio.AbstractEventLoop, asyncio.Task, type, type(sys))
OURS = ("builtins", "collections", "handrail", "_asyncio", "asyncio")


def _held(root: object) -> Counter[str]:
    """How many bytes of each type hang on an object, apart from what all conversations share."""
    seen, left, found = {id(root)}, deque([root]), Counter[str]()
    while left:
        one = left.popleft()
        found[type(one).__name__] += sys.getsizeof(one)
        for other in gc.get_referents(one):
            if id(other) in seen or isinstance(other, SHARED) or callable(other):
                continue
            if not type(other).__module__.startswith(OURS):
                continue
            seen.add(id(other))
            left.append(other)
    return found


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name, value in SMALL:
        monkeypatch.setattr(module, name, value)


def _turns(count: int) -> list[Turn]:
    said = []
    for number in range(count):
        args = {"q": f"{number}: {'words ' * 20}"}
        name = ("note", "look")[number % 2]
        said.append(
            Turn([Say("Let me see."), Ask(call(name, **args)), Say(f"Done, {number}.")], hears=f"Turn {number}")
        )
    return said


@pytest.mark.parametrize("name", PROVIDERS)
async def test_what_a_conversation_holds_is_bounded_however_long_it_lasts(
    tmp_path: Path, name: str, small: None
) -> None:
    options = limits(burst_seconds=1e6, message_burst=1e6)
    async with voice_setup(name, tmp_path, _turns(MANY), limits=options) as here, here.enter() as client:
        sizes: dict[int, Counter[str]] = {}
        exchange: Any = here.server.made.app.state.context.voice
        line = exchange._hosts[here.api.id]
        line.voice.session.replays.max_entries = 6
        for number in range(1, MANY + 1):
            await here.speak(client)
            await client.until(lambda one, due=number: len({done["turn"] for done in one.of("turn_done")}) >= due)
            said = client.of("audio_end")[-1]
            await client.send("played", item=said["item"], ms=said["ms"], done=True)
            del client.sounds[:]
            if number in (SOME, MANY):
                await line.voice.settled()
                sizes[number] = _held(line)
        grown = {kind: (sizes[SOME][kind], sizes[MANY][kind]) for kind in sizes[MANY]}
        assert sizes[MANY].total() < 1.15 * sizes[SOME].total(), grown
        assert sizes[SOME].total() > 20_000
        assert client.numbers == list(range(client.numbers[0], client.numbers[0] + len(client.numbers)))
