"""Plain questions about Handrail and its tools have answers with sources, and nothing else is dragged into them."""

import json
import tomllib
from pathlib import Path

import pytest
from tests.agents.inventions import desk
from tests.agents.test_offline_model import HELP_SEARCH, ORDER_LOOKUP

from handrail.clients import CLIENTS
from handrail.runtime.policy import Policy
from handrail.server.options import Options
from handrail_reference.services.kb.starter_answers import ANSWERS, in_sentences

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("which providers are supported?", "OpenAI (Chat Completions and Responses), Anthropic, Gemini and Ollama"),
        ("What providers does Handrail support?", "Anthropic, Gemini and Ollama"),
        ("can I use Claude with handrail?", "Claude is used through Anthropic"),
        ("what is the default port of handrail serve?", "8484"),
        ("which port does the server listen on?", "8484"),
        ("What does the budget gate do and what's the default in voice?", "2 retrieval calls and 3 calls in all"),
        ("how many calls may a model make in voice?", "3 calls in all"),
        ("how many retrieval calls are allowed in text?", "5 retrieval calls"),
        ("which python version do I need?", "Python 3.11"),
        ("how long does a held call wait for approval?", "300 seconds"),
        ("what is max_sessions?", "10000"),
        ("how do I import documents into the knowledge base?", "handrail kb import"),
        ("what happens when a tool takes too long?", "TIMEOUT"),
        ("what port is used by default?", "8484"),
        ("how do I export the knowledge base?", "handrail kb export"),
        ("which gates are there?", "session, mode, availability"),
        ("which tools come with handrail?", "linkedin_lookup"),
        ("is it possible to export the calendar?", "handrail calendar export"),
        ("where do I put my api key?", "environment"),
        ("how do I add a tool?", "handrail new NAME"),
        ("how can I see why a call was refused?", "handrail audit why CALL"),
        ("what is a registry?", "handrail build"),
    ],
)
async def test_a_plain_question_has_a_cited_answer(at_home, words, told):
    async with at_home() as here:
        answer = await here.say(words)
        assert told in answer.partition("Sources:")[0]
        assert "[1]" in answer
        assert here.done["citations"]


@pytest.mark.parametrize(
    ("words", "tool"),
    [
        ("What is kb_search?", "kb_search"),
        ("how do I use calendar_create_event?", "calendar_create_event"),
        ("tell me about the tool image_generate", "image_generate"),
        ("what does validate_email do", "validate_email"),
    ],
)
async def test_a_question_about_a_tool_is_answered_by_its_guide(at_home, words, tool):
    async with at_home() as here:
        answer = await here.say(words)
        assert here.calls == [("get_tool_guide", {"tool_id": tool})]
        assert answer.startswith(f"{tool}: ") or "[1]" in answer
        assert f"The guide of {tool}" in answer


async def test_without_guides_a_tool_is_told_by_its_description():
    async with desk(ORDER_LOOKUP, HELP_SEARCH) as here:
        assert "Looks up an order of the shop" in await here.say("What is order_lookup?")
        assert here.calls == []


async def test_where_nothing_answers_the_closest_records_are_shown_and_not_only_named(at_home):
    async with at_home() as here:
        answer = await here.say("who painted the ceiling of the voice server?")
        assert "I found nothing that answers this directly" in answer
        closest = answer.partition("The closest records are:")[2].partition("Sources:")[0]
        assert closest.count("\n- ") >= 1


@pytest.mark.parametrize(
    "words",
    ["what time is it in Tokyo?", "is it raining?", "What day is it?", "is it safe?", "how late is it in New York"],
)
async def test_an_it_that_stands_for_nothing_drags_nothing_in(at_home, words):
    async with at_home() as here:
        await here.say("draw me a picture of a red fox")
        await here.say(words)
        assert "fox" not in json.dumps(here.calls)


async def test_an_it_that_stands_for_something_still_does():
    async with desk(HELP_SEARCH) as here:
        await here.say("How can I return a parcel?")
        for words in ("who pays for it?", "how long does it take?", "and what does it cost?"):
            await here.say(words)
            assert "parcel" in here.calls[0][1]["query"]


