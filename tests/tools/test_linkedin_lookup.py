"""linkedin_lookup under the pipeline: stored addresses, and never one that is made up."""

from pathlib import Path

import pytest

import handrail_reference
from handrail.testing import open_tools
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

TOOLS = Path(handrail_reference.__file__).parent / "tools"
TRICKS = [
    "https://evil.example?@linkedin.com/in/ana",
    "https://evil.example#@linkedin.com/in/ana",
    "https://evil.example/@linkedin.com/in/ana",
    "https://user:x@linkedin.com/in/ana",
    "https://linkedin.com",
    "https://www.linkedin.com/",
    "https://www.linkedin.com?in/ana",
    "https://linkedin.com:8443/in/ana",
    "https://evil.example\\@linkedin.com/in/ana",
    "https://evil.example\\.linkedin.com/in/ana",
    "https://[linkedin.com/in/ana",
    "javascript:https://linkedin.com/in/ana\n",
]
RECORDS = [
    {"id": "person:ana_kovac", "title": "Ana Kovač", "url": "https://www.linkedin.com/in/ana"},
    {"id": "person:ana_marija", "title": "Ana Marija Kovač", "metadata": {"profile": "https://hr.linkedin.com/in/am"}},
    {"id": "person:bo", "title": "Bo", "url": "https://example.org/linkedin.com/in/bo", "text": "linkedin.com/in/bo"},
    {"id": "person:evil", "title": "Eve", "url": "https://linkedin.com.evil.example/in/eve"},
    {"id": "person:at", "title": "At", "url": "https://linkedin.com@evil.example/in/at"},
    *({"id": f"person:trick{n}", "title": f"Trick{n}", "url": url} for n, url in enumerate(TRICKS[:-4])),
    *({"id": f"person:meta{n}", "title": f"Meta{n}", "metadata": {"profile": url}} for n, url in enumerate(TRICKS)),
    {"id": "person:will", "title": "Will May", "url": "https://linkedin.com/in/will"},
    {"id": "link:mine", "title": "Zoe", "url": "https://linkedin.com/in/zoe", "namespace": "personal", "owner": "u1"},
]


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    kb = KnowledgeBase(tmp_path_factory.mktemp("kb") / "kb.db")
    checked = [make_record(record) for record in RECORDS]
    kb.database.write_now(lambda db: put_records(db, checked, Tally()))
    with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
        yield kit
    kb.database.close_now()


def _matches(kit, user=None, **args):
    answer = kit.call("linkedin_lookup", args, user=user).to_dict()
    assert answer["ok"], answer
    return [(match["id"], match["url"]) for match in answer["data"]["matches"]]


@pytest.mark.parametrize("name", ["Ana Kovač", "ana kovac", "KOVAČ, Ana"])
def test_a_name_is_found_without_case_accents_and_order(kit, name):
    assert _matches(kit, name=name) == [
        ("person:ana_kovac", "https://www.linkedin.com/in/ana"),
        ("person:ana_marija", "https://hr.linkedin.com/in/am"),
    ]


def test_a_name_of_common_words_is_a_name(kit):
    assert _matches(kit, name="will may") == [("person:will", "https://linkedin.com/in/will")]


def test_an_id_gives_its_stored_address(kit):
    assert _matches(kit, id="person:ana_marija") == [("person:ana_marija", "https://hr.linkedin.com/in/am")]
    assert _matches(kit, id="person:nobody") == []


@pytest.mark.parametrize("name", ["Bo", "Eve", "At", "Nobody Here", "Ana Novak", "*", "' OR 1=1 --"])
def test_nothing_is_made_up_and_other_hosts_do_not_count(kit, name):
    assert _matches(kit, name=name) == []


@pytest.mark.parametrize("number", range(len(TRICKS)))
def test_an_address_that_somebody_could_take_for_another_host_is_not_given(kit, number):
    assert _matches(kit, name=f"trick{number}") == []
    assert _matches(kit, name=f"meta{number}") == []
    assert _matches(kit, id=f"person:meta{number}") == []


async def test_the_same_call_is_answered_from_before_whatever_the_base_says_now(tmp_path):
    kb = KnowledgeBase(tmp_path / "kb.db")
    kb.database.write_now(lambda db: put_records(db, [make_record(RECORDS[0])], Tally()))
    with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
        async with kit.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            first = await session.call("linkedin_lookup", {"id": "person:ana_kovac"}, call_id="c1")
            changed = make_record({**RECORDS[0], "url": "https://www.linkedin.com/in/other"})
            await kb.database.write(lambda db: put_records(db, [changed], Tally()))
            again = await session.call("linkedin_lookup", {"id": "person:ana_kovac"}, call_id="c1")
            fresh = await session.call("linkedin_lookup", {"id": "person:ana_kovac"}, call_id="c2")
    await kb.close()
    assert "replayed" not in first.meta
    assert (again.meta["replayed"], again.data) == (True, first.data)
    assert fresh.data["matches"][0]["url"] == "https://www.linkedin.com/in/other"


def test_only_what_the_user_may_read_is_looked_through(kit):
    assert _matches(kit, name="zoe") == []
    assert _matches(kit, user="u2", name="zoe") == []
    assert _matches(kit, user="u1", name="zoe") == [("link:mine", "https://linkedin.com/in/zoe")]


@pytest.mark.parametrize(
    "args", [{}, {"name": "Ana", "id": "person:ana_kovac"}, {"name": ""}, {"name": "x" * 201}, {"x": 1}]
)
def test_one_of_the_two_is_wanted(kit, args):
    assert kit.call("linkedin_lookup", args).to_dict()["error"]["type"] == "VALIDATION"


async def test_it_counts_as_retrieval_in_voice(kit):
    async with kit.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        await session.begin_turn()
        first = await session.call("linkedin_lookup", {"name": "ana kovac"}, call_id="c1")
        assert first.meta["budget"]["retrieval"] == 1
        again = await session.call("linkedin_lookup", {"name": "ana kovac"}, call_id="c1")
        assert again.meta["replayed"] is True
        assert (await session.call("linkedin_lookup", {"name": "bo"}, call_id="c2")).ok
        assert (await session.call("linkedin_lookup", {"name": "eve"}, call_id="c3")).error.type == "BUDGET_EXCEEDED"
