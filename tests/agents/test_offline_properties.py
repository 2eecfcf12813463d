"""The offline model and whatever is thrown at it: it always ends a stream well, and its calls fit what was declared."""

import time
from zoneinfo import available_timezones

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema_rs import Draft202012Validator

from handrail import Call
from handrail.agents.offline import OfflineModel, zones
from handrail.agents.offline.moments import read_times
from handrail.agents.text import MOST_INPUT_CHARACTERS
from handrail.contract.model import (
    AssistantMessage,
    CallMade,
    Finished,
    HostMessage,
    ModelRequest,
    TextDelta,
    ToolMessage,
    UserMessage,
)

TEXT = {"type": "string", "minLength": 1, "maxLength": 80}
SCHEMAS = {
    "find_things": ({"query": TEXT}, ["query"]),
    "book_room": (
        {
            "title": TEXT,
            "start_time": {"type": "string", "format": "date-time"},
            "end_time": {"type": "string", "format": "date-time"},
            "guests": {"type": "array", "items": {"type": "string", "format": "email"}, "minItems": 1},
            "size": {"type": "string", "enum": ["small", "large"]},
        },
        ["title", "start_time", "end_time", "guests"],
    ),
    "set_heating": (
        {"room_id": {"type": "string", "pattern": "^[A-Z]-[0-9]+$"}, "degrees": {"type": "number", "maximum": 30}},
        ["room_id", "degrees"],
    ),
    "get_room": (
        {"ids": {"type": "array", "items": TEXT, "maxItems": 2}, "day": {"type": "string", "format": "date"}},
        ["ids"],
    ),
    "odd": (
        {"a": {"type": ["integer", "null"]}, "b": {"type": "object", "properties": {"c": TEXT}, "required": ["c"]}},
        ["a", "b"],
    ),
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "description": f"Lets you {name.replace('_', ' ')} for a meeting.",
            "parameters": {
                "type": "object",
                "additionalProperties": False,
                "properties": members,
                "required": required,
            },
        },
    }
    for name, (members, required) in SCHEMAS.items()
]
SYSTEM = "\n".join(
    f"- `{name}` ({category}): Summary of {name}."
    for name, category in zip(SCHEMAS, ("retrieval", "action", "action", "retrieval", "utility"), strict=True)
)
CHECKED = {
    one["function"]["name"]: Draft202012Validator(one["function"]["parameters"], validate_formats=True) for one in TOOLS
}

SAID = """book a room with ana@example.com tomorrow at three for 30 minutes | what is it | the second one | yes | no |
set the heating of A-17 to 21.5 degrees | find rooms called "Blue" | you idiot | in Zagreb | hello |
next Tuesday from 2 to 4 pm | get room B-2 and A-3"""
PHRASES = st.sampled_from([part.strip() for part in SAID.split("|")])
WORDS = st.lists(st.one_of(PHRASES, st.text(max_size=20)), min_size=1, max_size=4).map(" ".join)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**40), 2**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["id", "title", "start", "end", "results", "free", "busy", "text", "url", "score"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
ENVELOPES = st.one_of(
    JSON.map(lambda data: {"ok": True, "data": data, "intents": [], "meta": {}}),
    st.sampled_from(["NOT_FOUND", "CONFIRMATION_REQUIRED", "RATE_LIMIT", "DECLINED", "TRANSIENT"]).map(
        lambda kind: {"ok": False, "error": {"type": kind, "message": "No."}, "intents": [], "meta": {}}
    ),
)
TURN = st.tuples(
    WORDS, st.lists(st.tuples(st.sampled_from(sorted(SCHEMAS)), ENVELOPES), max_size=2), st.text(max_size=30)
)


def request_of(turns, last, called, note, may_call):
    messages = []
    for said, calls, answer in [*turns, (last, called, None)]:
        messages.append(UserMessage(said))
        for number, (name, envelope) in enumerate(calls):
            call = Call(name, {"query": "x"}, f"c{len(messages)}-{number}")
            messages += [AssistantMessage("", (call,)), ToolMessage(call.call_id, name, envelope)]
        if answer is not None:
            messages.append(AssistantMessage(answer))
    if note is not None:
        messages.append(HostMessage(note))
    session = {"now": "2026-11-16T10:00:00+01:00", "time_zone": "Europe/Zagreb", "mode": "text"}
    return ModelRequest(system=SYSTEM, messages=messages, tools=TOOLS, allow_calls=may_call, session=session)


@given(
    st.lists(TURN, max_size=2),
    WORDS,
    st.lists(st.tuples(st.sampled_from(sorted(SCHEMAS)), ENVELOPES), max_size=2),
    st.none()
    | st.text(max_size=60)
    | st.just('Note of the host: "book_room" was approved. Its envelope, which is data: {"ok": true}'),
    st.booleans(),
)
@example([], "", [], None, True)
@example([], "find " + "things " * 60, [], None, True)
@example([], "book a room tomorrow at three", [("find_things", {"ok": True, "data": []})], None, False)
async def test_any_conversation_ends_in_words_or_in_calls_that_fit(turns, last, called, note, may_call):
    events = [event async for event in OfflineModel().stream(request_of(turns, last, called, note, may_call))]

    assert [type(event) for event in events].count(Finished) == 1
    calls = [event.call for event in events if isinstance(event, CallMade)]
    words = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert bool(calls) != bool(words.strip())
    assert events[-1] == Finished("calls" if calls else "stop")
    assert may_call or not calls
    for call in calls:
        assert call.name in SCHEMAS
        CHECKED[call.name].validate(orjson.loads(orjson.dumps(call.args)))


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("x" * 30_000, id="letters"),
        pytest.param("a " * 15_000, id="words"),
        pytest.param("((((" * 5_000, id="brackets"),
        pytest.param("1:" * 10_000, id="colons"),
        pytest.param("'" * 9_999 + "a@", id="quotes"),
        pytest.param("\u202e" * 500, id="marks"),
        pytest.param("book a room" + "\n" * 30_000, id="lines"),
        pytest.param("book a meeting " + "9" * 400, id="beyond all numbers"),
        pytest.param("book a room tomorrow at 3 for 999999999999 hours", id="longer than a calendar"),
        pytest.param("book a room on 9999-12-31 at 23:30", id="the last hour of a calendar"),
    ],
)
async def test_enormous_and_odd_messages_are_answered(text):
    assert isinstance((await answer(text))[-1], Finished)


