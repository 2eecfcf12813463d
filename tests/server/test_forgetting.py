"""Forgetting a user: what goes, what stays, and that nobody else loses anything."""

import asyncio
import json
import shutil
import sqlite3
import subprocess
import sys
import time
import unicodedata
from base64 import b64encode
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.runtime.kit import PAID, reading, until, writing
from tests.server.kit import KEYS, OPERATOR, OTHER, TOOLS, USER, bearer, in_process
from tests.server.voice.kit import on_the_line, voice_server

import handrail_reference
from handrail.contract.credentials import PendingAuthorization, StoredCredential
from handrail.contract.keys import Key
from handrail.identity.tokens import TokenUser
from handrail.mcp.server.options import McpOptions
from handrail.observe.verify import read_events, verify_directory
from handrail.server.key_ring import hash_of, key_of_token
from handrail.server.stored_keys import add_key
from handrail_reference.services.calendar.caldav_calendar import CalDavCalendar
from handrail_reference.services.calendar.embedded import EmbeddedCalendar
from handrail_reference.services.calendar.google_calendar import GoogleCalendar
from handrail_reference.services.calendar.port import Caller, Draft
from handrail_reference.services.kb.record import KnowledgeRecord
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

WORDS = "the very private words"


async def test_a_forgotten_user_leaves_nothing_that_was_said(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana, bob = await server.open(USER), await server.open(OTHER)
        await ana.say("call note " + json.dumps({"q": WORDS}))
        await ana.say("call pay " + json.dumps({"q": WORDS}))
        request = (await ana.show())["confirmations"][0]
        await bob.say('call note {"q": "bobs words"}')
        answer = await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        assert answer.status_code == 200
        assert answer.json()["deleted"] == {
            "sessions": 1, "calls": 1, "requests": 1, "callsLeft": 0, "conversations": 1, "images": 0, "keys": 0,
            "connections": 0,
        }  # fmt: skip
        assert (await server.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)).status_code == 404
        assert (await ana.decide(request)).status_code == 404
        assert len(server.tools.started()) == 2
        rows = await server.runtime.store.ledger_rows()
        assert {row.user: row.args for row in rows} == {None: "{}", "bob": '{"q":"bobs words"}'}
        assert (await bob.show())["messages"][0]["text"] == 'call note {"q": "bobs words"}'
        said = [
            one
            for one in (await server.get("/api/audit?limit=1000")).json()["events"]
            if one["event"] == "user_forgotten"
        ]
        assert len(said) == 1
        assert "ana" not in json.dumps(said[0])
        again = await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
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
    async with in_process(tmp_path) as server:
        ana = await server.open(USER)
        await ana.say("call note " + json.dumps({"q": WORDS}))
        server.runtime.store._db.execute("UPDATE ledger SET state = 'unknown', envelope = NULL")
        first = (await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))).json()["deleted"]
        assert (first["calls"], first["callsLeft"]) == (0, 1)
        (row,) = (await server.get("/api/ledger?state=unknown")).json()["rows"]
        assert row["args"] == {"q": WORDS}
        await server.post(f"/api/ledger/{row['key']}/settle", {"state": "succeeded"})
        second = (await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))).json()["deleted"]
        assert (second["calls"], second["callsLeft"]) == (1, 0)
        assert (await server.get("/api/ledger")).json()["rows"][0]["args"] == {}


async def test_a_user_whom_another_process_forgets_has_no_session_here(tmp_path):
    from handrail.server.host.forgetting import forget_user

    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        ana, bob = await server.open(USER), await server.open(OTHER)
        await ana.say("hello")
        await forget_user(server.runtime, "", "ana")  # without the talks of this server
        said = await ana.post("are you there?")
        assert (said.status_code, said.json()["error"]["type"]) == (404, "NOT_FOUND")
        assert (await server.client.get(f"/api/sessions/{ana.id}", headers=ana.headers)).status_code == 404
        assert len(server.sessions) == 1
        assert (await bob.post("hello")).status_code == 202
        again = await server.open(USER)
        assert (await again.post("hello")).status_code == 202


