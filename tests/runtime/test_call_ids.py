"""A session that writes for hours holds little of it, and still knows every call that it has made by its id."""

from tests.runtime.bank import meanwhile, open_bank
from tests.runtime.kit import kind
from tests.stores.values import alias as stored_alias
from tests.stores.values import held as stored_hold

from handrail import Call, ToolResponse
from handrail.contract.store import StoreUnavailable
from handrail.runtime import known_calls
from handrail.runtime.known_calls import (
    MAX_KNOWN,
    CallIds,
    Forgotten,
    KnownCall,
    Replays,
    call_id_of,
    id_key,
    id_of_key,
    is_stable,
)
from handrail.testing import settle

CALLS = MAX_KNOWN + 40


async def _many(bank, session):
    for number in range(CALLS):
        await session.begin_turn(f"input {number}")
        assert (await session.call("write_note", {"text": str(number)}, call_id=f"w{number}")).ok
    await session.begin_turn("the last")


async def test_a_call_of_long_ago_is_answered_from_its_first_execution_under_its_own_id() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        await _many(bank, session)
        again = await session.call("write_note", {"text": "0"}, call_id="w0")
        assert again.ok
        assert again.meta["replayed"] is True
        assert len(bank.book.starts) == CALLS


async def test_an_id_of_long_ago_with_other_arguments_or_another_tool_is_a_conflict() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        await _many(bank, session)
        other = await session.call("write_note", {"text": "something else"}, call_id="w0")
        assert kind(other) == "CONFLICT"
        reading = await session.call("read_mail", {"folder": "x"}, call_id="w1")
        assert kind(reading) == "CONFLICT"
        assert len(bank.book.starts) == CALLS


async def test_what_is_held_of_calls_is_bounded_and_holds_no_outcome_of_an_earlier_turn() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        await _many(bank, session)
        assert len(session.calls_by_id) <= MAX_KNOWN
        assert not any(entry.response is not None for entry in session.calls_by_id.values())
        assert not session.writes
        await session.call("write_note", {"text": "0"}, call_id="w0")
        assert sum(entry.response is not None for entry in session.calls_by_id.values()) == 1
        await session.begin_turn("one more")
        assert not any(entry.response is not None for entry in session.calls_by_id.values())


async def test_a_request_that_waits_for_a_person_is_kept_whatever_comes_after_it(monkeypatch) -> None:
    monkeypatch.setattr(known_calls, "MAX_KNOWN", 4)
    async with open_bank() as bank:
        session, _ = await bank.open()
        held = await session.call("delete_file", {"path": "held"}, call_id="h1")
        assert kind(held) == "CONFIRMATION_REQUIRED"
        for number in range(10):
            await session.begin_turn(f"input {number}")
            await session.call("write_note", {"text": str(number)}, call_id=f"w{number}")
        again = await session.call("delete_file", {"path": "held"}, call_id="h1")
        assert again.error is not None
        assert again.error.confirmation_request["id"] == held.error.confirmation_request["id"]


async def _answered_under_another_id(bank, monkeypatch):
    """A call that was answered from another's execution while its id could not be stored: its session, and how to mend it."""
    monkeypatch.setattr(known_calls, "MAX_KNOWN", 4)
    first, _ = await bank.open()
    await first.begin_turn("input")
    assert (await first.call("write_note", {"text": "a"}, call_id="first")).ok
    session = await bank.runtime.resume_session(first.id, token=first.token)
    add_alias, tries = bank.runtime.store.add_alias, []

    async def away(session_id, alias):
        tries.append(alias)
        raise StoreUnavailable("The store is away.")

    bank.runtime.store.add_alias = away
    assert (await session.call("write_note", {"text": "a"}, call_id="second")).meta["replayed"] is True
    assert tries
    return session, lambda: setattr(bank.runtime.store, "add_alias", add_alias)


async def _ten_more(session):
    for number in range(10):
        await session.begin_turn(f"input {number}")
        assert (await session.call("write_note", {"text": str(number)}, call_id=f"w{number}")).ok
    await session.begin_turn("the last")


