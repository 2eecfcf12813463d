"""What the tests of spoken conversations share: nobody speaks slowly or continues after an answer, and sound takes no time."""

import pytest

from handrail.agents.voice.state import speech_output, spoken_confirmation, turn_detection

_REAL_SETTLE_SECONDS = turn_detection._SETTLE_SECONDS


@pytest.fixture(autouse=True)
def words_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted provider that does not tell that its words are all has sent them all at once."""
    monkeypatch.setattr(turn_detection, "_SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(spoken_confirmation, "FINISHED_SECONDS", 0.2)
    monkeypatch.setattr(speech_output, "FASTEST", float("inf"))
    monkeypatch.setattr(speech_output, "_FASTEST_SPEECH", float("inf"))


@pytest.fixture
def words_settle_as_in_production(words_settle_soon: None, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(turn_detection, "_SETTLE_SECONDS", _REAL_SETTLE_SECONDS)
    return _REAL_SETTLE_SECONDS