async def test_a_user_with_a_slash_in_the_name_is_forgotten(tmp_path):
    async with in_process(tmp_path) as server:
        await server.open(OPERATOR, user="acme/ana")
        answer = await server.client.delete("/api/users/acme%2Fana", headers=bearer(OPERATOR))
        assert answer.json()["user"] == "acme/ana"
        assert answer.json()["deleted"]["conversations"] == 1


async def test_a_block_outlives_being_forgotten(tmp_path):
    from handrail.contract.store import Block

    async with in_process(tmp_path) as server:
        until = await server.runtime.store.now() + 60_000
        await server.runtime.store.block(Block(tenant="", user="ana", until=until))
        await server.client.delete("/api/users/ana", headers=bearer(OPERATOR))
        await server.runtime.housekeeper.learn()
        ana = await server.open(USER)
        events = await ana.say("hello again")
        assert events[-1].data["reason"] == "blocked"


PROMPT = {
    "type": "object", "additionalProperties": False,
    "properties": {"prompt": {"type": "string"}, "size": {"default": "square"}, "count": {"default": 1}},
}  # fmt: skip
DRAW = (Path(handrail_reference.__file__).parent / "tools" / "image-generate" / "handler.py").read_text("utf-8")
DRAW = DRAW.replace("from __future__ import annotations", "")


async def test_personal_records_and_images_go_too(tmp_path):
    from handrail.server.host.forgetting import forget_user
    from handrail_reference.services.images import open_images
    from handrail_reference.services.images.folder import ImageFolder
    from handrail_reference.services.kb.record import KnowledgeRecord
    from handrail_reference.services.kb.record_writes import Tally, put_records
    from handrail_reference.services.kb.service import KnowledgeBase

    kb = KnowledgeBase(tmp_path / "kb.db")
    records = [
        KnowledgeRecord(id=f"note:{owner or 'all'}", type="note", title="t", text="words",
            namespace="personal" if owner else "studio",
               owner=owner, tenant="", source_type="t", source="s", url="", metadata={}, tags=(), last_updated="")
        for owner in ("ana", "bob", "")
    ]  # fmt: skip
    await kb.database.write(lambda db: put_records(db, records, Tally()))
    images = ImageFolder(tmp_path / "images")
    kept = images.save(b"\x89PNG one")
    drawing = open_images(tmp_path)
    tools = {"draw": (reading(capabilities=["images"], parameters=PROMPT), DRAW)}
    more = {"tools": tools, "capabilities": {"images": drawing}, "mcp": McpOptions()}
    async with in_process(tmp_path, **more) as server:
        ana, bob = await server.open(USER), await server.open(OTHER)
        await ana.say(f"look at {kept}")
        drawn = {}
        for name, key in (("hers", USER), ("both", USER), ("both", OTHER), ("seen", USER)):
            answer = await server.mcp("draw", {"prompt": name}, key)
            drawn[name] = answer["result"]["structuredContent"]["data"]["images"][0]["id"]
        await bob.say(f"look at {drawn['seen']}")
        # The calendars of others: what they keep is not ours to delete, so it is said.
        others = {
            one.__name__: SimpleNamespace(not_forgotten=one.not_forgotten) for one in (CalDavCalendar, GoogleCalendar)
        }
        services = {"kb": kb, "images": drawing, **others}
        result = await forget_user(server.runtime, "", "ana", sessions=server.sessions, services=services)
    assert result["deleted"]["records"] == 1
    assert result["elsewhere"] == {name: one.not_forgotten for name, one in others.items()}
    assert "stay" in CalDavCalendar.not_forgotten
    left = await kb.database.read(lambda db: sorted(row[0] for row in db.execute("SELECT id FROM record")))
    assert left == ["note:all", "note:bob"]
    assert images.path_of(kept) is None
    assert {name for name, one in drawn.items() if images.path_of(one)} == {"both", "seen"}
    assert result["deleted"]["images"] == 2
    await kb.close()
    drawing.close()


# --------------------------------------------------------------------------------------------- byte by byte, in all files
NAME = "Zoë Grünwald"
SAID = "mein Geheimnis: Überraschung für Jürgen"
WORD = "geheimni"
"""As the index of the knowledge base has it."""
BLOCKING = """
async def execute(args, ctx):
    import time
    return {"ok": True, "data": {"done": args["q"]}, "intents": [{"type": "BLOCK_USER", "until": time.time() + 600}]}
"""
SIGNED = "eyJ.signed.token"
TASKS = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
LIMITED = {"rateLimit": {"calls": 2, "windowMs": 60_000, "scope": "user"}}


