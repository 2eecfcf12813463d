"""kb_get under the pipeline: records in the order asked, and missing is missing, whatever the reason."""

from pathlib import Path

import pytest

import handrail_reference
from handrail.testing import open_tools
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

TOOLS = Path(handrail_reference.__file__).parent / "tools"
RECORDS = [
    {"id": "person:ana_kovac", "title": "Ana Kovač", "text": "Runs onboarding.", "metadata": {"role": "lead"}},
    {"id": "doc:untitled", "text": "## First heading\n\nSome text.", "last_updated": "2026-03-01"},
    {"id": "doc:mine", "text": "private", "namespace": "personal", "owner": "u1"},
    {"id": "doc:tenant", "text": "acme", "tenant": "acme"},
]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    kb = KnowledgeBase(tmp_path_factory.mktemp("kb") / "kb.db")
    checked = [make_record(record) for record in RECORDS]
    kb.database.write_now(lambda db: put_records(db, checked, Tally()))
    with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
        yield kit
    kb.database.close_now()


def _get(kit, ids, mode="text", user=None, **args):
    return kit.call("kb_get", {"ids": ids, **args}, mode=mode, user=user).to_dict()


def test_records_come_in_the_order_asked_and_once(kit):
    data = _get(kit, ["doc:untitled", "person:nobody", "person:ana_kovac", "doc:untitled"])["data"]
    assert [record["id"] for record in data["records"]] == ["doc:untitled", "person:ana_kovac"]
    assert data["missing"] == ["person:nobody"]
    turned = _get(kit, ["person:ana_kovac", "person:nobody", "doc:untitled"])["data"]
    assert [record["id"] for record in turned["records"]] == ["person:ana_kovac", "doc:untitled"]


def test_fields_are_given_as_asked(kit):
    (record,) = _get(kit, ["doc:untitled"], return_fields=["full_text", "sources"])["data"]["records"]
    assert record["title"] == "First heading"
    assert record["full_text"] == "## First heading\n\nSome text."
    assert record["last_updated"] == "2026-03-01T00:00:00Z"
    assert record["sources"] == [{"id": "doc:untitled", "title": "First heading", "source": "", "url": None}]
    assert "snippet" not in record


def test_voice_never_has_the_full_text(kit):
    answer = _get(kit, ["person:ana_kovac"], mode="voice", return_fields=["full_text", "snippet"])
    assert "full_text" not in answer["data"]["records"][0]
    assert answer["meta"]["clamped"] == ["return_fields"]


def test_all_missing_is_not_found_with_the_nearest_ids(kit):
    error = _get(kit, ["person:ana_kovacs"])["error"]
    assert error["type"] == "NOT_FOUND"
    assert "person:ana_kovacs" in error["message"]
    assert error["details"][0]["nearest"] == ["person:ana_kovac"]
    assert "person:ana_kovac" in error["suggestion"]
    assert "kb_search" in _get(kit, ["lab:zzzzzzzz"])["error"]["suggestion"]


@pytest.mark.parametrize(("user", "found"), [(None, False), ("u2", False), ("u1", True)])
def test_a_record_of_somebody_else_is_missing_like_one_that_does_not_exist(kit, user, found):
    answer = _get(kit, ["doc:mine"], user=user, namespace="personal")
    assert answer["ok"] is found
    if not found:
        assert answer["error"]["type"] == "NOT_FOUND"
        assert answer["error"]["details"][0]["nearest"] == []
    assert _get(kit, ["doc:mine"], user="u1")["ok"] is False


async def test_tenants_do_not_see_each_other(kit):
    async with kit.runtime() as runtime:
        session = await runtime.open_session(tenant="acme")
        await session.begin_turn()
        answer = await session.call("kb_get", {"ids": ["doc:tenant", "person:ana_kovac"]})
        assert [record["id"] for record in answer.data["records"]] == ["doc:tenant"]
        assert answer.data["missing"] == ["person:ana_kovac"]


@pytest.mark.parametrize(
    "ids", [[], ["a:b"] * 6, [""], [5], "person:ana_kovac", ["x" * 251]], ids=lambda ids: str(ids)[:30]
)
def test_bad_arguments_are_refused(kit, ids):
    assert _get(kit, ids)["error"]["type"] == "VALIDATION"


@pytest.mark.parametrize("id", ["' OR '1'='1", "%", "person:*", "person:ana\u0000", "\u202e", "person:ana_kovac' --"])
def test_an_id_is_never_syntax(kit, id):
    assert _get(kit, [id])["error"]["type"] in ("NOT_FOUND", "VALIDATION")


async def test_the_same_call_is_answered_from_before_and_charged_once(kit):
    async with kit.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        await session.begin_turn()
        for _ in range(5):
            answer = await session.call("kb_get", {"ids": ["person:ana_kovac"]}, call_id="c1")
            assert answer.ok
        assert answer.meta["replayed"] is True
        assert (await session.call("kb_get", {"ids": ["doc:untitled"]}, call_id="c2")).ok
        assert (await session.call("kb_get", {"ids": ["doc:x"]}, call_id="c3")).error.type == "BUDGET_EXCEEDED"
