"""What counts as heard: only what the client says it has played, of an item whose sound all reached it."""

import pytest
from tests.agents.voice.kit import obedient, voice
from tests.clients.live.kit import PROVIDERS

from handrail.agents.voice.items import Item, Playback
from handrail.testing.servers.live import Ask, Say, Turn, call

both = pytest.mark.parametrize("provider", PROVIDERS)


class Heard:
    """A playback, and what it said was over."""

    def __init__(self) -> None:
        self.over: list[int] = []
        self.playback = Playback(5.0, lambda item: self.over.append(item.number), lambda playing: None)

    def item(self, number: int, ms: int = 1_000) -> Item:
        made = Item(number, None, 0.0)
        self.playback.add(made)
        made.sent_ms = ms
        self.playback.sent(ms)
        return made

    def said(self, number: int, text: str = "Buy it?") -> Item:
        made = Item(number, None, 0.0)
        self.playback.add(made)
        self.playback.given(made, f"s{number}", text)
        return made


@pytest.mark.parametrize(("ms", "heard"), [(0, False), (959, False), (960, True), (1_000, True), (99_999, True)])
async def test_an_item_is_heard_only_if_its_milliseconds_were_played(ms: int, heard: bool) -> None:
    it = Heard()
    item = it.item(1)
    it.playback.completed(item)
    it.playback.played(1, ms, True)
    assert it.over == [1], "no more of it will be played, so nobody waits for it"
    assert item.reported is heard
    it.playback.close()


@pytest.mark.parametrize("number", [None, 1])
async def test_an_item_of_which_sound_was_lost_is_never_heard(number: int | None) -> None:
    it = Heard()
    item = it.item(1)
    it.playback.lost(number)
    it.playback.completed(item)
    it.playback.played(1, 1_000, True)
    assert it.over == [1]
    assert (item.spoiled, item.reported) == (True, False)
    it.playback.close()


async def test_a_loss_touches_its_own_item_and_nothing_that_was_heard_before() -> None:
    it = Heard()
    first, second, third = it.item(1), it.item(2), it.item(3)
    it.playback.completed(first)
    it.playback.played(1, 1_000, True)
    it.playback.lost(2)
    assert [one.spoiled for one in (first, second, third)] == [False, True, False]
    it.playback.lost(None)
    assert [one.spoiled for one in (first, second, third)] == [False, True, True]
    assert first.reported
    it.playback.close()


async def test_a_report_on_a_later_item_does_not_vouch_for_the_one_before() -> None:
    it = Heard()
    first, second = it.item(1), it.item(2)
    it.playback.completed(first)
    it.playback.completed(second)
    it.playback.played(2, 100, False)
    assert it.over == [1]
    assert not first.reported
    it.playback.close()


async def test_words_that_were_given_to_another_client_are_not_heard_either() -> None:
    it = Heard()
    item = it.said(1)
    it.playback.completed(item)
    it.playback.lost(None)
    it.playback.spoken("s1", True)
    assert it.over == [1]
    assert not item.reported
    it.playback.close()


@both
async def test_a_preview_of_which_the_provider_s_sound_was_dropped_is_read_again(provider: str) -> None:
    buy = Turn([Ask(call("buy_table", guest="Ana")), Say("One moment.")], hears="Buy it")
    async with voice(provider, [buy]) as scene:
        counters = scene.talk.connection.counters

        def lossy(note: str) -> list[Say]:
            counters.dropped_audio_out += not counters.dropped_audio_out
            return list(obedient(note))  # type: ignore[arg-type]

        scene.server.on_note = lossy
        await scene.speak()
        await scene.client.until(lambda client: any(one["state"] == "asking" for one in client.of("question")))
        assert [one["state"] for one in scene.client.of("question")] == ["reading", "reading", "asking"]
