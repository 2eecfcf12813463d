"""The sixteen steps in their order: what each refuses, what it costs, and what the model is told."""

import asyncio
import json
import unicodedata
from pathlib import Path

import pytest
from tests.runtime.kit import (
    FOUND,
    NOTHING,
    PAID,
    PATIENT,
    PATIENT_IN_A_THREAD,
    audited,
    begins_at_once,
    calls_left,
    fails,
    kind,
    reading,
    until,
    utility,
    writing,
)

from handrail import Call, ErrorType
from handrail.contract.store import StoreUnavailable
from handrail.testing import VirtualClock, settle

TOP_K = {
    "type": "object",
    "properties": {
        "q": {"type": "string"},
        "top_k": {"type": "integer", "default": 10, "minimum": 1, "maximum": 50},
        "fields": {"type": "array", "items": {"enum": ["snippet", "url", "body"]}},
        "style": {"enum": ["long", "short"]},
    },
    "required": ["q"],
    "additionalProperties": False,
}
SLOW = """
async def execute(args, ctx):
    mark(args)
    await asyncio.sleep(30)
    return {"ok": True, "data": {}}
"""


# 1. Find


async def test_a_name_that_no_tool_has_is_answered_with_the_nearest_one(make_tools):
    async with make_tools({"kb_search": (reading(), FOUND)}) as world:
        session = await world.session()
        response = await session.call("kb_serch", {})
        assert kind(response) == "NOT_FOUND"
        assert '"kb_search"' in response.error.message
        assert response.to_dict()["error"]["partialSideEffects"] is False


@pytest.mark.parametrize("name", [None, "", 7, ["kb_search"], "\ud800", "x" * 10_000])
async def test_a_call_without_a_usable_name_is_answered_too(make_tools, name):
    async with make_tools({"kb_search": (reading(), FOUND)}) as world:
        session = await world.session()
        assert kind(await session.call(name, {})) == "NOT_FOUND"
        assert audited(session.core, "refusal")[-1]["gate"] == "find"


# 2. Parse


@pytest.mark.parametrize(
    ("args", "code"),
    [
        ('{"q": ', "invalid_json"),
        ('{"q": "a", "q": "b"}', "duplicate_key"),
        ('{"q": NaN}', "invalid_json"),
        ('{"q": 9007199254740993}', "invalid_number"),
        ('{"q": "\\ud800"}', "invalid_unicode"),
        ("[" * 40 + "]" * 40, "too_deep"),
        (json.dumps({"q": "x" * 70_000}), "args_too_large"),
        ("[1]", "invalid_json"),
    ],
)
async def test_arguments_that_are_no_strict_json_object_are_refused_each_with_its_word(make_tools, args, code):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        response = await session.call("look", args, call_id="c1")
        assert kind(response) == "VALIDATION"
        if code != "invalid_json":
            assert response.error.details[0]["code"] == code
        assert world.starts == 0
        assert response.meta["budget"] == {"retrieval": 5}


async def test_what_is_json_but_no_object_is_not_called_invalid_json(make_tools):
    async with make_tools({"kb_search": (reading(), FOUND)}) as world:
        session = await world.session()
        listed, broken = await session.call("kb_search", "[1]"), await session.call("kb_search", '{"q": ')
        assert listed.error.message == "Arguments must be a JSON object, not a list."
        assert broken.error.message.startswith("The arguments are not valid JSON. ")


