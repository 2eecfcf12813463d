"""What the console's tests share: one browser for each module, and a server that plays a script."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.browser import launched
from tests.console.scripted_server import Script, ScriptedServer
from tests.console.scripted_voice import ScriptedVoiceServer, VoiceScript


@pytest.fixture(scope="module")
def browser(request: pytest.FixtureRequest) -> Iterator[Any]:
    """With a microphone that plays a tone, for those who allow it; a module says by `ASKS_FOR_THE_MICROPHONE` that it does,
    because only the whole browser asks. Not for longer than a module: its event loop stands in the way of tests that run one
    of their own."""
    whole = getattr(request.module, "ASKS_FOR_THE_MICROPHONE", False)
    with launched("--use-fake-device-for-media-stream", whole=whole) as made:
        yield made


@pytest.fixture
def scripted() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture
def script(scripted: ScriptedServer) -> Script:
    return scripted.script


@pytest.fixture
def server() -> Iterator[ScriptedVoiceServer]:
    """A server with a voice of a provider's; the model of text alone where `voice.offline` is set."""
    made = ScriptedVoiceServer()
    yield made
    made.close()


@pytest.fixture
def voice(server: ScriptedVoiceServer) -> VoiceScript:
    return server.voice
