"""A model that books tables with a project's own tool, and says what became of it. A project finds it as a package beside it."""

import re
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path

from handrail.model import Call, CallMade, Finished, ModelEvent, ModelRequest
from handrail_reference.demo import DemoModel
from handrail_reference.demo.view import View

_WISH = re.compile(r"book a table for (\d+) people on the name (\w+)", re.I)


def put_beside(folder: Path) -> None:
    """Install it for a server that is started in this folder."""
    facts = folder / "tables-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tables\nVersion: 1.0\n", "utf-8")
    (facts / "entry_points.txt").write_text("[handrail.models]\ntables = table_model:TableModel\n", "utf-8")
    shutil.copy(__file__, folder / "table_model.py")


class TableModel(DemoModel):
    """What `model = "tables"` opens: the demo model, which can book a table as well."""

    def __init__(self, name: str) -> None:
        self.name = name or "tables"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        view = View(request)
        wish = _WISH.search(view.turn.text)
        if wish is None or view.news is not None or view.turn.outcomes:
            async for event in super().stream(request):
                yield event
        else:
            args = {"people": int(wish[1]), "name": wish[2]}
            yield CallMade(Call("book_table", args, f"call_{len(request.messages)}", self.provider, self.id_scope))
            yield Finished("calls")
