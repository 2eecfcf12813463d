"""What makes two calls the same call; and which turn and connection a call belongs to."""

import asyncio
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.runtime.kit import FOUND, PAID, PATIENT, Tools, audited, kind, reading, until, utility, writing

from handrail import Call, HandrailError
from handrail.contract.errors import RegistryError
from handrail.registry import Registry
from handrail.runtime.known_calls import hash_key, id_key, id_of_key, ledger_key
from handrail.schema.strict_json import canonical
from handrail.testing import ScriptedModel, settle

TOOLS = {"look": (reading(), FOUND), "note": (utility(), FOUND), "pay": (writing(), PAID)}

MANY = {"identical_calls": 10}
"""So that three identical calls are no loop."""


async def pay(session, call_id=None, q="a", **facts):
    return await session.call("pay", {"q": q}, call_id=call_id, **facts)


async def resumed(session, runtime=None, **facts):
    return await (runtime or session.core).resume_session(session.id, token=session.token, **facts)


# Keys


def test_the_key_of_a_call_is_as_the_contract_writes_it():
    assert id_key(Call(name="x", call_id="c1"), 3) == "provider:c1"
    assert id_key(Call(name="x", call_id="c1", id_scope="connection"), 3) == "provider:3:c1"
    assert id_key(Call(name="x", call_id="c1", id_scope="none"), 3) is None
    assert id_key(Call(name="x", call_id="c1", id_scope="message"), 3) is None
    assert id_key(Call(name="x"), 3) is None
    digest = sha256(canonical({"tool": "x", "args": {"b": 1, "a": 2}, "turn": 4})).hexdigest()[:16]
    assert hash_key("x", canonical({"a": 2, "b": 1}), 4) == f"hash:4:{digest}"
    assert len(ledger_key("t", "s", 1, "x", "d", 1)) == 64


IDS = st.text("0123456789:c", min_size=1, max_size=6)
NAMED = st.tuples(IDS, st.sampled_from(["session", "connection"]), st.integers(1, 12))


@given(NAMED, NAMED)
@example(("1:call_7", "session", 3), ("call_7", "connection", 1))
@example((":1:c", "session", 1), ("1:c", "session", 1))
@example(("c:1", "session", 1), ("c1", "session", 1))
def test_no_two_calls_have_one_key_by_their_ids(one, other):
    keys = [id_key(Call(name="x", call_id=call_id, id_scope=scope), number) for call_id, scope, number in (one, other)]
    same = one[:2] == other[:2] and (one[1] == "session" or one[2] == other[2])
    assert (keys[0] == keys[1]) is same
    assert [id_of_key(key) for key in keys] == [one[0], other[0]], "the id is found in its key again"


@pytest.mark.parametrize(
    ("first", "second", "runs"),
    [
        (("r1", "call_0"), ("r1", "call_0"), 1),
        (("r1", "call_0"), ("r2", "call_0"), 2),
        (("r1", "call_0"), (None, "call_0"), 1),
        ((None, "call_0"), ("r2", "call_0"), 1),
        ((None, "call_0"), (None, "call_0"), 1),
        (("r1", "call_0"), ("r1", "call_1"), 2),
        ((None, "call_0"), (None, "call_1"), 2),
        (("call_1", "call_0"), ("call_1", "call_1"), 2),
        (("call_0", "call_0"), ("r1", "call_0"), 2),
        (("r1", "call_0"), ("call_0", "call_0"), 2),
    ],
)
async def test_a_call_of_a_message_is_the_same_where_id_and_message_may_be_the_same(make_tools, first, second, runs):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        answers = [
            await pay(session, call_id, id_scope="message", response_id=message) for message, call_id in (first, second)
        ]
        assert [answer.ok for answer in answers] == [True, True]
        assert world.starts == runs
        assert (answers[1].meta.get("replayed") is True) is (runs == 1)


