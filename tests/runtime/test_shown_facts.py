"""A person approves what they saw: facts are looked up whenever a request is shown and once more when it is approved."""

import asyncio
import threading

import pytest
from tests.runtime.kit import PAID, asked, audited, confirmed, kind, next_event, until

from handrail.contract.store import HOLD_TOKENS, HoldState
from handrail.runtime.confirmation import NOT_LOOKED_UP, token_hash
from handrail.runtime.runner import Runner

# The facts stand in a file beside the marks, which a test writes; each lookup is marked.
FACTS = (
    PAID
    + """
async def preview(args, ctx):
    with (MARKS.parent / "lookups").open("a") as file:
        file.write("x")
    facts = (MARKS.parent / "facts").read_text()
    if facts == "hang":
        await asyncio.sleep(3600)
    if facts == "raise":
        raise RuntimeError("no facts")
    return facts
"""
)
# Booked when the test says so; the facts tell of what is booked already.
BOOKED = """
import asyncio

async def execute(args, ctx):
    mark(args)
    while not (MARKS.parent / "go").exists():
        await asyncio.sleep(0.005)
    with (MARKS.parent / "booked").open("a") as file:
        file.write(args["q"] + " ")
    return {"ok": True, "data": {"booked": args["q"]}}

async def preview(args, ctx):
    booked = MARKS.parent / "booked"
    return "Clashes: " + (booked.read_text() if booked.exists() else "none")
"""
TOOLS = {"pay": (confirmed(preview="Pay {q}"), FACTS), "plain": (confirmed(preview="Pay {q}"), PAID)}


def facts(world, text):
    (world.tools.root / "facts").write_text(text)


def lookups(world):
    return len((world.tools.root / "lookups").read_text())


async def held(session, q="a", call_id=None, tool="pay"):
    """A held call as the user's channel is shown it."""
    answer = await session.call(tool, {"q": q}, call_id=call_id)
    assert kind(answer) == "CONFIRMATION_REQUIRED", answer
    return (await next_event(session, "confirmation")).data


async def approve(session, shown, runtime=None):
    return await (runtime or session.core).approve(shown["id"], token=shown["token"])


async def show(session):
    """The open requests, as a page that is opened now is shown them."""
    return await session.core.confirmations.show_all(session)


async def again(session, runtime=None):
    return await (runtime or session.core).resume_session(session.id, token=session.token)


# Facts


async def test_facts_that_changed_before_the_approval_run_nothing_and_are_shown_anew(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "No clashes.")
        session = await world.session(user="u1")
        first = await held(session, call_id="c1")
        facts(world, "Clashes with lunch.")
        answer = await approve(session, first)
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert answer.error.confirmation_request["id"] == first["id"]
        assert answer.error.confirmation_request["preview"] == "Pay a\nClashes with lunch."
        assert (answer.error.partial_side_effects, answer.error.retryable) == (False, False)
        assert world.starts == 0
        second = (await next_event(session, "confirmation")).data
        assert (second["id"], second["preview"]) == (first["id"], "Pay a\nClashes with lunch.")
        assert [one["event"] for one in audited(session.core, "confirmation_changed", "confirmation_approved")] == [
            "confirmation_changed"
        ]
        assert (await approve(session, second)).ok
        assert world.starts == 1


async def test_a_yes_that_comes_twice_does_not_approve_facts_that_nobody_saw(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "EUR 5")
        session = await world.session()
        shown = await held(session)
        facts(world, "EUR 500")
        answers = [await approve(session, shown) for _ in range(3)]
        assert [kind(answer) for answer in answers] == ["CONFIRMATION_REQUIRED"] * 3
        assert world.starts == 0
        facts(world, "EUR 5")
        assert (await approve(session, shown)).ok, "what was shown with this token is true again"


async def test_facts_that_are_the_same_are_looked_up_at_the_approval_and_it_runs(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "No clashes.")
        session = await world.session()
        shown = await held(session)
        before = lookups(world)
        assert (await approve(session, shown)).ok
        assert lookups(world) == before + 1