def forms(text: str) -> set[bytes]:
    """How a text may stand in a file."""
    escaped = json.dumps(text)[1:-1]
    found = {text, text.casefold(), unicodedata.normalize("NFD", text), escaped, escaped.upper()}
    coded = {one.encode(coding) for one in found for coding in ("utf-8", "utf-16-le", "utf-16-be", "utf-32-le")}
    return coded | {text.encode("latin-1"), b64encode(text.encode())[:-4], text.encode().hex().encode()}


SEARCH = """
import json, sys
from pathlib import Path
folder, texts = Path(sys.argv[1]), json.load(sys.stdin)
for path in sorted(folder.rglob("*")):
    if path.is_file() and path.relative_to(folder).parts[0] != "project":
        content = path.read_bytes()
        for form in texts:
            if bytes.fromhex(form) in content:
                print(path.name, bytes.fromhex(form))
"""


def traces(folder: Path, *texts: str) -> list[str]:
    """Every file in which one of the texts stands. Looked for by another process: one that has a database open would lose its
    locks by reading the file beside it."""
    wanted = sorted({form.hex() for text in texts for form in forms(text)})
    command = [sys.executable, "-c", SEARCH, str(folder)]
    done = subprocess.run(command, input=json.dumps(wanted).encode(), capture_output=True, timeout=120, check=True)
    return done.stdout.decode().splitlines()


async def filled(server, folder):
    """A user who chats, writes, books, waits for an answer, meets a limit, speaks, has records and is blocked in the end."""
    me = await server.open(OPERATOR, user=NAME)
    await me.say("chatted " + SAID)
    for tool, words in (("note", "noted "), ("look", "looked "), ("pay", "paid "), ("often", "noted ")):
        await me.say(f"call {tool} " + json.dumps({"q": words + SAID}))
    for number in range(3):
        await me.say("call often " + json.dumps({"q": f"{number} {SAID}"}))
    assert (await me.show())["confirmations"]
    async with on_the_line(me) as line:
        await line.send("text", id="v1", text="spoke " + SAID)
        await line.message("turn_done")
        await line.send("end")
        await line.closed()
    calendar = EmbeddedCalendar(folder / "calendar.db", names=("primary",))
    start = datetime(2027, 3, 2, 9, tzinfo=UTC)
    for uid, user, title, people in (
        ("own", NAME, "met " + SAID, ("bob@example.com",)), ("other", "bob", "Plans", ("zoe@example.com",))
    ):  # fmt: skip
        draft = Draft(uid=uid, title=title, start=start, end=start + timedelta(hours=1), attendees=people)
        await calendar.create(draft, caller=Caller(user=user))
        start += timedelta(days=1)
    await calendar.close()
    kb = KnowledgeBase(folder / "kb.db", with_starter=False)
    records = [
        KnowledgeRecord(id=f"note:{owner}", type="note", title=words, text=words, namespace="personal", owner=owner, tenant="",
               source_type="t", source="s", url="", metadata={"of": owner}, tags=(words,), last_updated="")
        for owner, words in ((NAME, "in the knowledge base " + SAID), ("bob", "bobs words"))
    ]  # fmt: skip
    await kb.database.write(lambda db: put_records(db, records, Tally()))
    await kb.close()
    await named_by_the_model(server.runtime)
    await over_mcp(server)
    await me.say("call ban " + json.dumps({"q": "noted " + SAID}))
    return me