async def test_a_call_of_a_message_is_another_than_one_of_the_session(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        assert (await pay(session, "call_0")).ok
        assert (await pay(session, "call_0", id_scope="message", response_id="r1")).ok
        assert world.starts == 2


async def test_identical_calls_of_a_turn_are_numbered_from_one(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(runtime=world.runtime(policy=MANY))
        for number in range(3):
            assert (await pay(session, f"c{number}")).ok
        rows = await world.store.ledger_rows(limit=10)
        assert [row.ordinal for row in reversed(rows)] == [1, 2, 3], "another process finds each by its number"


async def test_an_id_of_the_session_that_looks_like_one_of_a_connection_is_another_call(make_tools):
    async with make_tools({"pay": (writing(), PAID)}, store="sqlite") as world:
        session = await world.session()
        assert (await session.call("pay", {"q": "a"}, call_id="call_7", id_scope="connection")).ok
        assert (await session.call("pay", {"q": "b"}, call_id="1:call_7")).ok
        assert kind(await session.call("pay", {"q": "a"}, call_id="1:call_7")) == "CONFLICT"
        assert (await session.call("pay", {"q": "b"}, call_id="1:call_7")).meta["replayed"]
        resumed = await session.core.resume_session(session.id, token=session.token, restored_calls=["1:call_7"])
        assert (await resumed.call("pay", {"q": "b"}, call_id="1:call_7")).meta["replayed"]
        assert world.starts == 2


def test_no_part_of_a_ledger_key_can_pass_for_another():
    keys = [
        ledger_key("t", "s", 1, "x", "d", 1),
        ledger_key("ts", "", 1, "x", "d", 1),
        ledger_key("t", "s", 11, "x", "d", 1),
        ledger_key("t", "s", 1, "xd", "", 1),
        ledger_key("t", "s", 1, "x", "d", 2),
    ]
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize("call_id", [7, "\ud800", ["c"]])
async def test_an_id_that_cannot_be_kept_is_no_stable_id(make_tools, call_id):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        assert (await session.call("note", {"q": "a"}, call_id=call_id)).ok
        assert (await session.call("note", {"q": "a"}, call_id=call_id)).meta["replayed"]
        assert (await session.call("pay", {"q": "a"}, call_id=call_id)).ok


async def test_two_identical_calls_with_ids_of_their_own_both_run(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        first, second = await pay(session, "1"), await pay(session, "2")
        assert world.starts == 2
        assert first.data["key"] != second.data["key"]
        assert "replayed" not in second.meta


async def test_two_identical_calls_at_the_same_time_both_run(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await asyncio.gather(pay(session, "1"), pay(session, "2"))
        assert world.starts == 2


async def test_a_writing_call_without_an_id_runs_once_in_its_turn(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        answers = await asyncio.gather(*(pay(session) for _ in range(5)))
        assert world.starts == 1
        assert len({answer.data["key"] for answer in answers}) == 1
        assert sum("replayed" in answer.meta for answer in answers) == 4
        await session.begin_turn("m2")
        assert "replayed" not in (await pay(session)).meta
        assert world.starts == 2
        assert audited(session.core, "execution")[0]["idempotencyKey"].startswith("hash:1:")


async def test_a_tool_may_name_the_fields_that_make_two_calls_the_same(make_tools):
    parameters = {
        "type": "object",
        "properties": {"to": {"type": "string"}, "text": {"type": "string"}},
        "required": ["to", "text"],
        "additionalProperties": False,
    }
    fields = writing(parameters=parameters, dedupeFields=["to"])
    async with make_tools({"send": (fields, PAID)}) as world:
        session = await world.session()
        await session.call("send", {"to": "ana", "text": "Hello"})
        assert (await session.call("send", {"to": "ana", "text": "Hello!"})).meta["replayed"]
        assert "replayed" not in (await session.call("send", {"to": "ben", "text": "Hello"})).meta
        assert world.starts == 2


async def test_the_same_call_under_a_new_id_after_a_reconnect_meets_its_first_execution(make_tools):
    async with make_tools(TOOLS) as world:
        first = await world.session()
        answer = await pay(first, "1")
        session = await resumed(first)
        again = await pay(session, "2")
        assert again.data == answer.data
        assert again.meta["replayed"] is True
        assert world.starts == 1
        assert (await pay(session, "2")).meta["replayed"], "the new id stands for it too"
        assert world.starts == 1


@pytest.mark.parametrize("same_process", [True, False])
async def test_calls_that_the_model_remembers_have_taken_their_ordinals(make_tools, same_process):
    async with make_tools(TOOLS) as world:
        session = await world.session(policy=MANY)
        await pay(session, "functions.pay:0")
        await pay(session, "2")
        runtime = session.core if same_process else world.runtime()
        session = await resumed(session, runtime, restored_calls=["functions.pay:0", "2", "nobody"], policy=MANY)
        assert "replayed" not in (await pay(session, "3")).meta
        assert world.starts == 3


async def test_a_call_that_was_replayed_takes_an_ordinal_too_and_is_remembered(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(policy=MANY)
        await pay(session, "1")
        session = await resumed(session)
        assert (await pay(session, "2")).meta["replayed"]
        second = await pay(session, "3")
        assert "replayed" not in second.meta, "the second one on this connection is another"
        session = await resumed(session, world.runtime(), restored_calls=["2"], policy=MANY)
        assert (await pay(session, "4")).data == second.data, "it meets the second execution"
        assert (await pay(session, "2")).meta["replayed"]
        assert "replayed" not in (await pay(session, "5")).meta
        assert world.starts == 3


async def test_a_replay_under_another_id_names_the_first(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await pay(session, "1")
        assert "duplicateOf" not in (await pay(session, "1")).meta
        await session.begin_turn("m1")
        assert (await pay(session, "2")).meta["duplicateOf"] == "1"


async def test_ids_that_are_stable_for_a_connection_mean_nothing_on_the_next(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await session.call("note", {"q": "a"}, call_id="1", id_scope="connection")
        assert (await session.call("note", {"q": "a"}, call_id="1", id_scope="connection")).meta["replayed"]
        session = await resumed(session)
        response = await session.call("note", {"q": "b"}, call_id="1", id_scope="connection")
        assert response.ok
        assert audited(session.core, "execution")[-1]["idempotencyKey"] == "provider:2:1"


@pytest.mark.parametrize("error", ["TRANSIENT", "TIMEOUT", "CANCELLED"])
async def test_a_writing_call_that_meets_a_passing_failure_takes_the_next_ordinal(make_tools, error):
    source = f"""
async def execute(args, ctx):
    mark(args)
    if len(MARKS.read_text().splitlines()) < 2:
        raise ToolError("{error}", "Later.")
    return {{"ok": True, "data": 1}}
"""
    async with make_tools({"pay": (writing(), source)}) as world:
        session = await world.session()
        assert kind(await pay(session)) == error
        assert (await pay(session)).ok
        assert (await pay(session)).meta["replayed"]
        assert world.starts == 2


async def test_a_failure_with_side_effects_or_for_good_is_replayed(make_tools):
    source = (
        "async def execute(args, ctx):\n    mark(args)\n"
        "    raise ToolError(args['q'], 'No.', partial_side_effects=args['q'] != 'PERMANENT')"
    )
    async with make_tools({"pay": (writing(), source)}) as world:
        session = await world.session()
        for q in ("TRANSIENT", "PERMANENT"):
            await pay(session, q=q)
            assert (await pay(session, q=q)).meta["replayed"]
        assert world.starts == 2


async def test_after_an_unknown_outcome_that_outcome_answers(make_tools):
    source = "async def execute(args, ctx):\n    mark(args)\n    raise RuntimeError('who knows')"
    async with make_tools({"pay": (writing(), source)}) as world:
        session = await world.session()
        first = await pay(session, "1")
        assert (kind(first), first.error.partial_side_effects) == ("INTERNAL", True)
        for call_id in ("1", "2", None):
            again = await pay(session, call_id)
            assert (kind(again), again.error.partial_side_effects) == ("CONFLICT", True)
        session = await resumed(session, world.runtime())
        assert kind(await pay(session, "3")) == "CONFLICT"
        assert world.starts == 1
        rows = await world.store.ledger_rows()
        assert [row.state.value for row in rows] == ["unknown"]


async def test_an_unknown_outcome_that_was_settled_is_the_answer_from_then_on(make_tools):
    source = """
async def execute(args, ctx):
    mark(args)
    raise RuntimeError("who knows")
async def reconcile(args, ctx):
    return {"ok": True, "data": {"found": args["q"], "key": ctx.idempotency_key}}
"""
    async with make_tools({"pay": (writing(), source)}) as world:
        from handrail.runtime.reconcile import reconcile

        session = await world.session()
        await pay(session, "1")
        (row,) = await world.store.ledger_rows()
        settled = await reconcile(session.core, row)
        assert settled.state.value == "succeeded"
        for call_id in ("1", "2"):
            again = await pay(session, call_id)
            assert again.data == {"found": "a", "key": row.key}
            assert again.meta["replayed"]
        assert world.starts == 1


async def test_an_error_that_a_handler_names_itself_is_not_unknown(make_tools):
    source = "async def execute(args, ctx):\n    mark(args)\n    raise ToolError('INTERNAL', 'Nothing was done.')"
    async with make_tools({"pay": (writing(), source)}) as world:
        session = await world.session()
        await pay(session, "1")
        assert [row.state.value for row in await world.store.ledger_rows()] == ["failed"]


# Turns


async def test_a_resent_message_keeps_its_turn_and_its_counters(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        assert await session.begin_turn("m1") == 1
        await session.call("look", {"q": "a"})
        assert await session.begin_turn("m1") == 1
        assert (await session.call("look", {"q": "b"})).meta["budget"] == {"retrieval": 3}
        assert await session.begin_turn("m2") == 2
        assert await session.begin_turn("m1") == 1, "also after the next one has begun"
        assert await session.begin_turn() == 3
        assert await session.begin_turn() == 4


async def test_a_message_that_is_answered_anew_does_not_write_anew(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await pay(session, "1")
        await session.begin_turn("m2")
        await session.begin_turn("m1")
        assert (await pay(session, "9")).meta["replayed"]
        assert world.starts == 1


async def test_a_call_before_any_turn_opens_one_and_a_call_after_its_end_belongs_to_it(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.runtime().open_session()
        await session.call("look", {"q": "a"})
        assert session.turn.number == 1
        await session.end_turn()
        await session.end_turn()
        assert (await session.call("look", {"q": "b"})).meta["budget"] == {"retrieval": 3}
        assert await session.begin_turn("m2") == 2
        assert [event["turnId"] for event in audited(session.core, "turn_summary")] == [1]


async def test_a_scripted_model_plays_turns_against_a_session(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.runtime().open_session(mode="voice")
        look = [Call(name="look", args={"q": str(number)}) for number in range(3)]
        answers = await ScriptedModel([[look], [look[:1], look[1:2]]]).play(session)
        assert [[kind(one) for one in turn] for turn in answers] == [[None, None, "BUDGET_EXCEEDED"], [None, None]]


# Connections


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_resumed_session_goes_on_in_the_same_turn_with_the_same_counters(make_tools, same_process):
    async with make_tools(TOOLS) as world:
        first = await world.session(mode="voice", user="u1", tenant="t", attributes={"plan": "pro"})
        await first.call("look", {"q": "a"})
        await first.call("look", {"q": "b"})
        if not same_process:
            await first.core.housekeeper.write_behind()
        session = await resumed(first, None if same_process else world.runtime())
        assert (session.connection, session.turn.number, session.mode) == (2, 1, "voice")
        assert (session.user, session.tenant, session.attributes) == ("u1", "t", {"plan": "pro"})
        assert kind(await session.call("look", {"q": "c"})) == "BUDGET_EXCEEDED"
        assert await session.begin_turn("m1") == 1


@pytest.mark.parametrize("same_process", [True, False])
async def test_a_reconnect_forgets_neither_loops_nor_empty_results(make_tools, same_process):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        await session.call("note", {"q": "a"}, call_id="1")
        await session.call("note", {"q": "a"}, call_id="2")
        if not same_process:
            await session.core.housekeeper.write_behind()
        session = await resumed(session, None if same_process else world.runtime())
        assert kind(await session.call("note", {"q": "a"}, call_id="3")) == "LOOP_DETECTED"


SLOWLY_NOTHING = """
async def execute(args, ctx):
    await ctx.gate.wait()
    return {"ok": True, "data": {"results": []}}
"""


async def test_another_process_knows_what_was_refused_though_nothing_else_was_written_since(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for _ in range(2):
            await session.core.housekeeper.write_behind()
            await session.call("nobody", {})
            await session.core.housekeeper.write_behind()
            await session.call("note", "{")
        await session.call("note", {"q": 1})
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime())
        assert kind(await session.call("nobody", {})) == "LOOP_DETECTED", "the sixth refusal of this turn"


async def test_another_process_knows_what_was_found_empty_after_a_long_wait(make_tools):
    async with make_tools({"look": (reading(), SLOWLY_NOTHING)}) as world:
        gate = asyncio.Event()
        session = await world.session(runtime=world.runtime(capabilities={"gate": gate}))
        searches = [asyncio.create_task(session.call("look", {"q": q})) for q in ("a", "b")]
        await settle()
        await session.core.housekeeper.write_behind()
        gate.set()
        await asyncio.gather(*searches)
        await session.core.housekeeper.write_behind()
        session = await resumed(session, world.runtime(capabilities={"gate": gate}))
        assert kind(await session.call("look", {"q": "c"})) == "LOOP_DETECTED"


async def test_a_session_that_another_process_has_resumed_refuses_its_calls_here(make_tools):
    async with make_tools(TOOLS) as world:
        old = await world.session()
        new = await resumed(old, world.runtime())
        assert kind(await pay(old, "1")) == "CONFLICT"
        assert kind(await old.call("note", {})) == "CONFLICT"
        assert world.starts == 0
        await old.close()
        assert (await pay(new, "1")).ok, "an old connection cannot end the session"


async def test_a_session_that_comes_back_from_another_process_is_a_new_object(make_tools):
    async with make_tools(TOOLS) as world:
        old = await world.session()
        back = await resumed(await resumed(old, world.runtime()), old.core)
        assert back is not old, "what this process knew of it is old"
        assert kind(await old.call("note", {}, call_id="n1")) == "CONFLICT", "replaced for good"
        assert (await back.call("note", {}, call_id="n1")).ok


async def test_a_session_stays_one_object_and_refuses_the_calls_of_connections_before(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        assert await session.begin_turn("m1") == 1
        first = session.connection
        assert await resumed(session) is session
        assert (session.connection, first) == (2, 1)
        assert not first.is_current
        assert kind(await pay(session, "1", connection=first)) == "CONFLICT"
        assert kind(await session.call("note", {}, call_id="n1", connection=first)) == "CONFLICT"
        calls = [Call("note", {}, "n2", connection=first), Call("note", {}, "n3")]
        assert [kind(answer) for answer in await session.call_many(calls)] == ["CONFLICT", None]
        assert await first.begin_turn("m2") == 1, "it cannot begin turns either"
        lines = audited(session.core, "refusal")
        assert {line["connection"] for line in lines} == {1}, "a refusal names the connection that its call came on"
        assert (await pay(session, "1")).ok
        assert await session.begin_turn("m2") == 2


async def test_calls_that_wait_in_their_message_belong_to_the_connection_they_came_on(make_tools):
    source = PAID.replace("mark(args)", "mark(args)\n    await asyncio.sleep(0.1)")
    async with make_tools({**TOOLS, "pay": (writing(), source)}) as world:
        session = await world.session()
        message = session.call_many([Call("pay", {"q": "a"}, "c1"), Call("pay", {"q": "b"}, "c2")])
        task = asyncio.create_task(message)
        await until(lambda: world.starts)
        await resumed(session)
        assert [kind(answer) for answer in await task] == [None, "CONFLICT"]
        assert world.starts == 1


async def test_whatever_is_begun_while_a_session_is_resumed_here_does_not_lose_it(make_tools, monkeypatch):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        connect = session.core.store.connect

        async def heard_late(*args, **facts):
            number = await connect(*args, **facts)
            await asyncio.sleep(0.01)  # others hear of the next connection before whoever has made it
            return number

        monkeypatch.setattr(session.core.store, "connect", heard_late)
        for number in range(1, 9):
            before = session.connection
            turn, called, *_ = await asyncio.gather(
                session.begin_turn(f"m{number}"), pay(session, f"c{number}"), resumed(session), resumed(session)
            )
            assert (session.connection, session.is_taken_over) == (before + 2, False)
            assert turn == session.turn.number == number, "an input is not lost to a reconnect"
            assert kind(called) in (None, "CONFLICT")
            assert (await pay(session, f"d{number}")).ok


async def test_a_handler_that_has_started_settles_although_its_connection_is_gone(make_tools):
    source = """
async def execute(args, ctx):
    mark(args)
    await asyncio.sleep(0.1)
    return {"ok": True, "data": "done", "intents": [{"type": "SET_PENDING_MESSAGE", "message": "hi"}]}
"""
    async with make_tools({"pay": (writing(), source)}) as world:
        old = await world.session()
        task = asyncio.create_task(pay(old, "1"))
        await until(lambda: world.starts)
        session = await resumed(old)
        again = await pay(session, "1")
        assert again.data == "done"
        assert again.meta["replayed"]
        assert (await task).ok
        assert session.state.get("pendingMessage") == "hi"
        assert world.starts == 1


async def test_a_call_that_runs_in_another_process_is_waited_for(make_tools):
    async with make_tools({"pay": (writing(), PATIENT)}, store="sqlite") as world:
        old = await world.session()
        task = asyncio.create_task(pay(old, "1"))
        await until(lambda: world.starts)
        session = await resumed(old, world.runtime())
        look, waiting = world.store.ledger_row, set()

        async def looked_at(key):
            waiting.add(asyncio.current_task())
            return await look(key)

        world.store.ledger_row = looked_at
        both = asyncio.gather(pay(session, "1"), pay(session, "2"))
        await until(lambda: len(waiting) == 2)
        world.go()
        by_id, by_key = await both
        assert by_id.data == by_key.data == {"done": "a"}
        assert by_id.meta["replayed"]
        assert by_key.meta["replayed"]
        await task
        assert world.starts == 1


async def test_a_wrong_token_or_id_resumes_nothing(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        for session_id, token in [(session.id, "x"), ("ses_0", session.token), (session.id, None), ("\ud800", "x")]:
            with pytest.raises(HandrailError, match="no such session"):
                await session.core.resume_session(session_id, token=token)
        await session.close()
        with pytest.raises(HandrailError, match="ended"):
            await resumed(session)


# Versions


async def test_a_reload_in_development_is_a_conflict_until_the_session_is_resumed(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        assert (await session.call("note", {"q": "a"})).ok
        world.tools.write({"note": (utility(version="1.1.0"), FOUND)})
        world.tools.rebuild()
        world.registry.reload()
        response = await session.call("note", {"q": "b"})
        assert kind(response) == "CONFLICT"
        assert "resume" in response.error.message
        assert kind(await pay(session)) == "CONFLICT"
        session = await resumed(session)
        assert (await session.call("note", {"q": "b"})).meta["toolVersion"] == "1.1.0"
        assert audited(session.core, "session_repinned")[-1]["previousVersion"] != world.registry.version


async def test_a_reload_that_changes_nothing_disturbs_nobody(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        world.registry.reload()
        assert (await session.call("note", {"q": "a"})).ok


async def test_a_session_resumed_in_a_process_of_another_version_is_pinned_to_that_one(make_tools, tmp_path):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        newer = Tools(tmp_path / "newer")
        newer.write({**TOOLS, "note": (utility(version="2.0.0"), FOUND)})
        from handrail import Runtime

        runtime = Runtime(newer.build(), store=world.store)
        world.runtimes.append(runtime)
        session = await resumed(session, runtime)
        assert (await session.call("note", {})).meta["toolVersion"] == "2.0.0"
        assert audited(runtime, "session_repinned")


# The four chaos scenarios of the seeds, restated for the contract


async def test_chaos_1_a_replay_after_a_reconnect_gives_the_stored_envelope(make_tools):
    async with make_tools({"kb_search": (reading(), FOUND)}) as world:
        session = await world.session(mode="voice")
        first = await session.call("kb_search", {"q": "hours"}, call_id="c1")
        session = await resumed(session)
        assert await session.begin_turn("m1") == 1
        by_id = await session.call("kb_search", {"q": "hours"}, call_id="c1")
        assert by_id.meta["replayed"]
        assert by_id.data == first.data
        assert world.starts == 1


async def test_chaos_2_a_provider_with_unstable_ids_is_keyed_by_turn_and_content(make_tools):
    async with make_tools({"kb_search": (reading(), FOUND)}) as world:
        session = await world.session(mode="voice")
        await session.call("kb_search", {"q": "hours"}, id_scope="none")
        other_id = await session.call("kb_search", {"q": "hours"}, call_id="whatever", id_scope="none")
        assert other_id.meta["replayed"]
        first_key = audited(session.core, "execution")[-1]["idempotencyKey"]
        await session.begin_turn("m2")
        assert (await session.call("kb_search", {"q": "hours"}, id_scope="none")).ok
        assert audited(session.core, "execution")[-1]["idempotencyKey"] != first_key
        assert world.starts == 2


async def test_chaos_3_a_version_change_stops_development_and_not_production(make_tools, monkeypatch):
    async with make_tools({"note": (utility(), FOUND)}) as world:
        session = await world.session()
        monkeypatch.setenv("HANDRAIL_ENV", "production")
        production = Registry.load(world.tools.artifact)
        production.lock()
        from handrail import Runtime

        runtime = Runtime(production, store="memory:")
        world.runtimes.append(runtime)
        live = await runtime.open_session()
        world.tools.write({"note": (utility(version="1.1.0"), FOUND)})
        world.tools.rebuild()
        world.registry.reload()
        assert kind(await session.call("note", {})) == "CONFLICT"
        with pytest.raises(RegistryError):
            production.reload()
        assert (await live.call("note", {})).meta["toolVersion"] == "1.0.0", "it continues with its snapshot"


async def test_chaos_4_a_voice_turn_that_wants_too_much_is_told_so(make_tools):
    async with make_tools({"kb_search": (reading(), FOUND), "note": (utility(), FOUND)}) as world:
        session = await world.session(mode="voice")
        kinds = [kind(await session.call("kb_search", {"q": q}, call_id=q)) for q in "abc"]
        assert kinds == [None, None, "BUDGET_EXCEEDED"]
        assert (await session.call("note", {"q": "d"}, call_id="d")).ok
        assert kind(await session.call("note", {"q": "e"}, call_id="e")) == "BUDGET_EXCEEDED"
        await settle()
        assert world.starts == 3


@pytest.mark.parametrize("between", [1, 8, 30])
async def test_a_message_sent_again_much_later_gets_no_second_budget(make_tools, between):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        for number in range(5):
            assert (await session.call("look", {"q": f"{number}"})).ok
        for number in range(between):
            await session.begin_turn(f"other {number}")
        for number in range(3):
            assert await session.begin_turn("m1") == 1
            assert kind(await session.call("look", {"q": f"more {number}"})) == "BUDGET_EXCEEDED"
            await session.begin_turn("other 0")
        assert world.starts == 5