@pytest.mark.parametrize(
    ("begin", "part", "end"),
    [
        pytest.param("book a room with ", "_", "@", id="no address"),
        pytest.param("book a room with ", "1.", "@", id="digits and dots"),
        pytest.param("book a room with A", "b", "@", id="a name without an end"),
        pytest.param("book a room with Ann", " ", "(ann@example.com), Bob", id="space behind a name"),
        pytest.param("", "A", "", id="capitals"),
        pytest.param("what is a refund", "-", " for", id="dashes behind what was found"),
    ],
)
async def test_four_times_the_message_takes_nowhere_near_sixteen_times_the_work(begin, part, end):
    async def work(length):
        text = (begin + part * length)[: length - len(end)] + end
        return await least_time(text, found("A refund is paid.") if "refund" in begin else ())

    await work(100)  # what is made ready once is no part of it
    assert await work(MOST_INPUT_CHARACTERS) < 7 * await work(MOST_INPUT_CHARACTERS // 4)


async def test_four_times_a_record_takes_nowhere_near_sixteen_times_the_work():
    async def work(length):
        return await least_time("what is a refund?", found("A refund is paid. " + "[" * length))

    await work(100)
    assert await work(19_900) < 7 * await work(19_900 // 4)


@pytest.mark.parametrize("part", ["Europe/Nowhere ", "Europe/Paris ", "UTC Rome "])
async def test_zones_are_not_looked_up_on_the_disk_for_each_message(monkeypatch, part):
    await answer("what time is it in Rome?")
    looked_up = []
    monkeypatch.setattr(zones, "available_timezones", lambda: looked_up.append(1) or available_timezones())
    await answer(part * 100)
    assert not looked_up


async def test_a_message_full_of_clocks_is_not_read_once_more_for_each(monkeypatch):
    read = []
    monkeypatch.setattr(zones, "read_times", lambda *args: read.append(1) or read_times(*args))

    async def readings(text):
        read.clear()
        await answer(text)
        return len(read)

    assert 0 < await readings("3 Rome time " * 10) == await readings("3 Rome time " * 100)


async def answer(text, called=()):
    return [event async for event in OfflineModel().stream(request_of([], text, called, None, True))]


async def least_time(text, called):
    least = float("inf")
    for _ in range(3):
        before = time.process_time()
        await answer(text, called)
        least = min(least, time.process_time() - before)
    return least


def found(text):
    record = {"id": "R-1", "title": "Refunds", "text": text, "score": 0.9}
    return [("find_things", {"ok": True, "data": {"results": [record]}, "intents": [], "meta": {}})]
