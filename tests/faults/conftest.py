"""The same tools and worlds as the tests of the runtime."""

from tests.runtime.conftest import make_tools

__all__ = ["make_tools"]
