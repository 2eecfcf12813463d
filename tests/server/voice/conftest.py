"""As for the agent's own tests: nobody speaks slowly."""

from tests.agents.voice.conftest import words_settle_soon

__all__ = ["words_settle_soon"]
