"""Stores that earlier releases wrote: opened by this one they are upgraded, and continue where they were. The files are made by
running those releases; `tests/data/README.md` says which."""

import json
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests.runtime.kit import asked, kind

from handrail import Runtime
from handrail.build.compiler import BuildPlan, build
from handrail.build.writer import stamp_for, write
from handrail.contract.store import LedgerState
from handrail.registry import Registry
from handrail.stores.maintenance import open_access
from handrail.stores.maintenance.checking import check_store
from handrail.stores.maintenance.copying import copy_store
from handrail.stores.migrations import MIGRATIONS

DATA = Path(__file__).parents[1] / "data" / "stores"
VERSIONS = (7, 11, 19)
_HANDLER = """\
import json, os
from pathlib import Path


async def execute(args, ctx):
    with Path(os.environ["MARKS"]).open("a") as file:
        file.write(json.dumps(args) + "\\n")
    return {"ok": True, "data": {"paid": args.get("q", "")}}
"""


@pytest.fixture
def registry(tmp_path):
    """The tools that the files were made with."""
    for name, needs_a_person in (("pay", False), ("fail", False), ("wire", True)):
        folder = tmp_path / "tools" / name
        folder.mkdir(parents=True)
        schema = {
            "toolId": name, "version": "1.0.0", "description": f"The tool {name}.", "category": "action",
            "sideEffects": "writes", "idempotent": False, "allowedModes": ["text", "voice"], "latencyBudgetMs": 500,
            "parameters": {
                "type": "object",
                "properties": {"q": {"type": "string", "description": "What to look for."}},
                "additionalProperties": False,
            },
            "requiresConfirmation": needs_a_person,
        }  # fmt: skip
        if not needs_a_person:
            schema["waivers"] = {"action-unconfirmed": "A test tool."}
        (folder / "schema.json").write_text(json.dumps(schema))
        (folder / "guide.md").write_text(f"# {name}\n\nDoes what {name} does.\n")
        (folder / "handler.py").write_text(_HANDLER)
    result = build(BuildPlan(tools=tmp_path / "tools", artifact=tmp_path / "tool_registry.json", project=tmp_path))
    write(result, stamp_for(result, {}))
    made = Registry.load(tmp_path / "tool_registry.json")
    made.lock()
    return made


@pytest.fixture
def marks(tmp_path, monkeypatch):
    """`marks()`: how often each call was started since."""
    monkeypatch.setenv("MARKS", str(tmp_path / "marks.txt"))

    def count():
        path = tmp_path / "marks.txt"
        return Counter(json.loads(line)["q"] for line in path.read_text().splitlines()) if path.exists() else {}

    return count


@pytest.fixture(params=VERSIONS)
def old(request, tmp_path):
    """The URL of a file of that version, and what was done in it."""
    path = tmp_path / "store.db"
    with closing(sqlite3.connect(path)) as db:
        db.executescript((DATA / f"version-{request.param}.sql").read_text())
        # Its request was to be answered within minutes of when the file was made.
        db.execute("UPDATE hold SET expires_at = ?", (2**50,))
        db.commit()
    return request.param, f"sqlite:///{path}", json.loads((DATA / f"version-{request.param}.json").read_text())


async def test_calls_of_an_earlier_release_are_answered_and_do_not_run_again(old, registry, marks):
    version, url, done = old
    async with Runtime(registry, store=url) as runtime:
        session = await runtime.resume_session(done["session"][0], token=done["session"][1])
        again = await session.call("pay", {"q": "a"}, call_id="c1")
        assert (again.ok, again.data, again.meta["replayed"]) == (True, {"paid": "a"}, True)
        assert not (await session.call("fail", {"q": "b"}, call_id="c2")).ok
        assert [row.tool for row in await runtime.store.ledger_rows(state=LedgerState.UNKNOWN)] == ["fail"]
        assert marks() == {}
        operating = await runtime.store.operating()
        assert (operating.blocks, operating.switches) == ({("", "cyd"): 2**50}, {"other": "being mended"})
        [bob] = [row for row in await runtime.store.ledger_rows() if row.session_id != session.id]
        assert (bob.user, bob.evicted, bob.envelope) == (None, True, None)
        hold, token = done["request"]
        answer = await runtime.approve(hold, token=token)
        if (
            version == 7
        ):  # that release hashed a tool otherwise: nothing runs by an approval of what may be another tool
            assert kind(answer) == "CONFLICT"
            assert kind(await session.call("wire", {"q": "c"}, call_id="c4")) == "CONFIRMATION_REQUIRED"
            assert marks() == {}
            hold, token = await asked(session)
            answer = await runtime.approve(hold, token=token)
        assert answer.ok
        assert (await runtime.approve(hold, token=token)).ok
        assert marks() == {"c": 1}


async def test_an_upgraded_file_has_no_problem_and_can_be_copied_to_postgresql(old, registry, marks, postgres):
    _, url, done = old
    async with Runtime(registry, store=url):
        pass
    target = postgres.new_database()
    with closing(open_access(url, read_only=False)) as one, closing(open_access(target, read_only=False)) as other:
        assert [found.message for found in check_store(one) if not found.ok] == []
        copy_store(one, other, lambda done, total: None)
    async with Runtime(registry, store=target) as runtime:
        session = await runtime.resume_session(done["session"][0], token=done["session"][1])
        assert (await session.call("pay", {"q": "a"}, call_id="c1")).meta["replayed"]
    assert marks() == {}


def test_no_version_is_left_out():
    """Whoever adds a migration adds a store that it made, so that the next one finds a store of the version before."""
    assert sorted(int(path.stem.removeprefix("version-")) for path in DATA.glob("*.sql")) == sorted(VERSIONS)
    assert max(VERSIONS) == MIGRATIONS[-1].version
