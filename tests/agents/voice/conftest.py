"""What the tests of spoken conversations share: nobody in them speaks slowly."""

import pytest

from handrail.agents.voice import hearing


@pytest.fixture(autouse=True)
def words_settle_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scripted provider that does not tell that its words are all has sent them all at once."""
    monkeypatch.setattr(hearing, "_SETTLE_SECONDS", 0.3)
