"""What the tests of spoken conversations share: nobody in them speaks slowly."""

import pytest

from handrail.agents.voice import hearing

_REAL_SETTLE_SECONDS = hearing._SETTLE_SECONDS


@pytest.fixture(autouse=True)
def words_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted provider that does not tell that its words are all has sent them all at once."""
    monkeypatch.setattr(hearing, "_SETTLE_SECONDS", 0.3)


@pytest.fixture
def words_settle_as_in_production(words_settle_soon: None, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(hearing, "_SETTLE_SECONDS", _REAL_SETTLE_SECONDS)
    return _REAL_SETTLE_SECONDS