async def over_mcp(server):
    """With a key of their own that bears their name: written, approved, large, left as a task; and what others keep of
    them: a voice ticket of their signed token that nobody used, and a connection."""
    made, secret = await add_key(server.runtime.store.keys, name=NAME, role="user", user=NAME)
    server.keys.replace((*KEYS, made))
    for tool in ("note", "look"):
        assert (await server.mcp(tool, {"q": "by a client " + SAID}, secret))["result"]["structuredContent"]
    asked = await server.mcp("pay", {"q": "bought " + SAID}, secret, {"elicitation": {}})
    answered = {"confirmation": {"action": "accept", "content": {"approve": True}}}
    state = {"inputResponses": answered, "requestState": asked["result"]["requestState"]}
    done = await server.mcp("pay", {"q": "bought " + SAID}, secret, {"elicitation": {}}, **state)
    assert done["result"]["structuredContent"]["ok"]
    task = await server.mcp("pay", {"q": "later " + SAID}, secret, TASKS)
    assert task["result"]["resultType"] == "task"
    large = await server.mcp("echo", {"q": SAID * 40}, secret)
    assert large["result"]["content"][1]["type"] == "resource_link"
    token = {"Authorization": f"Bearer {SIGNED}"}
    opened = (await server.client.post("/api/sessions", json={}, headers=token)).json()
    headers = {**token, "X-Session-Token": opened["token"]}
    ticket = await server.client.post(f"/api/sessions/{opened['sessionId']}/voice", json={}, headers=headers)
    assert ticket.status_code == 201, ticket.text
    named = {"tenant": "", "user": NAME, "connection": "mail", "sealed": "x"}
    await server.runtime.store.credentials.put(StoredCredential(**named, key_id="k"))
    pending = PendingAuthorization(digest="d", **named)
    await server.runtime.store.credentials.begin_authorization(pending, lives_for=3_600_000)


async def signed(token):
    """Whom the token of these tests speaks for."""
    assert token == SIGNED
    facts = {"roles": (), "tenant": "", "organisation": "", "expires": time.time() + 3_600}
    return key_of_token("https://issuer.example", TokenUser(user=NAME, **facts))


async def named_by_the_model(runtime):
    """What a model names as it likes: calls, tools that do not exist; and a yes of this user in somebody else's session."""
    session = await runtime.open_session(user=NAME)
    await session.begin_turn(f"m1 {SAID}")  # a client's own id for its message
    for number, tool in enumerate(("look", "note", "pay", SAID, f"{WORD}nis")):
        await session.call(tool, {"q": SAID}, call_id=f"{number} {SAID}", provider=SAID)
    for number, tool in enumerate(("look", "look", "note")):
        await session.call(tool, {"q": f"{number} {SAID}"}, call_id=f"{number} {WORD}", provider=f"{WORD} inc.")
    anonymous = await runtime.open_session()
    await anonymous.begin_turn("m1")
    await anonymous.call("pay", {"q": "x"}, call_id="c1")
    async for event in anonymous.events():
        if event.type == "confirmation":
            break
    assert (await runtime.approve(event.data["id"], token=event.data["token"], approver=NAME)).ok


ECHO = """
async def execute(args, ctx):
    return {"ok": True, "data": args["q"]}
"""
TOOLS_HERE = {
    **TOOLS,
    "echo": (reading(), ECHO),
    "often": (writing(**LIMITED), PAID),
    "ban": (writing(), BLOCKING),
}


AS_SERVED = {
    "audited": True,
    "tools": TOOLS_HERE,
    "tokens": signed,
    "mcp": McpOptions(trusted_clients=(NAME,), max_result_bytes=1_000, task_seconds=60),
}


def settings_of(folder: Path) -> None:
    (folder / "handrail.toml").write_text(
        f'[tools]\nartifact = "project/tool_registry.json"\n[store]\nurl = "sqlite:////{folder}/store.db"\n'
    )


def forget(folder: Path, *words: str) -> dict:
    """`handrail users forget`, as a process of its own."""
    command = [sys.executable, "-m", "handrail", "users", "forget", NAME, "--yes", "--json", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)["deleted"]


