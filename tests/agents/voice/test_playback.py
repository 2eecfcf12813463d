"""What counts as heard: only what the client says it has played, of an item whose sound all reached it."""

import asyncio

import pytest
from tests.agents.voice.kit import Client, obedient, voice
from tests.agents.voice.virtual import virtual_voice
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.state.events_and_effects import EffectQueue
from handrail.agents.voice.state.speech_output import Playback, SpokenItem
from handrail.testing.servers.live import Ask, Say, Turn, call
from handrail.testing.virtual_time import run_virtually

both = pytest.mark.parametrize("provider", PROVIDERS)


class PlaybackLog:
    """A playback whose time passes when a test says so, and the items that it said were over."""

    def __init__(self) -> None:
        self.over: list[int] = []
        self.effects = EffectQueue()
        self.effects.now = 0.0
        self.playback = Playback(self.effects, 5.0, lambda item: self.over.append(item.number), lambda playing: None)

    def item(self, number: int, ms: int = 1_000) -> SpokenItem:
        made = SpokenItem(number, None, 0.0)
        self.playback.add(made)
        made.sent_ms = ms
        self.playback.sent(ms, made)
        return made

    def said(self, number: int, text: str = "Buy it?") -> SpokenItem:
        made = SpokenItem(number, None, 0.0)
        self.playback.add(made)
        self.playback.given(made, f"s{number}", text)
        return made

    def wait(self, seconds: float) -> None:
        """Let time pass, and its timers with it."""
        until = self.effects.now + seconds
        timers = self.effects.timers
        while due := [timer for timer, at in timers.items() if at <= until]:
            timer = min(due, key=timers.__getitem__)
            self.effects.now = max(self.effects.now, timers.pop(timer))
            self.playback.elapsed(int(timer.subject))
        self.effects.now = until


@pytest.mark.parametrize(("ms", "heard"), [(0, False), (959, False), (960, True), (1_000, True), (99_999, True)])
def test_an_item_is_heard_only_if_its_milliseconds_were_played(ms: int, heard: bool) -> None:
    it = PlaybackLog()
    item = it.item(1)
    it.playback.completed(item)
    it.playback.played(1, ms, True)
    assert it.over == [1], "no more of it will be played, so nobody waits for it"
    assert item.reported is heard


@pytest.mark.parametrize("number", [None, 1])
def test_an_item_of_which_sound_was_lost_is_never_heard(number: int | None) -> None:
    it = PlaybackLog()
    item = it.item(1)
    it.playback.lost(number)
    it.playback.completed(item)
    it.playback.played(1, 1_000, True)
    assert it.over == [1]
    assert (item.spoiled, item.reported) == (True, False)


def test_a_loss_touches_its_own_item_and_nothing_that_was_heard_before() -> None:
    it = PlaybackLog()
    first, second, third = it.item(1), it.item(2), it.item(3)
    it.playback.completed(first)
    it.playback.played(1, 1_000, True)
    it.playback.lost(2)
    assert [one.spoiled for one in (first, second, third)] == [False, True, False]
    it.playback.lost(None)
    assert [one.spoiled for one in (first, second, third)] == [False, True, True]
    assert first.reported


def test_a_report_on_a_later_item_does_not_vouch_for_the_one_before() -> None:
    it = PlaybackLog()
    first, second = it.item(1), it.item(2)
    it.playback.completed(first)
    it.playback.completed(second)
    it.playback.played(2, 100, False)
    assert it.over == [1]
    assert not first.reported


def test_words_that_were_given_to_another_client_are_not_heard_either() -> None:
    it = PlaybackLog()
    item = it.said(1)
    it.playback.completed(item)
    it.playback.lost(None)
    it.playback.spoken("s1", True)
    assert it.over == [1]
    assert not item.reported


@both
async def test_a_preview_of_which_the_provider_s_sound_was_dropped_is_read_again(provider: str) -> None:
    buy = Turn([Ask(call("buy_table", guest="Ana")), Say("One moment.")], hears="Buy it")
    async with voice(provider, [buy]) as case:
        counters = case.voice.connection.counters

        def lossy(note: str) -> list[Say]:
            counters.dropped_audio_out += not counters.dropped_audio_out
            return list(obedient(note))  # type: ignore[arg-type]

        case.server.on_note = lossy
        await case.speak()
        await case.client.until(lambda client: any(one["state"] == "asking" for one in client.of("question")))
        assert [one["state"] for one in case.client.of("question")] == ["reading", "reading", "asking"]


@pytest.fixture
def as_in_production(words_settle_soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()


@pytest.mark.parametrize("reports", ["all at once", "as it goes", "before its end came"])
def test_sound_is_not_heard_before_it_can_have_been_played(as_in_production: None, reports: str) -> None:
    it = PlaybackLog()
    item = it.item(1, 3_000)
    if reports == "before its end came":
        it.playback.played(1, 3_000, True)
    it.playback.completed(item)
    it.wait(0.4)
    for ms in (1_000, 2_000, 3_000) if reports == "as it goes" else (3_000,):
        it.playback.played(1, ms, ms == 3_000)
    assert it.over == []
    it.wait(2.4)
    assert (it.over, item.reported) == ([], False)
    it.wait(0.2)
    assert (it.over, item.reported) == ([1], True)


def test_sound_that_is_still_coming_is_heard_after_its_last_piece(as_in_production: None) -> None:
    it = PlaybackLog()
    item = it.item(1, 1_000)
    it.wait(5.0)
    item.sent_ms += 1_000
    it.playback.sent(1_000, item)
    it.playback.completed(item)
    it.playback.played(1, 2_000, True)
    it.wait(0.9)
    assert it.over == []
    it.wait(0.1)
    assert item.reported


def test_words_are_not_spoken_faster_than_anybody_speaks(as_in_production: None) -> None:
    it = PlaybackLog()
    item = it.said(1, "Buy the table Ana for a hundred euros? Say yes or no.")
    it.playback.completed(item)
    it.playback.spoken("s1", True)
    assert it.over == []
    it.wait(1.1)
    assert item.reported


@both
def test_a_yes_is_no_answer_while_the_preview_cannot_have_been_heard(as_in_production: None, provider: str) -> None:
    async def play() -> None:
        buy = Turn([Ask(call("buy_table", guest="Ana " * 30))])
        async with virtual_voice(provider, [buy], client=Client()) as case:
            await case.voice.say("Buy it", id="m1")
            await case.client.until(lambda client: bool(client.of("audio_end")), seconds=30)
            (ended,) = case.client.of("audio_end")
            assert ended["ms"] > 2_500
            await asyncio.sleep(0.8)
            assert [one["state"] for one in case.client.of("question")] == ["reading"]
            await asyncio.sleep(2.5)
            assert [one["state"] for one in case.client.of("question")] == ["reading", "asking"]

    run_virtually(play())
