"""What the server promises holds for clients of MCP too: what the audit names, what a person is asked, what a key may use."""

from typing import Any

import pytest
from tests.runtime.kit import PAID, confirmed
from tests.server.kit import KEYS, USER, in_process

from handrail.contract.keys import Key
from handrail.mcp.server.options import McpOptions
from handrail.observe.verify import read_events
from handrail.server.keys import hash_of

ELICITS = {"elicitation": {}}
PAY = {"pay": (confirmed(preview="Pay {q}"), PAID)}


def yes(asked: Any) -> dict[str, Any]:
    answer = {"confirmation": {"action": "accept", "content": {"approve": True}}}
    return {"inputResponses": answer, "requestState": asked["result"]["requestState"]}


def question(asked: Any) -> str:
    return str(asked["result"]["inputRequests"]["confirmation"]["params"]["message"])


@pytest.mark.parametrize(
    ("key", "told"),
    [
        (Key(name="zoe", hash=hash_of(USER), user="zoe"), f"mcp key {hash_of(USER)[:12]}…"),
        (Key(name="zoe", hash=hash_of(USER), user="zoe", role="operator"), f"mcp key {hash_of(USER)[:12]}…"),
        (Key(name="desk", hash=hash_of(USER)), "mcp key desk"),
    ],
    ids=["personal", "personal-operator", "shared"],
)
async def test_the_audit_names_the_client_of_an_approval_but_never_its_user(tmp_path, key, told):
    options = McpOptions(trusted_clients=(key.name,))
    async with in_process(tmp_path, keys=(*KEYS[:1], key), tools=PAY, mcp=options, audited=True) as server:
        asked = await server.mcp("pay", {"q": "5"}, can=ELICITS)
        done = await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(asked))
        assert done["result"]["structuredContent"]["ok"]
        (row,) = server.runtime.store._db.execute("SELECT approved_via FROM hold").fetchall()
        assert row == (told,)
    lines = [*read_events(tmp_path / "audit", event="confirmation_approved")]
    assert [line["approvedVia"] for line in lines] == [told]


async def test_a_replaced_request_says_so_first_and_an_old_yes_does_not_pay(tmp_path):
    async with in_process(tmp_path, tools=PAY, mcp=McpOptions(trusted_clients=("ana",))) as server:
        first = await server.mcp("pay", {"q": "5"}, can=ELICITS)
        assert question(first) == "Pay 5"
        await server.mcp("pay", {"q": "6"}, can=ELICITS)
        again = await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(first))
        assert server.tools.started() == []
        assert question(again).splitlines()[0] == (
            "A newer request has replaced this one. Approve it only if you want both."
        )
        assert question(again).splitlines()[1] == "Pay 5"
        assert (await server.mcp("pay", {"q": "5"}, can=ELICITS, **yes(again)))["result"]["structuredContent"]["ok"]
        assert len(server.tools.started()) == 1