async def test_nothing_of_a_forgotten_user_is_in_any_file_while_the_server_runs_and_after(tmp_path):
    settings_of(tmp_path)
    async with voice_server(tmp_path, store=f"sqlite:////{tmp_path}/store.db", **AS_SERVED) as server:
        bob = await server.open(OTHER)
        await bob.say("call note " + json.dumps({"q": "bobs words"}))
        me = await filled(server, tmp_path)
        assert any(line.startswith("kb.db") for line in traces(tmp_path, WORD)), "the index has words, not sentences"
        for text in (NAME, SAID):
            files = {line.split()[0] for line in traces(tmp_path, text)}
            assert files >= {"store.db-wal", "kb.db", "calendar.db"}, "what is there is found"
        async with me.listening() as stream:
            deleted = await asyncio.to_thread(forget, tmp_path)
            assert (deleted["conversations"], deleted["records"], deleted["events"], deleted["keys"]) == (2, 1, 1, 1)
            async with asyncio.timeout(60):
                while await stream.next() is not None:
                    pass  # the server closes it, though another process has forgotten the user
        await until(lambda: me.id not in server.runtime.sessions)
        assert (await me.post("are you there?")).status_code == 404
        await bob.say("call note " + json.dumps({"q": "bobs other words"}))
        await server.runtime.housekeeper.write_behind()
        assert traces(tmp_path, NAME, SAID, WORD) == []
    assert traces(tmp_path, NAME, SAID, WORD) == []
    assert traces(tmp_path, "bobs words")
    assert verify_directory(tmp_path / "audit") == []
    with closing(sqlite3.connect(tmp_path / "store.db")) as db:
        assert db.execute("SELECT count(*) FROM ledger WHERE evicted").fetchone()[0] >= 3, "keys stay"
        assert db.execute("SELECT count(*) FROM forgotten_block").fetchone() == (1,)


async def test_nothing_of_a_forgotten_user_is_in_any_file_of_a_server_that_was_killed(tmp_path):
    settings_of(tmp_path)
    copy = tmp_path / "copy"
    copy.mkdir()
    async with voice_server(tmp_path, store=f"sqlite:////{tmp_path}/store.db", **AS_SERVED) as server:
        await filled(server, tmp_path)
        # What a kill leaves behind: the files as they are, with their logs.
        for path in [*tmp_path.glob("*.db*"), tmp_path / "audit", tmp_path / "project"]:
            if path.is_dir():
                shutil.copytree(path, copy / path.name)
            else:
                shutil.copy(path, copy)
    settings_of(copy)
    assert all(traces(copy, text) for text in (NAME, SAID, WORD))
    await asyncio.to_thread(forget, copy)
    assert traces(copy, NAME, SAID, WORD) == []


async def test_what_an_operator_did_does_not_name_them_once_they_are_forgotten(tmp_path):
    own = "hr_key_of_an_operator_00000001"
    keys = (*KEYS, Key(name=f"{NAME}'s", hash=hash_of(own), role="operator", user=NAME))
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db", audited=True, keys=keys) as server:
        bob = await server.open(OTHER)
        await bob.say('call note {"q": "bobs words"}')
        with closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
            db.execute("UPDATE ledger SET state = 'unknown', envelope = NULL")
        (row,) = (await server.get("/api/ledger?state=unknown")).json()["rows"]
        for path, body in (
            (f"/api/ledger/{row['key']}/settle", {"state": "succeeded"}),
            ("/api/tools/look/switch", {"off": "later"}),
            ("/api/model", {"model": "no-such"}),
        ):
            await server.post(path, body, own)
        assert (await server.client.delete(f"/api/users/{NAME}", headers=bearer(OPERATOR))).status_code == 200
        lines = await asyncio.to_thread(lambda: (server.runtime.audit.flush(), [*read_events(tmp_path / "audit")])[1])
        done = {one["event"]: one["by"] for one in lines if "by" in one}
        assert done == dict.fromkeys(("settled", "switch", "model"), f"{hash_of(own)[:12]}…")
    assert traces(tmp_path, NAME) == []


async def test_a_forgotten_call_is_refused_with_a_sentence_and_never_runs_again(tmp_path):
    tools = {"note": (writing(), PAID)}
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db", tools=tools) as server:
        runtime = server.runtime
        session = await runtime.open_session(user=NAME)
        await session.begin_turn("m1")
        assert (await session.call("note", {"q": SAID}, call_id="c1")).ok
        (before,) = await runtime.store.ledger_rows()
        await runtime.store.forget_user("", NAME)
        for call_id in ("c2", None):  # as another process would, which has not heard of it yet
            answer = await session.call("note", {"q": SAID}, call_id=call_id)
            assert answer.error is None or answer.error.type in ("SESSION_INACTIVE", "CONFLICT"), answer
            assert (
                answer.meta.get("replayed") or "ended" in answer.error.message or "connection" in answer.error.message
            )
        await runtime.housekeeper.learn()
        assert session.id not in runtime.sessions
        answer = await session.call("note", {"q": SAID}, call_id="c3")
        assert (answer.ok, answer.error.type) == (False, "SESSION_INACTIVE")
        (row,) = await runtime.store.ledger_rows()
        assert (row.key, row.args, row.envelope, row.user) == (before.key, "{}", None, None)
        assert len(server.tools.started()) == 1