async def test_every_showing_looks_the_facts_up_again(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        facts(world, "one")
        session = await world.session()
        await held(session)
        facts(world, "two")
        [shown] = await show(session)
        assert shown["preview"] == "Pay a\ntwo"
        assert (await world.store.hold_by_id(shown["id"])).preview == "Pay a\ntwo", "what the model is told of it too"
        facts(world, "three")
        client = await session.core.attach(session.id, token=session.token)
        assert (await next_event(client, "confirmation")).data["preview"] == "Pay a\nthree"
        facts(world, "four")
        other = await again(session, world.runtime())
        shown = (await next_event(other, "confirmation")).data
        assert shown["preview"] == "Pay a\nfour"
        assert (await approve(other, shown)).ok


async def test_each_token_approves_only_what_was_shown_with_it(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "one")
        session = await world.session()
        old = await held(session)
        facts(world, "two")
        [new] = await show(session)
        assert kind(await approve(session, old)) == "CONFIRMATION_REQUIRED"
        assert world.starts == 0
        assert (await approve(session, new)).ok
        assert (await approve(session, old)).meta["replayed"], (
            "it was carried out; every approval gets the same outcome"
        )
        assert world.starts == 1


@pytest.mark.parametrize("how", ["raise", "hang"])
async def test_facts_that_cannot_be_looked_up_are_said_to_be_missing(make_tools, how, caplog):
    async with make_tools({"pay": (confirmed(preview="Pay {q}", timeoutMs=1000), FACTS)}) as world:
        facts(world, "No clashes.")
        session = await world.session()
        seen = await held(session)
        facts(world, how)
        answer = await approve(session, seen)
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert answer.error.confirmation_request["preview"] == f"Pay a\n{NOT_LOOKED_UP}"
        why = {"raise": "no facts", "hang": "TimeoutError"}[how]
        assert f"The preview of pay failed: {why}" in caplog.messages
        unseen = (await next_event(session, "confirmation")).data
        facts(world, "Clashes with lunch.")
        assert kind(await approve(session, unseen)) == "CONFIRMATION_REQUIRED", "they can be told now"
        facts(world, how)
        assert (await approve(session, unseen)).ok, "the person saw that nobody could tell"
        assert world.starts == 1


async def test_approvals_at_once_run_it_once_although_it_changes_its_own_facts(make_tools):
    source = FACTS.replace(
        "    mark(args)\n", "    mark(args)\n    (MARKS.parent / 'facts').write_text('Clashes.')\n", 1
    )
    async with make_tools({"pay": (confirmed(preview="Pay {q}"), source)}, store="sqlite") as world:
        facts(world, "No clashes.")
        session = await world.session()
        shown = await held(session)
        answers = await asyncio.gather(*(approve(session, shown) for _ in range(10)))
        answers.append(await approve(session, shown))
        assert all(answer.ok for answer in answers)
        assert world.starts == 1


async def test_an_approval_in_another_process_looks_the_facts_up_there(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        facts(world, "one")
        session = await world.session()
        shown = await held(session)
        facts(world, "two")
        assert kind(await approve(session, shown, world.runtime())) == "CONFIRMATION_REQUIRED"
        assert world.starts == 0


async def test_a_request_that_was_answered_during_the_lookup_is_not_shown_again(make_tools):
    source = (
        PAID
        + """
async def preview(args, ctx):
    for _ in range(6000):
        if not (MARKS.parent / "wait").exists():
            return None
        (MARKS.parent / "asked").touch()
        await asyncio.sleep(0.005)
"""
    )
    async with make_tools({"pay": (confirmed(preview="Pay {q}"), source)}) as world:
        session = await world.session()
        shown = await held(session)
        (world.tools.root / "wait").touch()
        looking = asyncio.ensure_future(show(session))
        await until((world.tools.root / "asked").exists)
        await session.core.decline(shown["id"], token=shown["token"])
        (world.tools.root / "wait").unlink()
        assert await looking == []


# Replaced


async def test_a_newer_call_of_a_later_turn_marks_the_older_request_wherever_it_is_shown(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        old = await held(session, "a", tool="plain")
        assert old["replacedBy"] is None
        await session.begin_turn("m2")
        new = await held(session, "b", tool="plain")
        told = (await next_event(session, "confirmation")).data
        assert (told["id"], told["replacedBy"]) == (old["id"], new["id"])
        assert {one["id"]: one["replacedBy"] for one in await show(session)} == {old["id"]: new["id"], new["id"]: None}
        assert kind(await approve(session, old)) == "CONFIRMATION_REQUIRED", "whoever said yes has not seen the mark"
        assert world.starts == 0
        assert (await approve(session, new)).ok
        assert (await approve(session, told)).ok, "whoever has seen it may want both"
        assert world.starts == 2


async def test_calls_of_one_turn_and_of_other_tools_replace_nothing(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "")
        session = await world.session()
        await held(session, "a", tool="plain")
        await held(session, "b", tool="plain")
        await session.begin_turn("m2")
        await held(session, "c", tool="pay")
        assert [one["replacedBy"] for one in await show(session)] == [None, None, None]


async def test_whoever_goes_back_to_the_older_wish_replaces_the_newer_one(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        old = await held(session, "a", tool="plain")
        await session.begin_turn("m2")
        new = await held(session, "b", tool="plain")
        await session.begin_turn("m3")
        assert kind(await session.call("plain", {"q": "a"}, call_id="c9")) == "CONFIRMATION_REQUIRED"
        marks = {one["id"]: one["replacedBy"] for one in await show(session)}
        assert marks == {old["id"]: None, new["id"]: old["id"]}
        assert (await approve(session, old)).ok


async def test_book_decide_later_correct_it_approve_the_new_one_then_the_old_one(make_tools):
    """One booking, or a person who saw the clash and said yes to it."""
    source = PAID.replace(
        "    mark(args)\n", "    (MARKS.parent / 'facts').write_text('Clashes with b.')\n    mark(args)\n", 1
    )
    source += FACTS.removeprefix(PAID)
    async with make_tools({"pay": (confirmed(preview="Book {q}"), source)}, store="sqlite") as world:
        facts(world, "No clashes.")
        session = await world.session()
        old = await held(session, "a")
        await session.begin_turn("m2")
        new = await held(session, "b")
        assert (await approve(session, new)).ok
        answer = await approve(session, old)
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert answer.error.confirmation_request["preview"] == "Book a\nClashes with b."
        assert world.starts == 1
        [seen] = await show(session)
        assert (seen["preview"], seen["replacedBy"]) == ("Book a\nClashes with b.", new["id"])
        assert (await approve(session, seen)).ok
        assert world.starts == 2


# The same wish again


async def carried_out(session, call_id="c1"):
    shown = await held(session, call_id=call_id, tool="plain")
    done = await approve(session, shown)
    assert done.ok
    return done


async def wish(session, call_id):
    return await session.call("plain", {"q": "a"}, call_id=call_id)


@pytest.mark.parametrize("mode", ["text", "voice"])
async def test_once_the_model_knows_and_the_user_has_spoken_an_identical_call_is_a_new_wish(make_tools, mode):
    async with make_tools(TOOLS) as world:
        session = await world.session(mode=mode)
        first = await carried_out(session)
        await next_event(session, "envelope")
        assert (await wish(session, "c2")).data == first.data, "nobody has spoken since"
        await session.begin_turn("m2")
        shown = await held(session, call_id="c3", tool="plain")
        assert (await wish(session, "c2")).data == first.data, "its id stands for the first"
        assert world.starts == 1
        assert (await approve(session, shown)).ok
        assert world.starts == 2


async def test_before_the_model_knows_an_identical_call_gets_the_outcome_whatever_the_turn(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        first = await carried_out(session)
        for turn in ("m2", "m3"):
            await session.begin_turn(turn)
        answer = await wish(session, "c2")
        assert (answer.data, answer.meta["replayed"]) == (first.data, True)
        assert (await wish(session, "c3")).data == first.data, "it knows only since this turn"
        await session.begin_turn("m4")
        assert kind(await wish(session, "c4")) == "CONFIRMATION_REQUIRED"
        assert world.starts == 1


async def test_that_the_model_knows_the_outcome_survives_the_process(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        first = await carried_out(session)
        await next_event(session, "envelope")
        session = await again(session, world.runtime())
        assert (await wish(session, "c2")).data == first.data
        await session.begin_turn("m1")
        assert (await wish(session, "c3")).data == first.data, "the same message again is no new one"
        await session.begin_turn("m2")
        assert kind(await wish(session, "c4")) == "CONFIRMATION_REQUIRED"
        assert world.starts == 1


async def test_a_model_that_does_not_know_the_outcome_does_not_learn_it_from_a_restart(make_tools):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await world.session()
        first = await carried_out(session)
        session = await again(session, world.runtime())
        await session.begin_turn("m2")
        assert (await wish(session, "c2")).data == first.data
        assert world.starts == 1


# Tokens, ids, the audit


async def test_looking_at_a_request_again_and_again_keeps_a_bounded_number_of_tokens(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session()
        shown = [await held(session, tool="plain")]
        for _ in range(HOLD_TOKENS + 5):
            shown += await show(session)
        known = [await session.core.approve(one["id"], token=one["token"]) for one in reversed(shown)]
        assert [answer.ok for answer in known] == [True] * HOLD_TOKENS + [False] * 6
        assert world.starts == 1


async def test_an_approval_is_audited_with_its_approver_and_the_ids_of_the_call(make_tools):
    async with make_tools(TOOLS) as world:
        session = await world.session(user="ana")
        first, second = await held(session, "a", "c1", "plain"), await held(session, "b", None, "plain")
        await session.core.approve(first["id"], token=first["token"], approver="ben")
        await approve(session, second)
        lines = {one["confirmationId"]: one for one in audited(session.core, "confirmation_approved")}
        runs = {one["args"]["q"]: one for one in audited(session.core, "execution")}
        ben = (await world.store.audit_subject("", "ben")).pseudonym
        for shown, q, approver, call_id in ((first, "a", ben, "c1"), (second, "b", session.pseudonym, None)):
            line, run = lines[shown["id"]], runs[q]
            assert (line["approver"], line["callId"]) == (approver, call_id)
            assert (line["callId"], line["idempotencyKey"]) == (run["callId"], run["idempotencyKey"])
            assert len(line["ledgerKey"]) == 64


@pytest.mark.parametrize("scope", ["session", "connection"])
async def test_a_late_envelope_names_the_call_as_the_provider_did(make_tools, scope):
    async with make_tools(TOOLS, store="sqlite") as world:
        session = await again(await world.session())
        answer = await session.call("plain", {"q": "a"}, call_id="h1", id_scope=scope)
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        hold_id, token = await asked(session)
        session = await again(session, world.runtime())
        await session.core.approve(hold_id, token=token)
        assert (await next_event(session, "envelope")).data["callId"] == "h1"


async def test_a_request_whose_shown_text_is_not_known_is_asked_about_again(make_tools):
    """As one that an older version has shown."""
    async with make_tools(TOOLS) as world:
        session = await world.session()
        shown = await held(session, tool="plain")
        await world.store.add_hold_token(shown["id"], token_hash("old"))
        assert kind(await session.core.approve(shown["id"], token="old")) == "CONFIRMATION_REQUIRED"
        assert (await world.store.hold_by_id(shown["id"])).state is HoldState.PENDING
        assert (await approve(session, (await next_event(session, "confirmation")).data)).ok


async def test_a_request_that_is_replaced_while_its_facts_are_looked_up_is_shown_with_the_mark(make_tools):
    waits = 'while args["q"] == "a" and (MARKS.parent / "wait").exists():\n        await asyncio.sleep(0.01)\n    '
    slow = FACTS.replace("facts = (MARKS", waits + "facts = (MARKS")
    async with make_tools({"pay": (confirmed(preview="Pay {q}"), slow)}) as world:
        facts(world, "No clashes.")
        session = await world.session()
        await session.begin_turn("m1")
        old = await held(session, "a")
        await session.begin_turn("m2")
        (world.tools.root / "wait").touch()
        before = lookups(world)
        approving = asyncio.create_task(approve(session, old))
        await until(lambda: lookups(world) > before)
        newer = await held(session, "b")
        (world.tools.root / "wait").unlink()
        assert kind(await approving) == "CONFIRMATION_REQUIRED"
        assert world.starts == 0
        assert (await next_event(session, "confirmation")).data["replacedBy"] == newer["id"]


async def test_previews_that_hang_in_threads_leave_room_for_others():
    runner = Runner(2, lambda *_: None, lambda *_: None)
    released = threading.Event()

    def hangs(args, ctx):
        released.wait(60)

    try:
        for _ in range(8):
            with pytest.raises(TimeoutError):
                await runner.call_hook(hangs, {}, None, 0.05)
        assert await runner.call_hook(lambda args, ctx: "facts", {}, None, 30) == "facts"
    finally:
        released.set()
        runner.close()


async def test_a_yes_waits_for_an_approved_call_of_the_tool_that_still_runs_and_then_sees_its_effect(make_tools):
    async with make_tools({"book": (confirmed(preview="Book {q}"), BOOKED)}) as world:
        session = await world.session()
        old = await held(session, "ten", "c1", tool="book")
        new = await held(session, "eleven", "c2", tool="book")
        first = asyncio.create_task(approve(session, new))
        await until(lambda: world.starts == 1)
        second = asyncio.create_task(approve(session, old))
        await asyncio.sleep(0.05)
        assert not second.done()
        world.go()
        assert (await first).ok
        refused = await second
        assert kind(refused) == "CONFIRMATION_REQUIRED"
        assert "has changed since it was shown" in refused.error.message
        assert world.starts == 1
        shown = (await next_event(session, "confirmation")).data
        assert "Clashes: eleven" in shown["preview"]


async def test_facts_that_differ_only_after_the_cut_are_asked_about_again(make_tools):
    async with make_tools(TOOLS) as world:
        facts(world, "x" * 320 + " costs 5 EUR")
        session = await world.session(user="u1")
        first = await held(session, call_id="c1")
        facts(world, "x" * 320 + " costs 9 EUR")
        answer = await approve(session, first)
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert world.starts == 0
        second = (await next_event(session, "confirmation")).data
        assert (await approve(session, second)).ok
        assert world.starts == 1