async def test_an_id_that_could_not_be_stored_is_not_forgotten(monkeypatch) -> None:
    async with open_bank() as bank:
        session, _ = await _answered_under_another_id(bank, monkeypatch)
        await _ten_more(session)
        again = await session.call("write_note", {"text": "a"}, call_id="second")
        assert again.meta["replayed"] is True
        assert len(bank.book.starts) == 11


async def test_an_id_that_could_not_be_stored_is_stored_later_and_need_not_be_held(monkeypatch) -> None:
    async with open_bank() as bank:
        session, mend = await _answered_under_another_id(bank, monkeypatch)
        mend()
        session = await bank.runtime.resume_session(session.id, token=session.token)
        assert not bank.runtime.aliases.unstored
        await _ten_more(session)
        assert len(session.calls_by_id) <= 4
        again = await session.call("write_note", {"text": "a"}, call_id="second")
        assert again.meta["replayed"] is True
        assert len(bank.book.starts) == 11


async def test_the_housekeeper_stores_ids_that_could_not_be_stored(monkeypatch) -> None:
    async with open_bank() as bank:
        session, mend = await _answered_under_another_id(bank, monkeypatch)
        mend()
        await meanwhile(bank.clock, _stored(bank))
        assert "provider:second" in [alias.call_id for alias in await bank.runtime.store.aliases(session.id)]


async def _stored(bank):
    while bank.runtime.aliases.unstored:
        await bank.clock.sleep(0.25)


def test_what_runs_or_is_not_stored_stays_and_what_the_store_has_goes() -> None:
    known = CallIds()
    answer = (ToolResponse(True, None), b"{}")
    starting, running = KnownCall("note", b"{}"), KnownCall("note", b"{}")
    unknown, unstored, settled = (KnownCall("note", b"{}", answer) for _ in range(3))
    restored = KnownCall.of("note", "digest", ledger_key="key")
    running.kept = unknown.unknown = True
    running.ledger_key = unknown.ledger_key = settled.ledger_key = "key"
    for name, entry in (
        ("starting", starting),
        ("running", running),
        ("unknown", unknown),
        ("unstored", unstored),
        ("settled", settled),
        ("restored", restored),
    ):
        known[name] = entry
    known.trim(())
    assert known.whole() == [starting, running, unknown, unstored]
    assert (known["settled"].response, known["settled"].ledger_key) == (None, "key")
    assert known["restored"].ledger_key == "key"


def test_of_the_ids_that_the_store_has_the_oldest_go(monkeypatch) -> None:
    monkeypatch.setattr(known_calls, "MAX_KNOWN", 4)
    known = CallIds()
    for number in range(4):
        known[f"c{number}"] = KnownCall.of("note", "digest", ledger_key=f"key {number}")
    known.trim(())
    assert list(known) == ["c0", "c1", "c2", "c3"]
    for number in range(4, 6):
        known[f"c{number}"] = KnownCall.of("note", "digest", ledger_key=f"key {number}")
    known.trim(())
    assert list(known) == ["c2", "c3", "c4", "c5"]
    assert [known.is_forgotten(f"c{number}") for number in range(6)] == [True, True, False, False, False, False]


def test_what_was_forgotten_is_always_found_and_hardly_anything_else() -> None:
    forgotten = Forgotten()
    for number in range(2_000):
        forgotten.add(f"provider:{number}")
    assert all(f"provider:{number}" in forgotten for number in range(2_000))
    assert sum(f"provider:other-{number}" in forgotten for number in range(2_000)) < 20


