"""Forgetting a user: what goes, what stays, and that nobody else loses anything."""

import json
import sqlite3
from pathlib import Path

from tests.server.kit import OPERATOR, OTHER, USER, at_desk, bearer

WORDS = "the very private words"


async def test_a_forgotten_user_leaves_nothing_that_was_said(tmp_path):
    async with at_desk(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as desk:
        ana, bob = await desk.open(USER), await desk.open(OTHER)
        await ana.say("call note " + json.dumps({"q": WORDS}))
        await ana.say("call pay " + json.dumps({"q": WORDS}))
        request = (await ana.show())["confirmations"][0]
        await bob.say('call note {"q": "bobs words"}')
        answer = await desk.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert answer.status_code == 200
        assert answer.json()["deleted"] == {
            "sessions": 1, "calls": 1, "requests": 1, "callsLeft": 0, "conversations": 1, "images": 0, "records": 0,
        }  # fmt: skip
        assert (await desk.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)).status_code == 404
        assert (await ana.decide(request)).status_code == 404
        assert len(desk.tools.started()) == 2
        rows = await desk.runtime.store.ledger_rows()
        assert {row.user: row.args for row in rows} == {None: "{}", "bob": '{"q":"bobs words"}'}
        assert (await bob.show())["messages"][0]["text"] == 'call note {"q": "bobs words"}'
        said = [
            one
            for one in (await desk.get("/api/audit?limit=1000")).json()["events"]
            if one["event"] == "user_forgotten"
        ]
        assert len(said) == 1
        assert "ana" not in json.dumps(said[0])
        again = await desk.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert set(again.json()["deleted"].values()) == {0}
    assert readable(tmp_path, "bobs words") > 0
    assert readable(tmp_path, WORDS) == 0


def readable(folder: Path, words: str) -> int:
    """How many rows of the files have these words."""
    found = 0
    for path in folder.glob("*.db"):
        db = sqlite3.connect(path)
        tables = [row[0] for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        for table in tables:
            found += sum(words in str(row) for row in db.execute(f"SELECT * FROM {table}"))
        db.close()
    return found


async def test_an_outcome_that_is_not_known_is_left_until_it_is_settled(tmp_path):
    async with at_desk(tmp_path) as desk:
        ana = await desk.open(USER)
        await ana.say("call note " + json.dumps({"q": WORDS}))
        desk.runtime.store._db.execute("UPDATE ledger SET state = 'unknown', envelope = NULL")
        first = (await desk.client.delete("/api/users/ana", headers=bearer(OPERATOR))).json()["deleted"]
        assert (first["calls"], first["callsLeft"]) == (0, 1)
        (row,) = (await desk.get("/api/ledger?state=unknown")).json()["rows"]
        assert row["args"] == {"q": WORDS}
        await desk.post(f"/api/ledger/{row['key']}/settle", {"state": "succeeded"})
        second = (await desk.client.delete("/api/users/ana", headers=bearer(OPERATOR))).json()["deleted"]
        assert (second["calls"], second["callsLeft"]) == (1, 0)
        assert (await desk.get("/api/ledger")).json()["rows"][0]["args"] == {}


async def test_a_user_whom_another_process_forgets_has_no_session_here(tmp_path):
    from handrail.server.conversations import Conversations
    from handrail.server.forgetting import forget_user

    async with at_desk(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as desk:
        ana, bob = await desk.open(USER), await desk.open(OTHER)
        await ana.say("hello")
        beside = Conversations(tmp_path / "conversations.db")
        await beside.open()
        await forget_user(desk.runtime, beside, "", "ana")  # without the talks of this server
        await beside.close()
        said = await ana.post("are you there?")
        assert (said.status_code, said.json()["error"]["type"]) == (410, "ENDED")
        assert (await desk.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)).status_code == 404
        assert len(desk.talks) == 1
        assert (await bob.post("hello")).status_code == 202
        again = await desk.open(USER)
        assert (await again.post("hello")).status_code == 202


async def test_a_user_with_a_slash_in_the_name_is_forgotten(tmp_path):
    async with at_desk(tmp_path) as desk:
        await desk.open(OPERATOR, user="acme/ana")
        answer = await desk.client.delete("/api/users/acme%2Fana", headers=bearer(OPERATOR))
        assert answer.json()["user"] == "acme/ana"
        assert answer.json()["deleted"]["conversations"] == 1


async def test_a_block_outlives_being_forgotten(tmp_path):
    from handrail.contract.store import Block

    async with at_desk(tmp_path) as desk:
        until = await desk.runtime.store.now() + 60_000
        await desk.runtime.store.block(Block(tenant="", user="ana", until=until))
        await desk.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        await desk.runtime.housekeeper.learn()
        ana = await desk.open(USER)
        events = await ana.say("hello again")
        assert events[-1].data["reason"] == "blocked"


async def test_personal_records_and_images_go_too(tmp_path):
    from handrail.server.forgetting import forget_user
    from handrail.services.images.folder import ImageFolder
    from handrail.services.kb.record import Record
    from handrail.services.kb.service import KnowledgeBase
    from handrail.services.kb.writing import Tally, put_records

    kb = KnowledgeBase(tmp_path / "kb.db")
    records = [
        Record(id=f"note:{owner or 'all'}", type="note", title="t", text="words", namespace="personal" if owner else "studio",
               owner=owner, tenant="", source_type="t", source="s", url="", metadata={}, tags=(), last_updated="")
        for owner in ("ana", "bob", "")
    ]  # fmt: skip
    await kb.database.write(lambda db: put_records(db, records, Tally()))
    images = ImageFolder(tmp_path / "images")
    kept = images.save(b"\x89PNG one")
    async with at_desk(tmp_path) as desk:
        ana = await desk.open(USER)
        await ana.say(f"look at {kept}")
        result = await forget_user(
            desk.runtime, desk.talks.conversations, "", "ana", talks=desk.talks, kb=kb, images=images
        )
    assert result["deleted"]["records"] == 1
    left = await kb.database.read(lambda db: sorted(row[0] for row in db.execute("SELECT id FROM record")))
    assert left == ["note:all", "note:bob"]
    assert images.path_of(kept) is None
    await kb.close()
