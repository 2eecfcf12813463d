"""A few conversations of the chaos in every run, 300 with each provider in the long one; `chaos` is the play itself."""

from functools import partial

import pytest
from tests.clients.live.kit import PROVIDERS
from tests.conftest import RecordFigures
from tests.postgres_server import PostgresServer
from tests.voice import socket_chaos, two_server_chaos
from tests.voice.chaos import Tally, play_many, without_the_ledger

both = pytest.mark.parametrize("provider", PROVIDERS)


def check(tally: Tally, record_figures: RecordFigures) -> None:
    record_figures(tally)
    assert tally.effects > 0
    assert tally.wrong == []


@both
async def test_nothing_is_doubled_or_lost_whatever_happens_to_the_line(
    provider: str, record_figures: RecordFigures
) -> None:
    tally = Tally()
    for first in range(0, 36, 6):  # few as they are, they may be without a spoken yes
        tally.add(await play_many(provider, range(first, first + 6), at_once=6))
        if tally.by_voice:
            break
    check(tally, record_figures)
    assert tally.by_voice > 0


@both
async def test_nothing_is_doubled_or_lost_when_the_users_line_breaks_too(
    provider: str, record_figures: RecordFigures
) -> None:
    check(await play_many(provider, range(2), one_play=socket_chaos.play), record_figures)


@both
async def test_nothing_is_doubled_or_lost_when_servers_stop_in_the_middle(
    provider: str, postgres: PostgresServer, record_figures: RecordFigures
) -> None:
    with postgres.borrowed() as store:
        tally = await play_many(provider, range(1), one_play=partial(two_server_chaos.play, store=store))
    check(tally, record_figures)
    assert tally.happened["server stopped"] >= 2


@pytest.mark.long
@both
async def test_nothing_is_doubled_or_lost_in_many_conversations_over_two_servers(
    provider: str, postgres: PostgresServer, record_figures: RecordFigures
) -> None:
    store = postgres.new_database()
    tally = await play_many(
        provider, range(3_000, 3_016), at_once=2, one_play=partial(two_server_chaos.play, store=store, every=20.0)
    )
    check(tally, record_figures)


@pytest.mark.long
@both
async def test_nothing_is_doubled_or_lost_in_many_conversations(provider: str, record_figures: RecordFigures) -> None:
    tally = await play_many(provider, range(1_000, 1_240))
    check(tally, record_figures)
    assert tally.by_voice > 0
    check(await play_many(provider, range(2_000, 2_060), at_once=2, one_play=socket_chaos.play), record_figures)


@pytest.mark.long
async def test_without_the_ledger_the_same_conversations_do_double(record_figures: RecordFigures) -> None:
    with without_the_ledger():
        tally = await play_many("gemini-live", range(1_000, 1_030))
    record_figures(f"control without the ledger, {tally}")
    assert tally.doubled
