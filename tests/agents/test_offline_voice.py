"""The offline model in a spoken conversation, over the whole engine: what the person hears, and what the tools get."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.agents.inventions import MONDAY, ZONE, Invented, Marks, built, text
from tests.agents.voice.kit import Client

from handrail.agents.conversation import Conversation
from handrail.agents.offline import OfflineModel
from handrail.agents.offline.aloud import aloud
from handrail.agents.voice.agent import VoiceAgent
from handrail.agents.voice.port import Abilities
from handrail.agents.voice.written import WrittenModel
from handrail.stores import MemoryStore
from handrail.testing import VirtualClock
from handrail.testing.hosting import hosted

CANCEL = Invented(
    "order_cancel",
    "action",
    "Cancels an order.",
    {"order_id": text("The order's number, such as A-1001.")},
    ("order_id",),
    confirm=True,
    fields={"preview": "Cancel the order {order_id}."},
)


class Caller(Client):
    """A person whose client recognises speech and speaks."""

    def __init__(self, marks: Marks) -> None:
        super().__init__()
        self.marks = marks
        self._said = 0

    async def say(self, words: str, *, spoken: bool = True) -> None:
        """Say something, without waiting for the answer."""
        assert self.talk is not None
        if spoken:
            self.talk.speech("started")
            self.talk.speech("ended")
        self._said += 1
        await self.talk.say(words, id=f"u{self._said}", spoken=spoken)

    async def ask(self, words: str) -> str:
        """Say something and hear the answer to it."""
        before = len(self.of("turn_done"))
        await self.say(words)
        await self.until("turn_done", before + 1)
        return self.answers[-1]

    async def asked(self, times: int = 1) -> None:
        await self.until(lambda client: self.question.count("asking") == times)

    @property
    def question(self) -> list[str]:
        return [data["state"] for data in self.of("question")]

    @property
    def heard(self) -> list[str]:
        return [data["text"] for data in self.of("speak")]

    @property
    def calls(self) -> list[tuple[str, Any]]:
        return [(data["toolId"], data["args"]) for data in self.of("tool_started")]


@asynccontextmanager
async def calling(*tools: Invented) -> AsyncIterator[Caller]:
    with built(*tools) as (kit, marks):
        clock = VirtualClock(MONDAY)
        async with kit.runtime(store=MemoryStore(clock=clock.milliseconds), clock=clock) as runtime:
            session = await runtime.open_session(mode="text", user="u1")
            caller = Caller(marks)
            agent = VoiceAgent(runtime, WrittenModel(OfflineModel(), clock=clock.time))
            abilities = Abilities(sound=False, recognises=True, speaks=True)
            talk = caller.talk = await agent.begin(session, Conversation(time_zone=ZONE), caller, abilities=abilities)
            async with hosted(talk):
                yield caller


# ------------------------------------------------------------------------------------------------------ approvals
async def test_what_is_held_is_heard_once_and_a_spoken_yes_is_not_contradicted() -> None:
    async with calling(CANCEL) as caller:
        await caller.say("Cancel order A-1001")
        await caller.asked()
        assert caller.heard == ["That needs your word.", "Cancel the order A-1001. Say yes or no."]
        await caller.say("Yes")
        await caller.until(lambda client: any("Order id" in words for words in caller.heard))
        assert caller.question == ["reading", "asking", "approved"]
        assert caller.heard[2:] == ["Done.", "Order id: A-1001."]
        assert caller.marks == [("order_cancel", {"order_id": "A-1001"})]


async def test_a_spoken_no_is_only_told_as_declined() -> None:
    async with calling(CANCEL) as caller:
        await caller.say("Cancel order A-1001")
        await caller.asked()
        await caller.say("No, thank you")
        await caller.until(lambda client: any("declined" in words for words in caller.heard))
        assert caller.heard[2:] == ["You declined that, so I left it."]
        assert caller.marks == []


@pytest.mark.parametrize("unclear", ["Yes, but a bit later", "I guess so", "Hm"])
async def test_after_an_unclear_answer_only_the_host_asks_again(unclear: str) -> None:
    async with calling(CANCEL) as caller:
        await caller.say("Cancel order A-1001")
        await caller.asked()
        await caller.say(unclear)
        await caller.asked(2)
        assert [words for words in caller.heard[2:] if "Cancel the order" not in words] == []
        await caller.say("Yes")
        await caller.until(lambda client: any("Done." in words for words in caller.heard))
        assert caller.question[-1] == "approved"
        assert not any("cannot" in words or "settled" in words for words in caller.heard)


# -------------------------------------------------------------------------------------------------------- leaving
WEATHER = Invented(
    "get_weather",
    "retrieval",
    "Current weather and forecast for a city.",
    {"city": text("The city.")},
    ("city",),
    "return {'ok': True, 'data': {'city': args['city'], 'temperature': 12}}",
)
HANG_UP = Invented(
    "voice_end",
    "action",
    "Ends the spoken part of the conversation.",
    {"why": {"type": "string", "enum": ["idle", "user_requested", "handover"], "description": "Why it ends."}},
    ("why",),
    """
    ctx.voice.end_session(after="current_turn", reason=args["why"])
    return {"ok": True, "data": {}}
    """,
    fields={"allowedModes": ["voice"], "capabilities": ["marks", "voice"]},
)


@pytest.mark.parametrize(
    "words",
    ["Goodbye", "bye, thank you", "End voice", "stop talking", "Please hang up", "Can you switch back to text?"],
)
async def test_voice_is_left_by_words(words: str) -> None:
    async with calling(WEATHER, HANG_UP) as caller:
        await caller.say(words)
        await caller.until("ended")
        assert caller.marks == [("voice_end", {"why": "user_requested"})]
        assert caller.heard == ["Goodbye."]


@pytest.mark.parametrize("words", ["How do I end voice?", "Stop", "Do not hang up", "What does the weather end with?"])
async def test_voice_is_not_left_by_words_that_only_sound_like_it(words: str) -> None:
    async with calling(WEATHER, HANG_UP) as caller:
        await caller.ask(words)
        assert caller.marks == []


async def test_a_goodbye_is_answered_where_nothing_can_end_voice() -> None:
    async with calling(WEATHER) as caller:
        assert await caller.ask("Goodbye") == "Goodbye."
        assert "cannot end voice" in await caller.ask("End voice")


# ------------------------------------------------------------------------------------------------------ text only
FREE = Invented(
    "rota_get_shifts",
    "retrieval",
    "Shows which times of a range are free and which are taken on the rota.",
    {"start": text("From.", format="date-time"), "end": text("Until.", format="date-time")},
    ("start", "end"),
    fields={"allowedModes": ["text"]},
)
MEET = Invented(
    "rota_book_meeting",
    "action",
    "Books a meeting on the rota.",
    {"title": text("What it is called."), "start": text("When.", format="date-time")},
    ("title", "start"),
    confirm=True,
    fields={"allowedModes": ["text"]},
)
MAIL = Invented(
    "check_email",
    "utility",
    "Checks whether a text is a well-formed e-mail address.",
    {"email": text("The address.")},
    ("email",),
    "return {'ok': True, 'data': {'valid': True}}",
)
ONLY_TEXT = "I can do that in text only, not in voice."


@pytest.mark.parametrize("words", ["Book a meeting with ana@example.com tomorrow at three", "When am I free tomorrow?"])
async def test_what_is_there_in_text_only_is_said_and_a_yes_ends_voice(words: str) -> None:
    async with calling(FREE, MEET, MAIL, WEATHER, HANG_UP) as caller:
        assert await caller.ask(words) == f"{ONLY_TEXT} Shall I end voice, so that you can type it?"
        assert caller.marks == []
        await caller.say("Yes, please")
        await caller.until("ended")
        assert caller.marks == [("voice_end", {"why": "handover"})]
        assert caller.heard[-1] == "All right, please type it."


async def test_voice_goes_on_if_the_person_stays_and_other_tools_are_used_as_ever() -> None:
    async with calling(FREE, MEET, MAIL, WEATHER, HANG_UP) as caller:
        await caller.ask("When am I free tomorrow?")
        assert await caller.ask("No") == "All right. What else can I do for you?"
        await caller.ask("What is the weather in Split tomorrow?")
        await caller.ask("Is ana@example.com a well-formed address?")
        assert [name for name, _ in caller.marks] == ["get_weather", "check_email"]


async def test_nothing_is_offered_that_nobody_can_do() -> None:
    async with calling(MEET, WEATHER) as caller:
        assert await caller.ask("Book a meeting tomorrow at three") == ONLY_TEXT


# ------------------------------------------------------------------------------------------------------ to be heard
SLOTS = Invented(
    "find_slots",
    "retrieval",
    "Finds free appointments on a day.",
    {"day": text("The day.", format="date")},
    ("day",),
    "return {'ok': True, 'data': {'slots': [args['day'] + hour for hour in ('T09:00', 'T09:30', 'T15:05')]}}",
)
VISIT = Invented(
    "book_visit",
    "action",
    "Books a visit.",
    {"name": text("Who comes."), "start": text("When, such as 2030-05-14T09:30."), "phone": text("To be reached.")},
    ("name", "start", "phone"),
    "return {'ok': True, 'data': {'start': args['start']}}",
)


async def test_times_and_lists_are_spoken_as_people_say_them() -> None:
    async with calling(SLOTS, VISIT) as caller:
        assert await caller.ask("Which appointments are free tomorrow?") == (
            "Slots: Tuesday 17 November at nine in the morning, nine thirty in the morning and three oh five in the afternoon."
        )
        assert await caller.ask("Book a visit tomorrow at ten") == "For that I still need the name and phone."
        assert await caller.ask("Ana Kovac, 555 0100") == "Done. Start: Tuesday 17 November at ten in the morning."
        await caller.ask("What can you do?")
        assert not any(words.startswith("-") or "\n" in words for words in caller.heard)


@pytest.mark.parametrize(
    ("written", "heard"),
    [
        ("Free:\n- a\n- b", "Free: a and b."),
        ("Pick:\n1. Monday 16 November, 08:00–12:00\n2. later", None),
        ("It is 2026-11-18T14:30:00Z.", "It is Wednesday 18 November at three thirty in the afternoon."),
        ("2027-01-02T00:00 is taken", "Saturday 2 January 2027 at midnight is taken."),
        ("See [the page](https://a.example/x) or https://a.example/y.", "See the page or."),
        ("`kb_get` reads **ids**.", "kb_get reads ids."),
        ("There is no 2026-13-40T09:00x.", "There is no 2026-13-40T09:00x."),
    ],
)
def test_what_is_written_is_made_to_be_heard(written: str, heard: str | None) -> None:
    now = datetime.fromtimestamp(MONDAY, ZoneInfo(ZONE))
    wanted = heard or "Pick: the first, Monday 16 November from eight in the morning to noon; the second, later."
    assert aloud(written, now) == wanted