async def test_text_in_a_code_fence_and_doubly_encoded_text_are_taken(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        assert (await session.call("look", '```json\n{"q": "a"}\n```')).ok
        assert (await session.call("look", json.dumps(json.dumps({"q": "b"})))).ok
        assert (await session.call("look", None)).ok


# 3. Replay by id


async def test_a_replay_by_id_is_free_fresh_and_marked(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session(mode="voice")
        first = await session.call("look", {"q": "a"}, call_id="c1")
        first.data["results"].append("changed by the caller")
        again = await session.call("look", '{"q":"a"}', call_id="c1")
        assert again.meta["replayed"] is True
        assert again.data == {"results": ["a"]}
        assert world.starts == 1
        assert calls_left(await session.call("look", {"q": "b"}, call_id="c2")) == {"retrieval": 0, "total": 1}
        assert [event["ok"] for event in audited(session.core, "replay")] == [True]


async def test_a_replay_comes_before_the_session_mode_and_budget_gates(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session(user="u1")
        await session.call("look", {"q": "a"}, call_id="c1")
        await world.store.switch("look", "off for a test")
        await session.core.housekeeper.learn()
        assert (await session.call("look", {"q": "a"}, call_id="c1")).meta["replayed"]
        assert kind(await session.call("look", {"q": "a"}, call_id="c2")) == "UNAVAILABLE"


async def test_the_same_id_for_another_call_is_a_conflict(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND), "other": (reading(), FOUND)}) as world:
        session = await world.session()
        await session.call("look", {"q": "a"}, call_id="c1")
        assert kind(await session.call("look", {"q": "b"}, call_id="c1")) == "CONFLICT"
        assert kind(await session.call("other", {"q": "a"}, call_id="c1")) == "CONFLICT"
        # Compared before defaults: naming the default is another call than leaving it out.
        assert kind(await session.call("look", {"q": "a", "top_k": 10}, call_id="c1")) == "CONFLICT"
        assert (await session.call("look", {"q": "a"}, call_id="c1")).meta["replayed"]
        assert world.starts == 1


async def test_a_failed_outcome_is_replayed_by_id_and_tried_again_by_hash(make_tools):
    source = fails('ToolError("TRANSIENT", "Later.", retryable=False)')
    async with make_tools({"look": (reading(), source)}) as world:
        session = await world.session()
        await session.call("look", {"q": "a"}, call_id="c1")
        assert (await session.call("look", {"q": "a"}, call_id="c1")).meta["replayed"]
        assert world.starts == 1
        await session.call("look", {"q": "b"})
        assert "replayed" not in (await session.call("look", {"q": "b"})).meta
        assert world.starts == 3


async def test_a_duplicate_waits_for_the_first_and_then_is_in_progress(make_tools):
    policy = {"text": {"wait_seconds": 0.05}}
    async with make_tools({"look": (reading(), SLOW)}) as world:
        session = await world.session(policy=policy)
        first = asyncio.create_task(session.call("look", {}, call_id="c1"))
        await settle()
        response = await session.call("look", {}, call_id="c1")
        assert kind(response) == "IN_PROGRESS"
        assert response.error.retry_after
        assert response.error.retryable
        await session.interrupt()
        await first
        assert world.starts == 1


# 4. Session


async def test_a_session_that_has_ended_refuses(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        await session.close()
        assert kind(await session.call("look", {})) == "SESSION_INACTIVE"


@pytest.mark.parametrize("then", ["it is closed again", "the housekeeper works"])
async def test_the_end_of_a_session_that_the_store_did_not_hear_of_is_stored_later(make_tools, monkeypatch, then):
    clock = VirtualClock()
    async with make_tools({"look": (reading(), FOUND)}, clock=clock) as world:
        session = await world.session(clock=clock)
        core = session.core

        async def away(*_):
            raise StoreUnavailable("The store is away.")

        with monkeypatch.context() as patched:
            patched.setattr(core.store, "save_sessions", away)
            with pytest.raises(StoreUnavailable):
                await session.close()
        assert kind(await session.call("look", {})) == "SESSION_INACTIVE"
        await (session.close() if then == "it is closed again" else core.housekeeper.write_behind())
        assert not (await core.store.load_session(session.id)).active
        await session.close()
        assert session.id not in core.sessions
        assert len(audited(core, "session_end")) == 1


async def test_a_tool_that_requires_a_user_refuses_without_one(make_tools):
    async with make_tools({"look": (reading(permissions={"requiresAuth": True}), FOUND)}) as world:
        assert kind(await (await world.session()).call("look", {})) == "AUTH"
        assert (await (await world.session(user="u1")).call("look", {})).ok


async def test_a_blocked_user_is_refused_until_the_block_ends(make_tools):
    clock = VirtualClock()
    async with make_tools({"look": (reading(), FOUND)}, clock=clock) as world:
        from handrail.contract.store import Block

        session = await world.session(user="u1", clock=clock)
        await world.store.block(Block(tenant="", user="u1", until=clock.milliseconds() + 60_000))
        await clock.advance(1)
        response = await session.call("look", {})
        assert kind(response) == "AUTH"
        assert response.error.retry_after == pytest.approx(59, abs=0.1)
        await clock.advance(60)
        assert (await session.call("look", {})).ok


async def test_a_block_that_a_reading_tool_asks_for_is_stored_and_stays(make_tools):
    source = """
async def execute(args, ctx):
    return {"ok": True, "data": {}, "intents": [{"type": "BLOCK_USER", "until": time.time() + 60}]}
"""
    async with make_tools({"guard": (utility(), source), "look": (reading(), FOUND)}) as world:
        session = await world.session(user="u1")
        assert (await session.call("guard", {})).ok
        assert kind(await session.call("look", {})) == "AUTH"
        await settle()
        await session.core.housekeeper.learn()
        assert kind(await session.call("look", {})) == "AUTH"
        elsewhere = await world.session(user="u1")
        assert kind(await elsewhere.call("look", {})) == "AUTH"


# 5. Mode


async def test_a_tool_of_the_other_mode_is_restricted(make_tools):
    async with make_tools({"look": (reading(allowedModes=["text"]), FOUND)}) as world:
        session = await world.session(mode="voice")
        assert kind(await session.call("look", {})) == "MODE_RESTRICTED"
        await session.set_mode("text")
        assert (await session.call("look", {})).ok


# 6. Availability


async def test_a_switch_reaches_open_sessions_within_a_second(make_tools):
    clock = VirtualClock()
    async with make_tools({"look": (reading(), FOUND)}, clock=clock) as world:
        session = await world.session(clock=clock)
        assert (await session.call("look", {"q": "a"})).ok
        await world.store.switch("look", "it misbehaves")
        await clock.advance(1)
        response = await session.call("look", {"q": "b"})
        assert kind(response) == "UNAVAILABLE"
        assert "misbehaves" in response.error.message  # the operator is told that callers see the reason
        assert audited(session.core, "refusal")[-1]["value"] == "it misbehaves"
        await world.store.switch("look", None)
        await clock.advance(1)
        assert (await session.call("look", {"q": "b"})).ok


@pytest.mark.parametrize(
    ("condition", "attributes", "expected"),
    [
        ('mode == "text" && user.id == "u1" && session.plan == "pro"', {"plan": "pro"}, None),
        ('session.plan == "pro"', {"plan": "free"}, "UNAVAILABLE"),
        ('session.plan == "pro"', {}, "UNAVAILABLE"),
        ("session.score > 3", {"score": "many"}, "UNAVAILABLE"),
    ],
)
async def test_a_condition_that_is_false_or_cannot_be_answered_lets_nothing_pass(
    make_tools, condition, attributes, expected
):
    async with make_tools({"look": (reading(availability={"condition": condition}), FOUND)}) as world:
        session = await world.session(user="u1", attributes=attributes)
        assert kind(await session.call("look", {})) == expected


# 7. Validate, 8. clamp


async def test_every_violation_is_told_with_its_place_and_costs_nothing(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session()
        response = await session.call("look", {"top_k": "3", "colour": "red"})
        assert kind(response) == "VALIDATION"
        assert len(response.error.details) == 3
        assert {detail["pointer"] for detail in response.error.details} >= {"/top_k"}
        assert response.meta["budget"] == {"retrieval": 5}
        assert world.starts == 0


async def test_defaults_are_filled_in_and_told(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session()
        response = await session.call("look", {"q": "a"})
        assert world.tools.started() == [{"q": "a", "top_k": 10}]
        assert response.meta["defaulted"] == ["/top_k"] or response.meta["defaulted"] == ["top_k"]
        assert audited(session.core, "execution")[-1]["defaulted"]


async def test_arguments_are_clamped_in_the_mode_that_clamps(make_tools):
    clamp = {"voice": {"top_k": 3, "fields": ["snippet", "url"], "style": ["short"]}}
    async with make_tools({"look": (reading(parameters=TOP_K, clamp=clamp), FOUND)}) as world:
        session = await world.session(mode="voice")
        response = await session.call("look", {"q": "a", "fields": ["body", "url"], "style": "long"})
        assert sorted(response.meta["clamped"]) == ["fields", "style", "top_k"]
        assert world.tools.started() == [{"q": "a", "fields": ["url"], "style": "short", "top_k": 3}]
        response = await session.call("look", {"q": "b", "fields": [], "top_k": 2})
        assert "clamped" not in response.meta
        text = await world.session()
        assert "clamped" not in (await text.call("look", {"q": "a", "top_k": 9})).meta


async def test_a_null_that_the_schema_allows_is_not_clamped(make_tools):
    parameters = {
        "type": "object",
        "properties": {"top_k": {"type": ["integer", "null"]}},
        "additionalProperties": False,
    }
    async with make_tools({"look": (reading(parameters=parameters, clamp={"voice": {"top_k": 3}}), FOUND)}) as world:
        session = await world.session(mode="voice")
        assert (await session.call("look", {"top_k": None})).ok


async def test_a_repaired_call_says_so(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session(policy={"repair": True})
        response = await session.call("look", '{"q": "a", "top_k": "3",}')
        assert response.ok
        assert response.meta["repaired"] is True
        assert world.tools.started() == [{"q": "a", "top_k": 3}]


async def test_the_sixth_refusal_of_a_turn_is_a_loop_and_so_is_each_after_it(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session()
        kinds = [kind(await session.call("look", {})) for _ in range(3)]
        kinds += [kind(await session.call("nobody", {})), kind(await session.call("look", "{"))]
        assert kinds == ["VALIDATION"] * 3 + ["NOT_FOUND", "VALIDATION"]
        sixth = await session.call("look", {})
        assert kind(sixth) == "LOOP_DETECTED"
        assert sixth.error.suggestion
        assert kind(await session.call("nobody", {})) == "LOOP_DETECTED"
        assert (await session.call("look", {"q": "good"})).ok, "only refusals are loops"
        await session.begin_turn("m2")
        assert kind(await session.call("look", {})) == "VALIDATION"


# 9. Key


async def test_calls_without_an_id_are_replayed_by_content_within_their_turn(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session()
        first = await session.call("look", {"q": "a"}, call_id="x1", id_scope="none")
        again = await session.call("look", {"q": "a", "top_k": 10}, call_id="x2", id_scope="none")
        assert again.meta["replayed"]
        assert again.data == first.data
        assert audited(session.core, "execution")[-1]["idempotencyKey"].startswith("hash:1:")
        await session.begin_turn("m2")
        assert "replayed" not in (await session.call("look", {"q": "a"})).meta
        assert world.starts == 2


async def test_the_hundred_newest_replays_are_kept(make_tools):
    async with make_tools({"note": (utility(), FOUND)}) as world:
        session = await world.session()
        for number in range(101):
            await session.call("note", {"q": str(number)}, call_id=f"c{number}")
        assert (await session.call("note", {"q": "1"}, call_id="c1")).meta["replayed"]
        assert "replayed" not in (await session.call("note", {"q": "0"}, call_id="c0")).meta


# 10. Rate limit


@pytest.mark.parametrize("scope", ["session", "user"])
async def test_a_limit_per_window_tells_when_to_come_back(make_tools, scope):
    clock = VirtualClock()
    limit = {"calls": 2, "windowMs": 10_000, "scope": scope}
    async with make_tools({"note": (utility(rateLimit=limit), FOUND)}, clock=clock) as world:
        runtime = world.runtime(clock=clock)
        session = await world.session(runtime=runtime, user="u1")
        other = await world.session(runtime=runtime, user="u1")
        assert (await session.call("note", {"q": "1"})).ok
        assert (await session.call("note", {"q": "1"}, call_id="c")).ok
        await clock.advance(3)
        response = await session.call("note", {"q": "2"})
        assert kind(response) == "RATE_LIMIT"
        assert 0 < response.error.retry_after <= 7
        assert (await other.call("note", {"q": "3"})).ok is (scope == "session")
        await clock.advance(response.error.retry_after)
        assert (await session.call("note", {"q": "4"})).ok


@pytest.mark.parametrize("writes", [False, True])
async def test_a_user_wide_limit_counts_over_processes(make_tools, writes):
    limit = {"calls": 2, "windowMs": 600_000, "scope": "user"}
    fields = writing(rateLimit=limit) if writes else utility(rateLimit=limit)
    async with make_tools({"note": (fields, FOUND)}, store="sqlite") as world:
        here = await world.session(user="u1")
        assert (await here.call("note", {"q": "1"})).ok
        assert (await here.call("note", {"q": "2"})).ok
        await here.core.housekeeper.write_behind()
        there = await world.session(user="u1")
        assert kind(await there.call("note", {"q": "3"})) == "RATE_LIMIT"
        assert (await (await world.session(user="u2")).call("note", {"q": "3"})).ok


async def test_a_limit_per_session_survives_a_restart(make_tools):
    limit = {"calls": 1, "windowMs": 600_000, "scope": "session"}
    async with make_tools({"note": (utility(rateLimit=limit), FOUND)}) as world:
        session = await world.session()
        assert (await session.call("note", {"q": "1"})).ok
        await session.core.close()
        world.runtimes.clear()
        session = await world.runtime().resume_session(session.id, token=session.token)
        await session.begin_turn("m2")
        assert kind(await session.call("note", {"q": "2"})) == "RATE_LIMIT"


# 11. Loop


async def test_the_third_identical_call_of_a_turn_is_a_loop(make_tools):
    async with make_tools({"note": (utility(), FOUND)}) as world:
        session = await world.session()
        assert (await session.call("note", {"q": "a"}, call_id="1")).ok
        assert (await session.call("note", {"q": "a"}, call_id="2")).ok
        third = await session.call("note", {"q": "a"}, call_id="3")
        assert kind(third) == "LOOP_DETECTED"
        assert third.error.suggestion
        assert (await session.call("note", {"q": "b"}, call_id="4")).ok
        assert world.starts == 3


async def test_replays_without_an_id_count_as_calls_for_loops(make_tools):
    async with make_tools({"note": (utility(), FOUND)}) as world:
        session = await world.session()
        assert (await session.call("note", {"q": "a"})).ok
        assert (await session.call("note", {"q": "a"})).meta["replayed"]
        assert kind(await session.call("note", {"q": "a"})) == "LOOP_DETECTED"


async def test_letters_written_in_another_way_are_the_same_for_loops_and_other_keys(make_tools):
    async with make_tools({"note": (utility(), FOUND)}) as world:
        session = await world.session()
        composed, apart = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
        assert (await session.call("note", {"q": composed})).ok
        assert "replayed" not in (await session.call("note", {"q": apart})).meta
        assert kind(await session.call("note", {"q": composed}, call_id="c")) == "LOOP_DETECTED"


async def test_a_retrieval_tool_that_found_nothing_twice_is_not_asked_again(make_tools):
    async with make_tools({"look": (reading(), NOTHING), "note": (utility(), NOTHING)}) as world:
        session = await world.session()
        for q in "ab":
            assert (await session.call("look", {"q": q})).ok
        assert kind(await session.call("look", {"q": "c"})) == "LOOP_DETECTED"
        for q in "abc":
            assert (await session.call("note", {"q": q})).ok, "only retrieval tools are looked at"
        await session.begin_turn("m2")
        assert (await session.call("look", {"q": "c"})).ok


# 12. Budget


async def test_voice_has_two_retrieval_calls_and_three_in_all(make_tools):
    async with make_tools({"look": (reading(), FOUND), "note": (utility(), FOUND)}) as world:
        session = await world.session(mode="voice")
        assert calls_left(await session.call("look", {"q": "1"})) == {"retrieval": 1, "total": 2}
        assert (await session.call("look", {"q": "2"})).ok
        over = await session.call("look", {"q": "3"})
        assert kind(over) == "BUDGET_EXCEEDED"
        assert over.error.suggestion
        assert calls_left(await session.call("note", {"q": "4"})) == {"retrieval": 0, "total": 0}
        assert kind(await session.call("note", {"q": "5"})) == "BUDGET_EXCEEDED"
        assert world.starts == 3
        await session.begin_turn("m2")
        assert (await session.call("look", {"q": "3"})).ok


async def test_text_has_five_retrieval_calls_and_a_policy_may_change_that(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        kinds = [kind(await session.call("look", {"q": str(number)})) for number in range(6)]
        assert kinds == [None] * 5 + ["BUDGET_EXCEEDED"]
        tight = await world.session(policy={"text": {"retrieval_calls": 1}})
        assert [kind(await tight.call("look", {"q": q})) for q in "ab"] == [None, "BUDGET_EXCEEDED"]


async def test_a_concurrent_batch_never_overruns_the_budget(make_tools):
    source = "async def execute(args, ctx):\n    mark(args)\n    await asyncio.sleep(0.01)\n    return {'ok': True, 'data': 1}"
    async with make_tools({"look": (reading(), source)}) as world:
        session = await world.session()
        answers = await session.call_many([Call(name="look", args={"q": str(n)}, call_id=str(n)) for n in range(20)])
        assert [kind(answer) for answer in answers] == [None] * 5 + ["BUDGET_EXCEEDED"] * 15
        assert world.starts == 5


async def test_refusals_by_the_first_nine_steps_cost_no_budget(make_tools):
    async with make_tools({"look": (reading(parameters=TOP_K), FOUND)}) as world:
        session = await world.session()
        for _ in range(5):
            await session.call("look", {})
        assert (await session.call("look", {"q": "a"})).meta["budget"] == {"retrieval": 4}


async def test_a_unit_is_given_back_if_the_handler_did_not_start(make_tools):
    async with make_tools({"pay": (writing(), PAID)}) as world:
        session = await world.session(mode="voice")
        await world.store.close()
        for _ in range(4):
            response = await session.call("pay", {"q": "a"}, call_id="c1")
            assert kind(response) == "STORE_UNAVAILABLE", "never a loop: nothing ran"
            assert calls_left(response) == {"retrieval": 2, "total": 3}
        await world.store.open()
        assert calls_left(await session.call("pay", {"q": "a"}, call_id="c1")) == {"retrieval": 2, "total": 2}


async def test_a_unit_of_retrieval_is_given_back_if_the_request_could_not_be_kept(make_tools):
    async with make_tools({"look": (reading(requiresConfirmation=True), FOUND)}) as world:
        session = await world.session(mode="voice")
        await world.store.close()
        for _ in range(2):
            response = await session.call("look", {"q": "a"})
            assert kind(response) == "STORE_UNAVAILABLE"
            assert calls_left(response) == {"retrieval": 2, "total": 3}
        await world.store.open()
        held = await session.call("look", {"q": "a"})
        assert kind(held) == "CONFIRMATION_REQUIRED"
        assert calls_left(held) == {"retrieval": 1, "total": 2}


async def test_a_turn_that_used_more_than_its_new_mode_allows_has_nothing_left(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        session = await world.session()
        for q in "abcd":
            assert (await session.call("look", {"q": q})).ok
        await session.set_mode("voice")
        over = await session.call("look", {"q": "e"})
        assert kind(over) == "BUDGET_EXCEEDED"
        assert calls_left(over) == {"retrieval": 0, "total": 0}
        assert world.starts == 4


async def test_a_plain_function_that_found_no_worker_in_time_never_starts(make_tools):
    async with make_tools({"pay": (writing(timeoutMs=50), PATIENT_IN_A_THREAD)}) as world:
        runtime = world.runtime(policy={"workers": 1})
        session = await world.session(runtime=runtime)
        begins_at_once(runtime)
        answers = await asyncio.gather(*(session.call("pay", {"q": q}, call_id=q) for q in "ab"))
        assert [kind(answer) for answer in answers] == ["TIMEOUT", "TIMEOUT"]
        assert [answer.error.partial_side_effects for answer in answers] == [True, False]
        world.go()
        await asyncio.to_thread(runtime.runner.pool.shutdown)  # whatever waits for the worker has had its turn
        assert world.tools.started() == [{"q": "a"}]


# 15. Run


async def test_read_only_neighbours_run_together_and_a_writing_call_is_a_barrier(make_tools):
    source = """
async def execute(args, ctx):
    mark(["start", args["q"]])
    for _ in range(100):
        await asyncio.sleep(0)
    mark(["end", args["q"]])
    return {"ok": True, "data": args["q"]}
"""
    async with make_tools({"look": (reading(), source), "pay": (writing(), source)}) as world:
        session = await world.session()
        names = ["look", "look", "pay", "pay", "look", "look"]
        calls = [Call(name=name, args={"q": str(n)}, call_id=str(n)) for n, name in enumerate(names)]
        answers = await session.call_many(calls)
        assert [answer.data for answer in answers] == ["0", "1", "2", "3", "4", "5"]
        order = ["".join(mark)[0] + mark[1] for mark in world.tools.started()]
        assert set(order[:4]) == {"s0", "s1", "e0", "e1"}
        assert set(order[:2]) == {"s0", "s1"}
        assert order[4:8] == ["s2", "e2", "s3", "e3"]
        assert set(order[8:10]) == {"s4", "s5"}


async def test_calls_of_one_message_without_a_turn_open_one_turn(make_tools):
    async with make_tools({"look": (reading(), FOUND)}) as world:
        runtime = world.runtime()
        session = await runtime.open_session()
        await session.call_many([Call(name="look", args={"q": q}, call_id=q) for q in "abc"])
        assert session.turn.number == 1
        assert session.turn.retrieval_used == 3


async def test_an_interruption_cancels_reads_and_neither_writes_nor_those_that_finish(make_tools):
    tools = {
        "look": (reading(), PATIENT),
        "plain": (reading(), PATIENT_IN_A_THREAD),
        "thorough": (reading(onInterrupt="finish"), PATIENT),
        "pay": (writing(), PATIENT),
    }
    async with make_tools(tools) as world:
        session = await world.session()
        names = ["look", "plain", "thorough", "pay"]
        tasks = [asyncio.create_task(session.call(name, {"q": name}, call_id=name)) for name in names]
        await until(lambda: world.starts == 4)
        await session.interrupt()
        world.go()
        answers = await asyncio.gather(*tasks)
        assert [kind(answer) for answer in answers] == ["CANCELLED", "CANCELLED", None, None]
        assert world.starts == 4
        assert (await session.call("pay", {"q": "pay"}, call_id="pay")).meta["replayed"]


async def test_an_interruption_cancels_what_waits_for_its_start(make_tools):
    tools = {"look": (reading(), SLOW), "pay": (writing(), PAID)}
    async with make_tools(tools) as world:
        session = await world.session()
        calls = [Call(name="look", args={}, call_id="1"), Call(name="pay", args={"q": "a"}, call_id="2")]
        task = asyncio.create_task(session.call_many(calls))
        await until(lambda: world.starts)
        await session.interrupt()
        assert [kind(answer) for answer in await task] == ["CANCELLED", "CANCELLED"]
        assert world.starts == 1
        assert (await session.call("pay", {"q": "a"}, call_id="3")).ok, "the turn continues"


def test_every_error_type_of_the_contract_is_reached_by_some_test():
    """A reminder for whoever adds one: show it in a test of the pipeline, or say here where it is shown."""
    elsewhere = {"CONFIRMATION_REQUIRED", "DECLINED", "SESSION_ACTIVE"}
    here = "".join(
        Path(__file__).with_name(name).read_text("utf-8") for name in (Path(__file__).name, "test_running.py")
    )
    missing = [error.value for error in ErrorType if f'"{error.value}"' not in here and error.value not in elsewhere]
    assert missing == []
