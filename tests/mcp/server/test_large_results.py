"""What leaves in one result has a largest size, in bytes and counting everything; the rest is a link for the caller."""

import base64
from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from handrail.contract.envelope import ToolResponse
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.results import Results
from handrail.stores import MemoryStore

ANA, BEN = Principal("ana", "laptop"), Principal("ben", "laptop")
LIMIT = 262_144
PICTURE = {"type": "image", "data": base64.b64encode(b"p" * 90_000).decode(), "mimeType": "image/png"}
SMALL = {"type": "image", "data": base64.b64encode(b"p" * 900).decode(), "mimeType": "image/png"}
PAGE: dict[str, Any] = {
    "type": "resource",
    "resource": {"uri": "demo://page", "mimeType": "text/plain", "text": "漢" * 80_000},
}


@pytest.mark.parametrize(
    ("data", "blocks", "links"),
    [
        ("x" * 1_000, [], 0),
        ("x" * 100_000, [], 0),
        ("x" * 200_000, [], 1),  # it is sent as text and as data
        ("漢" * 60_000, [], 1),
        ("漢" * 200_000, [], 1),
        ('"' * 100_000, [], 1),
        ("x", [SMALL, PICTURE, SMALL], 0),
        ("x", [PICTURE] * 22, 20),
        ("x", [PICTURE, PAGE, SMALL], 1),
        ("x" * 100_000, [PICTURE, SMALL], 1),
        ("x" * 300_000, [PICTURE], 1),
    ],
)
async def test_no_more_bytes_leave_in_a_result_than_are_allowed(
    data: str, blocks: list[Mapping[str, Any]], links: int
) -> None:
    store = MemoryStore()
    await store.open()
    results = Results(store, McpOptions(max_result_bytes=LIMIT))
    made = await results.of(ANA, ToolResponse(True, data, None, (), {}), blocks, session="s1")
    assert len(orjson.dumps(made)) <= LIMIT + 200
    linked = [block for block in made["content"] if block["type"] == "resource_link"]
    assert len(linked) == links
    whole = [block for block in made["content"] if block["type"] != "text"]
    kept = {orjson.dumps(block) for block in whole if block["type"] != "resource_link"}
    for link in linked:
        read = await results.read(ANA, link["uri"])
        assert read is not None
        assert await results.read(BEN, link["uri"]) is None
        if "blob" in read:
            kept.add(orjson.dumps({"type": "image", "data": read["blob"], "mimeType": read["mimeType"]}))
        elif read["mimeType"] == "text/plain":
            kept.add(orjson.dumps({**PAGE, "resource": {**PAGE["resource"], "text": read["text"]}}))
        else:
            assert orjson.loads(read["text"])["data"] == data
    assert kept == {orjson.dumps(block) for block in blocks}
    await store.close()
