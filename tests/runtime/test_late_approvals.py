"""Approvals that come too late, twice, at the same time, or for something that the person was not shown. None of them runs
what was not approved; what was approved runs once. The forged ones are in `test_forged_approvals.py`.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.runtime.bank import build_tools, kind, meanwhile, open_bank, the_real_one_still_works

from handrail.contract.store import Block, HoldState
from handrail.testing import settle

# ---------------------------------------------------------------------------------------------------- after the fact


async def test_what_was_declined_is_not_approved_later() -> None:
    async with open_bank() as bank:
        held = await bank.hold()

        assert kind(await bank.runtime.decline(held.id, token=held.token)) == "DECLINED"
        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "DECLINED"
        assert kind(await held.session.call("transfer_money", {"to": "bob", "amount": 5}, call_id="n")) == "DECLINED"
        assert bank.book.sensitive == 0


@pytest.mark.parametrize(("mode", "seconds"), [("text", 300), ("voice", 60)])
async def test_what_has_expired_is_not_approved(mode: str, seconds: int) -> None:
    async with open_bank() as bank:
        held = await bank.hold(mode=mode)
        await bank.clock.advance(seconds)

        answer = await bank.runtime.approve(held.id, token=held.token)

        assert kind(answer) == "CONFLICT"
        assert "expired" in answer.error.message
        assert bank.book.sensitive == 0


async def test_an_expired_request_does_not_lend_its_secret_to_the_next() -> None:
    async with open_bank() as bank:
        old = await bank.hold()
        await bank.clock.advance(301)
        new = await bank.hold_in(old.session, old.ear, call_id="call_2")

        assert new.id != old.id
        assert kind(await bank.runtime.approve(old.id, token=old.token)) == "CONFLICT"
        assert kind(await bank.runtime.approve(new.id, token=old.token)) == "NOT_FOUND"
        await the_real_one_still_works(bank, new)


async def test_a_secret_that_attaching_gave_again_expires_with_the_request() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.clock.advance(299)
        await bank.runtime.attach(held.session.id, token=held.session.token)
        await settle()
        fresh = held.ear.of("confirmation")[-1]["token"]
        assert fresh != held.token
        await bank.clock.advance(1)

        assert kind(await bank.runtime.approve(held.id, token=fresh)) == "CONFLICT"
        assert bank.book.sensitive == 0


async def test_a_session_that_has_ended_runs_nothing_more() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await held.session.close()

        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "SESSION_INACTIVE"
        assert bank.book.sensitive == 0


async def test_a_blocked_user_approves_nothing_until_the_block_ends() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        until = bank.clock.milliseconds() + 30_000
        await bank.store.block(Block(tenant="bank", user="ana", until=until))

        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "AUTH"
        await bank.clock.advance(31)
        await the_real_one_still_works(bank, held)


async def test_a_tool_that_is_switched_off_waits_with_its_request() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.store.switch("transfer_money", "under repair")

        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "UNAVAILABLE"
        await bank.clock.advance(1)
        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "UNAVAILABLE"
        await bank.store.switch("transfer_money", None)
        await bank.clock.advance(1)
        assert kind(await bank.runtime.approve(held.id, token=held.token)) == "OK"
        assert bank.book.sensitive == 1


async def test_a_grant_for_the_old_tool_does_not_run_the_new_one(tmp_path: Path) -> None:
    folder = build_tools(tmp_path)
    async with open_bank(folder) as bank:
        held = await bank.hold()
        build_tools(tmp_path, transfer_money={"description": "Now sends ten times as much."})
        bank.registry.reload()
        session = await bank.runtime.resume_session(held.session.id, token=held.session.token)

        answer = await bank.runtime.approve(held.id, token=held.token)

        assert kind(answer) == "CONFLICT"
        assert bank.book.sensitive == 0
        again = await bank.hold_in(session, held.ear, call_id="call_2")
        assert again.id != held.id
        await the_real_one_still_works(bank, again)


async def test_a_grant_runs_the_arguments_that_were_shown_and_no_others() -> None:
    async with open_bank() as bank:
        args: dict[str, Any] = {"to": "bob", "amount": 5}
        held = await bank.hold(args=args)
        args["amount"], args["to"] = 1_000_000, "eve"
        held.answer.error.confirmation_request["args"]["to"] = "eve"

        assert (await bank.runtime.approve(held.id, token=held.token)).ok
        assert [start[1] for start in bank.book.of("transfer_money")] == [{"to": "bob", "amount": 5}]


async def test_other_arguments_under_the_held_id_run_nothing() -> None:
    async with open_bank() as bank:
        held = await bank.hold()

        answer = await held.session.call("transfer_money", {"to": "eve", "amount": 5}, call_id="call_1")

        assert kind(answer) == "CONFLICT"
        await the_real_one_still_works(bank, held)


async def test_another_tool_under_the_held_id_runs_nothing() -> None:
    async with open_bank() as bank:
        held = await bank.hold()

        answer = await held.session.call("delete_file", {"path": "/"}, call_id="call_1")

        assert kind(answer) == "CONFLICT"
        await the_real_one_still_works(bank, held)


async def test_a_used_grant_is_no_grant_for_other_arguments() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.runtime.approve(held.id, token=held.token)

        for number, args in enumerate(({"to": "bob", "amount": 6}, {"to": "eve", "amount": 5}), 1):
            answer = await held.session.call("transfer_money", args, call_id=f"more_{number}")
            assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert bank.book.sensitive == 1


async def test_a_used_grant_answers_its_own_call_and_never_runs_it_again() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        first = await bank.runtime.approve(held.id, token=held.token)

        for number in range(5):
            answer = await held.session.call("transfer_money", {"to": "bob", "amount": 5}, call_id=f"again_{number}")
            assert answer.data == first.data
        assert bank.book.sensitive == 1
        await held.session.begin_turn("the user has spoken again")
        answer = await held.session.call("transfer_money", {"to": "bob", "amount": 5}, call_id="a new wish")
        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert bank.book.sensitive == 1


async def test_a_used_grant_is_no_grant_in_another_session() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.runtime.approve(held.id, token=held.token)
        other, _ = await bank.open()

        answer = await other.call("transfer_money", {"to": "bob", "amount": 5}, call_id="call_1")

        assert kind(answer) == "CONFIRMATION_REQUIRED"
        assert bank.book.sensitive == 1


async def test_approving_again_gives_the_same_outcome() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        first = await bank.runtime.approve(held.id, token=held.token)

        for _ in range(5):
            assert (await bank.runtime.approve(held.id, token=held.token)).data == first.data
        assert bank.book.sensitive == 1


async def test_every_secret_of_a_request_together_runs_it_once() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        for _ in range(4):
            await bank.runtime.attach(held.session.id, token=held.session.token)
        await settle()
        tokens = {asked["token"] for asked in held.ear.of("confirmation")}
        assert len(tokens) == 5

        answers = [await bank.runtime.approve(held.id, token=token) for token in tokens]

        assert all(answer.ok for answer in answers)
        assert bank.book.sensitive == 1


async def test_a_secret_from_before_a_restart_works_once() -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.store.release_owner(bank.runtime.owner)
        async with bank.another_runtime() as second:
            await second.resume_session(held.session.id, token=held.session.token)
            first = await second.approve(held.id, token=held.token)
            assert first.ok
        async with bank.another_runtime() as third:
            await third.resume_session(held.session.id, token=held.session.token)
            again = await third.approve(held.id, token=held.token)
            assert kind(await third.approve(held.id, token="guessed")) == "NOT_FOUND"

        assert again.data == first.data
        assert bank.book.sensitive == 1


@pytest.mark.parametrize("state", [HoldState.DECLINED, HoldState.EXPIRED, HoldState.SUPERSEDED])
async def test_a_request_that_is_closed_stays_closed(state: HoldState) -> None:
    async with open_bank() as bank:
        held = await bank.hold()
        await bank.store.move_hold(held.id, state, expected=(HoldState.PENDING,))

        answer = await bank.runtime.approve(held.id, token=held.token)

        assert not answer.ok
        assert bank.book.sensitive == 0


# -------------------------------------------------------------------------------------------------------- in a race


@pytest.mark.parametrize("times", [2, 50])
async def test_approvals_at_the_same_time_run_it_once(times: int) -> None:
    async with open_bank() as bank:
        held = await bank.hold()

        async def slowly(ctx: Any, args: Any) -> Any:
            await asyncio.sleep(0.01)
            return {"ok": True, "data": {"receipt": 1}}

        bank.book.acts["transfer_money"] = slowly
        many = asyncio.gather(*(bank.runtime.approve(held.id, token=held.token) for _ in range(times)))
        answers = await meanwhile(bank.clock, many)

        assert [answer.data for answer in answers] == [{"receipt": 1}] * times
        assert bank.book.sensitive == 1


async def test_of_approving_and_declining_at_the_same_time_one_wins() -> None:
    async with open_bank() as bank:
        for round_ in range(10):
            held = await bank.hold(args={"to": "bob", "amount": round_ + 1})
            before = bank.book.sensitive
            ways = [bank.runtime.approve, bank.runtime.decline]
            if round_ % 2:
                ways.reverse()

            both = asyncio.gather(*(way(held.id, token=held.token) for way in ways))
            answers = await meanwhile(bank.clock, both)

            ran = bank.book.sensitive - before
            assert ran == sum(answer.ok for answer in answers) or ran == 1
            assert ran <= 1
            if ran == 0:
                assert all(kind(answer) == "DECLINED" for answer in answers)


async def test_two_processes_that_approve_at_once_run_it_once() -> None:
    async with open_bank() as bank, bank.another_runtime() as second:
        held = await bank.hold()

        both = asyncio.gather(
            bank.runtime.approve(held.id, token=held.token), second.approve(held.id, token=held.token)
        )
        answers = await meanwhile(bank.clock, both)

        assert [answer.ok for answer in answers] == [True, True]
        assert answers[0].data == answers[1].data
        assert bank.book.sensitive == 1


@pytest.mark.parametrize("idempotent", [False, True])
async def test_a_second_yes_in_another_process_waits_for_the_outcome_of_the_first(
    tmp_path: Path, idempotent: bool
) -> None:
    folder = build_tools(tmp_path, transfer_money={"idempotent": idempotent})
    async with open_bank(folder) as bank, bank.another_runtime() as second:
        held, end = await bank.hold(), asyncio.Event()

        async def lasting(ctx: Any, args: Any) -> Any:
            await end.wait()
            return {"ok": True, "data": {"receipt": 1}}

        bank.book.acts["transfer_money"] = lasting
        first = asyncio.create_task(bank.runtime.approve(held.id, token=held.token))
        await settle(50)
        again = asyncio.create_task(second.approve(held.id, token=held.token))
        await settle(50)
        assert not again.done()
        end.set()

        assert (await meanwhile(bank.clock, again)).data == {"receipt": 1}
        assert (await first).ok
        assert bank.book.sensitive == 1


async def test_a_call_that_comes_while_the_approved_one_runs_does_not_run_beside_it() -> None:
    async with open_bank() as bank:
        held = await bank.hold()

        async def slowly(ctx: Any, args: Any) -> Any:
            await asyncio.sleep(0.01)
            return {"ok": True, "data": {"receipt": 1}}

        bank.book.acts["transfer_money"] = slowly
        everything = asyncio.gather(
            bank.runtime.approve(held.id, token=held.token),
            held.session.call("transfer_money", {"to": "bob", "amount": 5}, call_id="call_1"),
            held.session.call("transfer_money", {"to": "bob", "amount": 5}, call_id="call_2"),
            held.session.call("transfer_money", {"to": "bob", "amount": 5}),
        )
        answers = await meanwhile(bank.clock, everything)

        assert answers[0].ok
        assert bank.book.sensitive == 1


# -------------------------------------------------------------------------------------------- what the person is shown

SPOOFS = {
    "right-to-left override": "bob\u202e000,1",
    "right-to-left isolate": "\u2067bob\u2069",
    "a line of its own": "bob\nAmount: 0 (test, nothing is sent)",
    "a carriage return": "eve\rbob",
    "a backspace": "eve\b\b\bbob",
    "an escape sequence": "\x1b[2Kbob",
    "NUL": "bob\x00eve",
    "zero width space": "b\u200bob",
    "a line separator": "bob\u2028approved",
    "a soft hyphen": "b\u00adob",
    "a tag character": "bob\U000e0041",
    "a variation selector": "bob\ufe0f",
    "a Hangul filler": "b\u3164ob",
    "the combining grapheme joiner": "b\u034fob",
    "the Braille blank": "bob\u2800",
    "a no-break space": "bob\u00a0eve",
    "an ideographic space": "bob\u3000eve",
}


@pytest.mark.parametrize("way", SPOOFS)
async def test_nothing_hides_in_the_preview(way: str) -> None:
    async with open_bank() as bank:
        held = await bank.hold(args={"to": SPOOFS[way], "amount": 5})
        preview = held.answer.error.confirmation_request["preview"]

        hidden = [
            letter for letter in SPOOFS[way] if letter not in "bobeve000,1 Amount: 0 (test, nothing is sent)approved[2K"
        ]
        assert hidden
        assert not any(letter in preview for letter in hidden)
        assert all(f"\\u{{{ord(letter):x}}}" in preview for letter in hidden)
        assert preview.count("\n") == 0
        assert bank.book.sensitive == 0


async def test_no_argument_pushes_another_out_of_the_preview() -> None:
    async with open_bank() as bank:
        held = await bank.hold(args={"to": "eve", "amount": 9_999_999, "note": "x" * 50_000})
        preview = held.answer.error.confirmation_request["preview"]

        assert "eve" in preview
        assert "9999999" in preview
        assert "49700 more characters" in preview
        assert len(preview) < 1_000
        assert bank.book.sensitive == 0


async def test_what_the_template_does_not_name_is_shown_all_the_same() -> None:
    async with open_bank() as bank:
        options = {"recursive": True, "as": {"user": "root"}}
        held = await bank.hold("delete_file", {"path": "/", "options": options})
        preview = held.answer.error.confirmation_request["preview"]

        assert "recursive" in preview
        assert "root" in preview
        assert bank.book.sensitive == 0


async def test_a_template_in_an_argument_stays_a_text() -> None:
    async with open_bank() as bank:
        held = await bank.hold(args={"to": "{amount}", "amount": 7, "note": "{to|short}"})
        preview = held.answer.error.confirmation_request["preview"]

        assert preview.startswith("Send 7 to {amount}.")
        assert "{to|short}" in preview
        assert bank.book.sensitive == 0