def test_of_the_replays_the_oldest_that_has_ended_goes_and_what_runs_stays() -> None:
    answer = (ToolResponse(True, None), b"{}")
    settled = ("look", b"{}", False, None, (), {}, b"{}", 1.0, 1)
    running, ended = KnownCall("look", b"{}"), KnownCall("look", b"{}", answer)
    replays = Replays(3)
    replays.update({"running": running, "ended": ended, "settled": settled})
    replays.drop_oldest()
    assert list(replays) == ["running", "settled"]
    replays.drop_oldest()
    assert list(replays) == ["running"]
    replays.drop_oldest()
    assert list(replays) == ["running"]
    replays.update({"ended": ended, "settled": settled})
    replays.drop_settled()
    assert list(replays) == ["running"]


def test_a_replay_is_forgotten_only_by_the_call_that_left_it() -> None:
    first, second = KnownCall("look", b"{}"), KnownCall("look", b"{}")
    replays = Replays(3)
    replays["key"] = second
    replays.forget("key", first)
    assert replays["key"] is second
    replays.forget("key", second)
    assert not replays


async def test_a_new_id_that_is_taken_for_a_forgotten_one_is_a_new_call(monkeypatch) -> None:
    """The filter errs now and then; the store then says that it has no such id."""
    monkeypatch.setattr(known_calls, "MAX_KNOWN", 4)
    async with open_bank() as bank:
        session, _ = await bank.open()
        await _ten_more(session)
        session.calls_by_id.forgotten.add("provider:new")
        answer = await session.call("write_note", {"text": "new"}, call_id="new")
        assert (answer.ok, answer.meta.get("replayed"), len(bank.book.starts)) == (True, None, 11)


async def test_nothing_is_held_under_an_id_of_calls_that_have_none() -> None:
    async with open_bank() as bank:
        session, _ = await bank.open()
        first, again = [await session.call("write_note", {"text": "a"}, call_id=None) for _ in range(2)]
        assert (first.ok, again.meta["replayed"], len(bank.book.starts)) == (True, True, 1)
        assert not session.calls_by_id
        assert not await bank.store.aliases(session.id)


async def test_a_held_call_of_a_message_is_stored_with_its_id_though_nothing_is_found_by_it() -> None:
    async with open_bank() as bank:
        session, ear = await bank.open()
        for call_id, text in (("call_0", "a"), (None, "b")):
            held = await session.call("delete_file", {"path": text}, call_id=call_id, id_scope="message")
            request = held.error.confirmation_request
            await settle()
            (token,) = [asked["token"] for asked in ear.of("confirmation") if asked["id"] == request["id"]]
            assert (await bank.runtime.approve(request["id"], token=token)).ok
        _, first = await bank.store.ledger_rows()
        (alias,) = await bank.store.aliases(session.id)
        assert (id_of_key(alias.call_id), alias.ledger_key, is_stable(alias)) == ("call_0", first.key, False)


def test_the_id_of_a_request_from_before_it_was_stored_by_itself_is_found_in_its_key() -> None:
    assert call_id_of(stored_hold(call_id=None, alias=stored_alias("provider:c1"))) == "c1"
    assert call_id_of(stored_hold(call_id="c1", alias=stored_alias("message:h1:c1"))) == "c1"
    assert call_id_of(stored_hold(call_id="c1", alias=None)) == "c1"
    assert call_id_of(stored_hold(call_id=None, alias=None)) is None


def test_the_store_is_asked_only_for_an_id_that_was_forgotten() -> None:
    known = CallIds()
    known["a"] = KnownCall("note", b"{}")
    assert not known.is_forgotten("a")
    assert not known.is_forgotten("b")
    known.forgotten = Forgotten()
    known.forgotten.add("a")
    known.forgotten.add("b")
    assert not known.is_forgotten("a"), "it is known again"
    assert known.is_forgotten("b")
    assert not known.is_forgotten("c")


def test_an_id_with_letters_beyond_ascii_is_stable_and_half_a_letter_is_none() -> None:
    assert id_key(Call(name="note", call_id="žuta"), 1) == "provider:žuta"
    assert id_key(Call(name="note", call_id="\ud800"), 1) is None
    assert id_key(Call(name="note", call_id="3:c1"), 1) == "provider::3:c1"