@pytest.mark.parametrize("words", ["cancel my meeting", "draw a cat", "show the weather", "find my notes"])
async def test_a_command_of_its_own_ends_an_open_question(at_home, words):
    async with at_home() as here:
        assert "is over" in await here.say("book a meeting with ana@example.com yesterday at three")
        answer = await here.say(words)
        assert "is over" not in answer


async def test_a_short_answer_is_still_one(at_home):
    async with at_home() as here:
        await here.say("book a meeting with ana@example.com yesterday at three")
        await here.say("tomorrow")
        assert dict(here.calls)["calendar_create_event"]["start_time"] == "2026-11-17T15:00:00+01:00"


# ------------------------------------------------------------------------------------------------ the starter base
def test_what_the_answers_state_is_so():
    told = {name: text for name, (_, text) in ANSWERS.items()}
    policy = Policy()
    assert f"is {Options().port}, on the address {Options().host}" in told["port"]
    voice, written = policy.voice, policy.text
    assert f"voice is {voice.retrieval_calls} retrieval calls and {voice.total_calls} calls in all" in told["budget"]
    assert f"text is {written.retrieval_calls} retrieval calls" in told["budget"]
    assert f"{round(policy.timeout_ms / 1000)} seconds" in told["timeout"]
    assert f"{round(written.confirmation_seconds)} seconds for its approval in text" in told["approval"]
    assert f"{round(voice.confirmation_seconds)} seconds in voice" in told["approval"]
    assert f"in memory for {Options().idle_seconds:g} seconds" in told["sessions"]
    assert f"for {Options().keep_days:g} days" in told["sessions"]
    folders = (ROOT / "src/handrail_reference/tools").glob("*/schema.json")
    assert all(folder.parent.name.replace("-", "_") in told["tools"] for folder in folders)
    assert all(client.keys[0] in told["keys"] for name, client in CLIENTS.items() if name != "ollama")
    about = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert f"Python {about['requires-python'].removeprefix('>=')} or newer" in told["requirements"]
    assert f"license of Handrail is {about['license']}" in told["requirements"]
    gates = {path.stem for path in (ROOT / "src/handrail/runtime/gates").glob("[a-z]*.py")}
    assert all(gate in told["gates"] for gate in gates)
    assert all(name.partition("-")[0].lower() in told["providers"].lower() for name in CLIENTS)


def test_a_table_becomes_sentences_and_code_stays_code():
    table = (
        "| key | default | what it does |\n| --- | --- | --- |\n| `a`, `b` | 1, 2 | where it is |\n| c \\| d | | x |"
    )
    text = f"Before.\n\n{table}\n\n```\n| not | one |\n```"
    assert in_sentences(text) == (
        "Before.\n\n- `a`: default 1; where it is.\n- `b`: default 2; where it is.\n- c | d: x.\n\n```\n| not | one |\n```"
    )


@pytest.mark.parametrize(
    ("words", "zone"), [("what time is it in Lima?", "America/Lima"), ("what's the time in Tokyo", "Asia/Tokyo")]
)
async def test_the_time_in_a_city_is_worked_out(at_home, words, zone):
    async with at_home() as here:
        await here.say(words)
        [(name, args)] = here.calls
        assert name == "format_datetime"
        assert (args["value"], args["time_zone"]) == ("2026-11-16T10:00:00+01:00", zone)


@pytest.mark.parametrize(
    "words", ["could you water my plants?", "can you please walk the dog", "would you wash my car?"]
)
async def test_a_deed_that_is_asked_for_politely_is_no_question(at_home, words):
    async with at_home() as here:
        assert "I have no tool for that" in await here.say(words)
        assert here.calls == []


async def test_a_tool_that_is_named_by_its_own_word_is_used(at_home):
    async with at_home() as here:
        await here.say("what is the linkedin page of Ana Kovac?")
        assert here.calls[0] == ("linkedin_lookup", {"name": "Ana Kovac"})