async def test_a_call_that_runs_while_its_user_is_forgotten_keeps_nothing_when_it_ends(tmp_path):
    store = f"sqlite:////{tmp_path}/store.db"
    async with in_process(tmp_path, store=store) as server:
        session = await server.runtime.open_session(user=NAME)
        await session.begin_turn("m1")
        running = asyncio.create_task(session.call("post", {"q": "20"}, call_id="c1"))
        await until(server.tools.started)
        assert (await server.runtime.store.forget_user("", NAME))["callsLeft"] == 1
        server.tools.go()
        assert (await running).ok
        (row,) = await server.runtime.store.ledger_rows()
        assert (row.state, row.args, row.envelope, row.user) == ("succeeded", "{}", None, None)


LATE = """
async def execute(args, ctx):
    mark(args)
    while not (MARKS.parent / "go").exists():
        await asyncio.sleep(0.005)
    ctx.client.defer()
    await asyncio.sleep(0.02)
    return {"ok": True, "data": args["q"] * 40}
"""


@pytest.mark.parametrize("writes", [False, True])
async def test_what_a_call_over_mcp_stores_after_its_user_was_forgotten_is_stored_nowhere(tmp_path, writes):
    tools = {"late": ((writing if writes else reading)(timeoutMs=20_000, capabilities=["client"]), LATE)}
    mcp = McpOptions(max_result_bytes=1_000)
    keys = (Key(name=NAME, hash=hash_of(USER), user=NAME),)
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db", tools=tools, mcp=mcp, keys=keys) as server:
        calls = [
            asyncio.create_task(server.mcp("late", {"q": f"{n} {SAID}"}, USER, can))
            for n, can in enumerate((TASKS, {}))
        ]
        await until(lambda: len(server.tools.started()) == 2)
        await server.runtime.store.forget_user("", NAME)
        server.tools.go()
        task, large = await asyncio.gather(*calls)
        assert task["result"]["resultType"] == "task", "a task and a large result were to be stored"
        assert large["result"]["content"][1]["type"] == "resource_link"
        await server.mcp("late", {"q": f"again {SAID}"}, USER, TASKS)  # by a process that has not heard of it
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            rows = db.execute("SELECT kind, user, body FROM document").fetchall()
        assert [row for row in rows if row[1] == NAME or SAID in row[2]] == []


