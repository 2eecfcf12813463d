"""The history of identical calls that a turn gives to the store, and takes along to its next connection."""

from handrail.runtime.turns import TurnRecord, digest_of

A, B, C = ("look", b"1"), ("look", b"2"), ("write", b"3")


def test_the_history_counts_each_call_without_its_replays() -> None:
    turn = TurnRecord(1, 0.0)
    turn.identical = {A: 1, B: 3}
    turn.replayed = {B: 1}

    assert turn.counters()["identical"] == {digest_of(*A): 1, digest_of(*B): 2}


def test_a_new_connection_counts_on_where_the_last_ended_in_whatever_order_calls_come() -> None:
    turn = TurnRecord(1, 0.0)
    turn.identical = {A: 1}
    turn.begin_again()
    turn.identical[C] = 1
    turn.identical[A] = 1

    assert turn.counters()["identical"] == {digest_of(*A): 2, digest_of(*C): 1}

    turn.identical[B] = 1
    turn.identical[C] = 2
    assert turn.counters()["identical"] == {digest_of(*A): 2, digest_of(*C): 2, digest_of(*B): 1}


def test_the_history_is_bounded_and_keeps_the_newest() -> None:
    turn = TurnRecord(1, 0.0)
    turn.identical = {("look", b"%d" % number): 1 for number in range(200)}

    kept = turn.counters()["identical"]

    assert len(kept) == 64
    assert digest_of("look", b"199") in kept
    assert digest_of("look", b"0") not in kept


def test_the_history_keeps_the_newest_also_where_it_was_told_before() -> None:
    turn = TurnRecord(1, 0.0)
    for number in range(100):
        turn.identical["look", b"%d" % number] = 1
        told = turn.counters()["identical"]
        assert list(told.values()) == [1] * min(number + 1, 64)
        assert digest_of("look", b"%d" % number) in told

    assert set(told) == {digest_of("look", b"%d" % number) for number in range(36, 100)}


def test_what_the_store_was_told_stays_as_it_was() -> None:
    turn = TurnRecord(1, 0.0)
    turn.identical = {A: 1}
    turn.empties = {"look": 1}
    told = turn.counters()

    turn.identical[B] = 1
    turn.empties["look"] = 2

    assert turn.counters()["identical"] == {digest_of(*A): 1, digest_of(*B): 1}
    assert told["identical"] == {digest_of(*A): 1}
    assert told["empties"] == {"look": 1}


def test_the_history_stays_bounded_over_many_connections_and_keeps_the_newest() -> None:
    turn = TurnRecord(1, 0.0)
    for connection in range(5):
        for number in range(connection * 20, connection * 20 + 20):
            turn.identical["look", b"%d" % number] = 1
        turn.identical[C] = 2  # on every connection, so it is never old
        turn.has_repeats = True
        turn.begin_again()

    newest = {("look", b"%d" % number) for number in range(99, 36, -1)}
    assert set(turn.identical_before) == {digest_of(*C), *(digest_of(*key) for key in newest)}
    assert turn.identical_before[digest_of(*C)] == 10


def test_the_history_stays_bounded_where_a_turn_turns_out_to_be_an_earlier_one() -> None:
    before, turn = TurnRecord(1, 0.0), TurnRecord(2, 0.0)
    for which, begun in ((before, 0), (turn, 100)):
        which.identical = {("look", b"%d" % number): 1 for number in range(begun, begun + 60)}
        which.begin_again()
    turn.continue_from(before)

    assert len(turn.identical_before) == 64
    assert digest_of("look", b"100") in turn.identical_before
    assert digest_of("look", b"0") not in turn.identical_before
