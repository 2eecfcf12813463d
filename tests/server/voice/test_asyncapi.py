"""The AsyncAPI document: its structure is that of AsyncAPI 3.0, and its schemas are those that the server uses."""

import re

from jsonschema_rs import Draft202012Validator, meta
from tests.server.kit import in_process

from handrail.server.voice.asyncapi import document
from handrail.server.voice.close_codes import CLOSINGS
from handrail.server.voice.voice_protocol import CLIENT, SERVER

_REF = {"type": "object", "properties": {"$ref": {"type": "string", "pattern": "^#/"}}, "required": ["$ref"],
        "additionalProperties": False}  # fmt: skip
_NAMED = {"type": "object", "propertyNames": {"pattern": r"^[A-Za-z0-9._-]+$"}}


def _only(required, **optional):
    """An object of the specification: these fields, and no other but extensions."""
    return {
        "type": "object",
        "properties": {**required, **optional},
        "patternProperties": {"^x-": True},
        "required": list(required),
        "additionalProperties": False,
    }


_TEXT = {"type": "string", "minLength": 1}
_PARAMETER = _only(
    {}, enum={"type": "array"}, default=_TEXT, description=_TEXT, examples={"type": "array"}, location=_TEXT
)
_WS = _only(
    {}, method={"enum": ["GET", "POST"]}, query={"type": "object"}, headers={"type": "object"}, bindingVersion=_TEXT
)
_CHANNEL = _only(
    {"address": {"type": ["string", "null"]}, "messages": {**_NAMED, "additionalProperties": _REF}},
    title=_TEXT, summary=_TEXT, description=_TEXT, servers={"type": "array", "items": _REF},
    parameters={**_NAMED, "additionalProperties": _PARAMETER},
    tags={"type": "array"}, bindings=_only({}, ws=_WS),
)  # fmt: skip
_OPERATION = _only(
    {"action": {"enum": ["send", "receive"]}, "channel": _REF},
    title=_TEXT, summary=_TEXT, description=_TEXT, messages={"type": "array", "items": _REF}, reply={"type": "object"},
)  # fmt: skip
_MESSAGE = _only(
    {"payload": {"type": "object"}},
    name=_TEXT, title=_TEXT, summary=_TEXT, description=_TEXT, contentType={"pattern": "^[a-z]+/[a-z0-9.+-]+$"},
    headers={"type": "object"}, correlationId={"type": "object"}, examples={"type": "array"},
)  # fmt: skip
ASYNCAPI = _only(
    {"asyncapi": {"const": "3.0.0"}, "info": _only({"title": _TEXT, "version": _TEXT}, description=_TEXT)},
    id=_TEXT, servers={"type": "object"}, defaultContentType=_TEXT,
    channels={**_NAMED, "additionalProperties": _CHANNEL}, operations={**_NAMED, "additionalProperties": _OPERATION},
    components=_only({}, messages={**_NAMED, "additionalProperties": _MESSAGE}, schemas={"type": "object"}),
)  # fmt: skip
"""Those parts of the specification's own schema that the document could use."""


def test_the_document_is_an_asyncapi_3_document():
    problems = [
        f"{error.instance_path}: {error.message}" for error in Draft202012Validator(ASYNCAPI).iter_errors(document())
    ]
    assert problems == []


def test_every_reference_leads_somewhere():
    whole = document()
    for place in _references(whole):
        found = whole
        for part in place.removeprefix("#/").split("/"):
            assert part in found, place
            found = found[part]


def test_an_operation_uses_messages_of_its_channel():
    """The specification wants references to the channel's messages, not to the components."""
    whole = document()
    for operation in whole["operations"].values():
        prefix = operation["channel"]["$ref"] + "/messages/"
        assert operation["messages"]
        assert all(one["$ref"].startswith(prefix) for one in operation["messages"])


def test_the_parameters_are_those_of_the_address():
    for channel in document()["channels"].values():
        assert set(channel["parameters"]) == set(re.findall(r"{(\w+)}", channel["address"]))


def test_every_payload_is_a_schema_and_every_message_is_there_once():
    messages = document()["components"]["messages"]
    for message in messages.values():
        assert meta.is_valid(message["payload"])
    told = {name.partition(".")[2] for name in messages if name.startswith("server.")}
    heard = {name.partition(".")[2] for name in messages if name.startswith("client.")}
    assert (told, heard) == (set(SERVER), set(CLIENT))
    used = [one["$ref"].rpartition("/")[2] for item in document()["operations"].values() for one in item["messages"]]
    assert sorted(used) == sorted(messages)


def test_the_schemas_are_those_that_check_messages():
    messages = document()["components"]["messages"]
    assert all(messages[f"client.{name}"]["payload"] == schema for name, schema in CLIENT.items())


def test_every_close_code_is_named():
    description = document()["info"]["description"]
    assert all(f"{closing.code} " in description for closing in CLOSINGS)
    assert len({closing.code for closing in CLOSINGS}) == len(CLOSINGS)


async def test_the_server_gives_it_to_everybody(tmp_path):
    async with in_process(tmp_path) as server:
        answer = await server.get("/asyncapi.json", key=None)
        assert answer.status_code == 200
        assert answer.json() == document()


def _references(value):
    if isinstance(value, dict):
        for name, inner in value.items():
            if name == "$ref":
                yield inner
            else:
                yield from _references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _references(inner)
