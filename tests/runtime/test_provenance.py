"""What the audit keeps of a call's input: what was sent, read and validated, by which validator; never a secret."""

import json

import pytest
from tests.runtime.kit import FOUND, audited, reading

from handrail.contract.provenance import INPUT_BYTES, cut_input
from handrail.observe.sealing import open_event
from handrail.observe.verify import read_events
from handrail.stores import MemoryStore

PARAMETERS = {
    "type": "object",
    "properties": {
        "q": {"type": "string", "description": "What to look for."},
        "top_k": {"type": "integer", "default": 5, "description": "How many."},
    },
    "required": ["q"],
    "additionalProperties": False,
}
SECRET = {
    **PARAMETERS,
    "properties": {
        **PARAMETERS["properties"],
        "pin": {"type": "string", "writeOnly": True, "description": "A secret."},
    },
}
TOOLS = {
    "look": (reading(parameters=PARAMETERS), FOUND),
    "open_door": (reading(parameters=SECRET), FOUND),
}


async def lines(make_tools, *calls, policy=None):
    """The audit's lines of these calls."""
    async with make_tools(TOOLS) as world:
        runtime = world.runtime(policy=policy or {})
        session = await world.session(runtime=runtime)
        for number, (tool, args) in enumerate(calls):
            await session.call(tool, args, call_id=f"c{number}", provider="openai-chat")
        return audited(runtime, "execution", "refusal")


async def test_what_was_sent_parsed_and_validated_stands_in_the_line_with_the_validator(make_tools):
    (line,) = await lines(make_tools, ("look", ' {"q": "tea"} '))
    assert line["input"] == ' {"q": "tea"} '
    assert line["parsed"] == {"q": "tea"}
    assert line["args"] == {"q": "tea", "top_k": 5}
    assert line["validator"]["name"] == "jsonschema-rs"
    assert set(line["validator"]) == {"name", "version", "compiledAt"}
    assert line["validatorMs"] > 0


async def test_what_is_the_same_stands_there_once(make_tools):
    (line,) = await lines(make_tools, ("look", {"q": "tea", "top_k": 1}))
    assert "input" not in line
    assert "parsed" not in line


async def test_a_repaired_call_keeps_what_it_was_repaired_from(make_tools):
    (line,) = await lines(make_tools, ("look", '{"q": "tea", "top_k": "3",}'), policy={"repair": True})
    assert line["repaired"] is True
    assert line["input"] == '{"q": "tea", "top_k": "3",}'
    assert line["parsed"] == {"q": "tea", "top_k": "3"}
    assert line["args"] == {"q": "tea", "top_k": 3}


@pytest.mark.parametrize("sent", ['{"q": 3}', "{not json", {"q": 3}])
async def test_a_refused_call_keeps_its_exact_input(make_tools, sent):
    (line,) = await lines(make_tools, ("look", sent))
    assert (line["event"], line["input"]) == ("refusal", sent)
    assert line["validator"]["name"] == "jsonschema-rs"


async def test_a_call_of_no_tool_keeps_its_input_too(make_tools):
    (line,) = await lines(make_tools, ("lok", '{"q": 3}'))
    assert line["input"] == '{"q": 3}'


@pytest.mark.parametrize("sent", ['{"q": 3, "pin": "1234"}', {"q": 3, "pin": "1234"}, '{"pin": "1234"'])
@pytest.mark.parametrize("tool", ["open_door", "nothing"])
async def test_secrets_are_hidden_in_what_was_refused(make_tools, sent, tool):
    (line,) = await lines(make_tools, (tool, sent), policy={"redact": ["pin"]})
    assert "1234" not in json.dumps(line)
    assert "[redacted]" in json.dumps(line["input"])


async def test_secrets_are_hidden_in_what_ran(make_tools):
    (line,) = await lines(make_tools, ("open_door", '{"q": "front", "pin": "1234"}'))
    assert "1234" not in json.dumps(line)
    assert line["parsed"] == {"q": "front", "pin": "[redacted]"}
    assert "input" not in line


async def test_what_a_user_sent_is_gone_when_they_are_forgotten(make_tools, tmp_path):
    async with make_tools(TOOLS) as world:
        runtime = world.runtime(audit=tmp_path / "audit")
        session = await world.session(runtime=runtime, user="ana")
        await session.call("look", '{"q": "tea of ana"}', call_id="c1")
        await session.call("look", '{"w": "tea of ana"}', call_id="c2")
        runtime.audit.flush()
        found = [line for line in read_events(tmp_path / "audit") if line.get("callId") in ("c1", "c2")]
        assert len(found) == 2
        for line in found:
            assert "tea of ana" not in json.dumps(line)
            assert line["sealed"]
            assert line["validator"]["name"] == "jsonschema-rs", "which is nobody's"
        whose = session.pseudonym
        before = open_event(found[0], await world.store.audit_secrets([whose]))
        assert before["input"] == '{"q": "tea of ana"}'
        await world.store.forget_user("", "ana")
        after = open_event(found[0], await world.store.audit_secrets([whose]))
        assert after["erased"] is True
        assert "input" not in after


def test_only_the_beginning_of_what_is_long_is_kept():
    assert cut_input("ž" * 3000) == {"input": "ž" * (INPUT_BYTES // 2), "inputBytes": 6000}
    cut = cut_input({"q": "x" * 5000})
    assert len(cut["input"]) == INPUT_BYTES
    assert cut["inputBytes"] == 5000 + len('{"q": ""}')
    assert cut_input("x" * INPUT_BYTES) == {"input": "x" * INPUT_BYTES}


def test_what_is_no_json_is_named():
    ring = []
    ring.append(ring)
    assert cut_input({1, 2}) == {"input": "(no JSON: set)"}
    assert cut_input(ring) == {"input": "(no JSON: list)"}
    assert cut_input(MemoryStore) == {"input": "(no JSON: ABCMeta)"}
