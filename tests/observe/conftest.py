"""The fixture of the runtime's tests, for what is observed of its calls."""

from tests.runtime.conftest import make_tools

__all__ = ["make_tools"]