async def test_an_operator_reads_what_was_said_until_the_user_is_forgotten(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db", audited=True) as server:
        session = await server.runtime.open_session(user=NAME)
        await session.begin_turn("m1")
        await session.call("look", {"q": SAID}, call_id="c1")
        await session.call("note", {"q": SAID}, call_id="c2")
        await session.call("note", {"q": SAID, "no such": SAID}, call_id="c3")
        lines = (await server.get(f"/api/audit?session={session.id}")).json()["events"]
        assert [one["args"] for one in lines if one["event"] == "execution"] == [{"q": SAID}] * 2
        assert "no such" in (await server.get("/api/audit/why/c3")).json()["sentence"]
        (begun,) = [one for one in lines if one["event"] == "session_start"]
        assert begun["user"].startswith("user_")
        assert (await server.client.delete(f"/api/users/{NAME}", headers=bearer(OPERATOR))).status_code == 200
        after = (await server.get(f"/api/audit?session={session.id}")).json()["events"]
        assert [(one["toolId"], one["erased"]) for one in after if one["event"] == "execution"] == [
            ("look", True), ("note", True)
        ]  # fmt: skip
        assert "what was said is erased" in (await server.get("/api/audit/why/c3")).json()["sentence"]
        (told,) = [one for one in (await server.get("/api/audit")).json()["events"] if one["event"] == "user_forgotten"]
        assert told["user"] == begun["user"]
        again = await server.runtime.open_session(user=NAME)
        assert again.pseudonym not in (None, begun["user"]), "who comes back is somebody new"
    assert verify_directory(tmp_path / "audit") == []


@pytest.mark.parametrize(("how", "seen"), [("plain", True), ("none", False)])
async def test_the_policy_says_how_arguments_stand_in_the_audit(tmp_path, how, seen):
    async with in_process(tmp_path, audited=True, policy={"audit_arguments": how}) as server:
        for user in (NAME, None):
            session = await server.runtime.open_session(user=user)
            await session.begin_turn("m1")
            for tool in ("look", "note"):
                assert (await session.call(tool, {"q": "open words"}, call_id=f"c-{tool}")).ok
    assert bool(traces(tmp_path / "audit", "open words")) is seen
    assert traces(tmp_path / "audit", NAME) == []
    assert len(list(read_events(tmp_path / "audit", event="execution"))) == 4


async def test_a_forgotten_users_address_leaves_the_events_of_others(tmp_path):
    calendar = EmbeddedCalendar(tmp_path / "calendar.db", names=("primary",))
    start = datetime(2027, 3, 2, 9, tzinfo=UTC)
    people = ("zoe@example.com", "jo@example.com")
    draft = Draft(uid="one", title="Plans", start=start, end=start + timedelta(hours=1), attendees=people)
    await calendar.create(draft, caller=Caller(user="bob"))
    assert await calendar.forget_user("Zoe@example.com") == {"events": 0}
    with closing(sqlite3.connect(tmp_path / "calendar.db")) as db:
        lines, attendees = db.execute("SELECT lines, attendees FROM item").fetchone()
    assert ("zoe" in lines, "jo@example.com" in lines, attendees) == (False, True, 1)
    await calendar.close()


async def test_a_block_is_kept_under_a_hash_unless_the_policy_drops_it(tmp_path):
    from handrail.contract.store import Block

    for rule, blocked in (("keep", True), ("drop", False)):
        folder = tmp_path / rule
        folder.mkdir()
        async with in_process(folder, store=f"sqlite:////{folder}/store.db", policy={"forget_blocks": rule}) as server:
            until = await server.runtime.store.now() + 60_000
            await server.runtime.store.block(Block(tenant="", user=NAME, until=until))
            await server.client.delete(f"/api/users/{NAME}", headers=bearer(OPERATOR))
            assert traces(folder, NAME) == []
            session = await server.runtime.open_session(user=NAME)
            await session.begin_turn("m1")
            assert (await session.call("look", {"q": "x"}, call_id="c1")).ok is not blocked


async def test_a_process_that_has_not_heard_of_it_writes_nothing_of_the_session_back(tmp_path):
    async with in_process(tmp_path, store=f"sqlite:////{tmp_path}/store.db") as server:
        runtime = server.runtime
        session = await runtime.open_session(user=NAME, attributes={"of": NAME})
        await session.begin_turn("m1")
        await runtime.store.forget_user("", NAME)
        session.attributes = {"of": SAID}
        session.state.set("pendingMessage", SAID)
        await runtime.save(session)
        assert (await runtime.store.begin_turn(session.id, connection=session.connection, input_id=SAID)).turn == 0
        held = await session.call("pay", {"q": SAID}, call_id="c1")
        assert not held.ok
        record = await runtime.store.load_session(session.id)
        assert (record.user, record.attributes, record.state, record.active) == (None, {}, {}, False)
        with closing(sqlite3.connect(tmp_path / "store.db")) as db:
            rows = [
                str(row)
                for table in ("session", "hold", "turn_input", "ledger")
                for row in db.execute(f"SELECT * FROM {table}")
            ]
        assert not any(SAID in row or NAME in row for row in rows)


def test_what_was_deleted_is_in_no_unused_page_whatever_the_database_does_by_itself(tmp_path):
    from handrail.sqlite_files import scrub

    path = tmp_path / "some.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as db:
        for statement in ("secure_delete = OFF", "journal_mode = WAL"):
            db.execute(f"PRAGMA {statement}")
        db.execute("CREATE TABLE said (words TEXT)")
        db.executemany("INSERT INTO said VALUES (?)", [(f"{number} {SAID}",) for number in range(2_000)])
        db.execute("DELETE FROM said")
        db.execute("PRAGMA wal_checkpoint(FULL)")
        assert traces(tmp_path, SAID)
        scrub(path)  # while somebody has it open
        assert traces(tmp_path, SAID) == []
