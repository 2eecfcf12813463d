"""After a reconnect, what the model brought along and what the network delivers again both keep identical calls apart.

Each was found by the crash harness as a wrongly merged call.
"""

from tests.runtime.bank import open_bank

ARGS = {"text": "x"}


async def test_a_resent_message_after_a_resume_does_not_make_the_model_forget_its_restored_calls() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        first = await session.call("write_note", ARGS, call_id="a1")
        session = await bank.runtime.resume_session(session.id, token=session.token, restored_calls=["a1"])
        await session.begin_turn("hello")

        second = await session.call("write_note", ARGS, call_id="b2")

        assert second.data != first.data
        assert len(bank.book.starts) == 2


async def test_a_call_delivered_again_under_its_own_id_is_not_taken_for_the_next_one() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        first = await session.call("write_note", ARGS, call_id="a1")
        session = await bank.runtime.resume_session(session.id, token=session.token)

        again = await session.call("write_note", ARGS, call_id="a1")
        second = await session.call("write_note", ARGS, call_id="b2")

        assert again.data == first.data
        assert second.data != first.data
        assert len(bank.book.starts) == 2


async def test_a_call_answered_from_an_earlier_one_is_known_by_its_new_id_too() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        first = await session.call("write_note", ARGS, call_id="a1")
        session = await bank.runtime.resume_session(session.id, token=session.token)
        assert (await session.call("write_note", ARGS, call_id="b1")).data == first.data
        session = await bank.runtime.resume_session(session.id, token=session.token, restored_calls=["b1"])

        second = await session.call("write_note", ARGS, call_id="c2")

        assert second.data != first.data
        assert len(bank.book.starts) == 2


async def test_a_model_that_remembers_only_the_second_of_two_meets_the_first_again() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        first = await session.call("write_note", ARGS, call_id="a1")
        await session.call("write_note", ARGS, call_id="a2")
        session = await bank.runtime.resume_session(session.id, token=session.token, restored_calls=["a2"])

        again = await session.call("write_note", ARGS, call_id="b1")

        assert again.data == first.data
        assert len(bank.book.starts) == 2
