"""A module of adopted tools, built and opened as a project's would be; and what happened in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

from handrail.testing import ToolKit, open_tools

_NUMBERS = itertools.count()


@contextmanager
def adopted(folder: Path, source: str) -> Iterator[ToolKit]:
    """The tools of a module with this source."""
    module = f"adopted_{next(_NUMBERS)}_{folder.name}".replace("-", "_")
    (folder / "tools").mkdir(exist_ok=True)
    (folder / f"{module}.py").write_text(dedent(source), encoding="utf-8")
    with open_tools(folder / "tools", modules=(module,)) as tools:
        yield tools


SHOP = """
    from handrail import tool

    SEEN = []

    @tool(category="retrieval", side_effects="read_only")
    async def find_book(title: str, limit: int = 3) -> dict:
        \"\"\"Find books by their title.

        Args:
            title: A part of the title.
            limit: How many at most.
        \"\"\"
        SEEN.append(("find_book", title))
        return {"books": [title] * limit}

    @tool(category="action", side_effects="writes", idempotent=False, waivers={"action-unconfirmed": "a test"})
    async def order_book(title: str) -> dict:
        \"\"\"Order a book.\"\"\"
        SEEN.append(("order_book", title))
        return {"ordered": title}

    @tool(category="action", side_effects="writes", requires_confirmation=True)
    async def burn_book(title: str) -> dict:
        \"\"\"Burn a book, once a person has said yes.\"\"\"
        SEEN.append(("burn_book", title))
        return {"burnt": title}
"""
