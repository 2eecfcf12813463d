"""kb_search under the pipeline: evidence, access, clamps, budget, replay, and each failure that it documents."""

import asyncio
import threading
from contextlib import contextmanager
from pathlib import Path

import orjson
import pytest
from tests.services.sentences import is_one_sentence

import handrail_reference
from handrail.build.guide import examples_in
from handrail.testing import open_tools
from handrail_reference.services.kb import service
from handrail_reference.services.kb.port import KbTooSlow, KbUnavailable
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records
from handrail_reference.services.kb.service import KnowledgeBase

TOOLS = Path(handrail_reference.__file__).parent / "tools"
RECORDS = [
    {
        "id": "person:ana_kovac",
        "title": "Ana Kovač",
        "text": "Ana runs the onboarding of new colleagues and keeps the checklist for their first week.",
        "source_type": "crm",
        "source": "people.csv",
        "url": "https://www.linkedin.com/in/ana-kovac-example",
        "metadata": {"role": "people lead"},
        "last_updated": "2026-01-10T15:30:00Z",
    },
    {"id": "process:onboarding", "title": "Onboarding", "text": "The first week of onboarding. " * 40, "tags": ["hr"]},
    {
        "id": "project:pilot",
        "title": "Automation pilot",
        "text": "Results of the automation pilot were good.",
        "tags": ["automation", "active"],
        "last_updated": "2026-03-01",
    },
    {"id": "doc:mine", "text": "my notes on the budget", "namespace": "personal", "owner": "u1"},
    *({"id": f"doc:n{number}", "text": f"onboarding note {number}"} for number in range(10)),
]


@contextmanager
def _kit(path):
    kb = KnowledgeBase(path)
    checked = [make_record(record) for record in RECORDS]
    kb.database.write_now(lambda db: put_records(db, checked, Tally()))
    try:
        with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
            yield kit, kb
    finally:
        kb.database.close_now()


@pytest.fixture(scope="module")
def kit(tmp_path_factory):
    with _kit(tmp_path_factory.mktemp("kb") / "kb.db") as (kit, _):
        yield kit


def _search(kit, mode="text", user=None, **args):
    return kit.call("kb_search", args, mode=mode, user=user).to_dict()


def test_evidence_has_what_to_cite(kit):
    found = _search(
        kit,
        query="onboarding of new colleagues",
        filters={"type": "person"},
        return_fields=["snippet", "sources", "url"],
    )["data"]
    (one,) = found["results"]
    assert (one["id"], one["type"], one["title"], one["source_type"]) == (
        "person:ana_kovac",
        "person",
        "Ana Kovač",
        "crm",
    )
    assert one["last_updated"] == "2026-01-10T15:30:00Z"
    assert "checklist" in one["snippet"]
    assert one["sources"] == [
        {"id": "person:ana_kovac", "title": "Ana Kovač", "source": "people.csv", "url": one["url"]}
    ]
    assert "metadata" not in one
    assert found["clamped"] is False


def test_only_what_was_asked_for_is_given(kit):
    one = _search(kit, query="pilot", return_fields=["full_text"])["data"]["results"][0]
    assert one["full_text"] == "Results of the automation pilot were good."
    assert not {"snippet", "metadata", "url", "sources"} & set(one)
    assert "snippet" not in _search(kit, query="pilot", include_snippets=False)["data"]["results"][0]


def test_nothing_found_is_success(kit):
    answer = _search(kit, query="zeppelin maintenance")
    assert (answer["ok"], answer["data"]["results"]) == (True, [])


def test_filters_narrow(kit):
    dates = {"start": "2026-02-01T00:00:00Z", "end": "2026-12-31T23:59:60Z"}
    narrowed = {"type": "project", "tags": ["automation", "ACTIVE"], "date_range": dates}
    assert [one["id"] for one in _search(kit, query="pilot", filters=narrowed)["data"]["results"]] == ["project:pilot"]
    assert _search(kit, query="pilot", filters={"tags": ["automation", "x"]})["data"]["results"] == []
    assert _search(kit, query="pilot", filters={"date_range": {"end": dates["start"]}})["data"]["results"] == []


def test_voice_gets_three_and_never_the_full_text(kit):
    found = _search(kit, mode="voice", query="onboarding", top_k=10, return_fields=["full_text"])
    assert len(found["data"]["results"]) == 3
    assert set(found["meta"]["clamped"]) == {"top_k", "return_fields"}
    assert found["data"]["clamped"] is True
    assert all("full_text" not in one and "snippet" in one for one in found["data"]["results"])
    assert len(_search(kit, query="onboarding", top_k=10)["data"]["results"]) == 10


@pytest.mark.parametrize("user", [None, "u2", "u1"])
def test_personal_records_are_their_owners(kit, user):
    answer = _search(kit, user=user, query="notes budget", namespace="personal")
    if user is None:
        assert answer["error"]["type"] == "VALIDATION"
        assert '"personal"' in answer["error"]["message"]
    else:
        assert [one["id"] for one in answer["data"]["results"]] == (["doc:mine"] if user == "u1" else [])


@pytest.mark.parametrize(
    "args",
    [
        {"query": ""},
        {"query": "x" * 501},
        {"query": "x", "namespace": "board"},
        {"query": "x", "top_k": 0},
        {"query": "x", "top_k": 11},
        {"query": "x", "return_fields": ["everything"]},
        {"query": "x", "filters": {"type": "' OR 1=1"}},
        {"query": "x", "filters": {"tags": ["a"] * 6}},
        {"query": "x", "filters": {"date_range": {"start": "yesterday"}}},
        {"query": "x", "filters": {"date_range": {"start": "2026-02-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}}},
        {"query": "x", "filters": {"date_range": {"start": "0000-01-01T00:00:00Z"}}},
        {"query": "x", "limit": 3},
    ],
    ids=lambda args: str(args)[:60],
)
def test_bad_arguments_are_refused(kit, args):
    error = _search(kit, **args)["error"]
    assert error["type"] == "VALIDATION"
    assert is_one_sentence(error["message"])


@pytest.mark.parametrize(
    "query", ['"', "a* OR b", "{title}:x", "'; DROP TABLE record; --", "NEAR(a b)", "\u202e\u0000x"]
)
def test_syntax_in_a_query_is_only_words(kit, query):
    assert _search(kit, query=query)["ok"] is True


async def test_a_turn_in_voice_has_two_searches_and_the_same_call_is_free(kit):
    async with kit.runtime() as runtime:
        session = await runtime.open_session(mode="voice")
        await session.begin_turn()
        first = await session.call("kb_search", {"query": "onboarding"}, call_id="c1")
        again = await session.call("kb_search", {"query": "onboarding"}, call_id="c1")
        second = await session.call("kb_search", {"query": "pilot"}, call_id="c2")
        third = await session.call("kb_search", {"query": "notes"}, call_id="c3")
    assert again.meta["replayed"] is True
    assert again.data == first.data
    assert "suggestion" not in first.data
    assert "kb_get" in second.data["suggestion"]
    assert third.error.type == "BUDGET_EXCEEDED"


async def test_a_loop_of_empty_searches_ends(kit):
    async with kit.runtime() as runtime:
        session = await runtime.open_session()
        await session.begin_turn()
        for word in ("zeppelin", "quokka"):
            assert (await session.call("kb_search", {"query": word})).data["results"] == []
        assert (await session.call("kb_search", {"query": "narwhal"})).error.type == "LOOP_DETECTED"


class _Slow:
    async def search(self, *args, **options):
        raise KbTooSlow("past its time")


def test_a_search_past_its_time_is_transient():
    with open_tools(TOOLS, capabilities={"kb": _Slow(), "calendar": None, "images": None}) as kit:
        error = _search(kit, query="x")["error"]
        assert (error["type"], error["retryable"]) == ("TRANSIENT", True)
        assert is_one_sentence(error["message"])
        assert _search(kit, mode="voice", query="x")["error"]["retryable"] is False


class _Away:
    async def _fail(self, *args, **options):
        raise KbUnavailable('The knowledge base "kb.db" is locked.')

    search = get = links = _fail


@pytest.mark.parametrize(
    ("tool", "args"), [("kb_search", {"query": "x"}), ("kb_get", {"ids": ["a:b"]}), ("linkedin_lookup", {"id": "a:b"})]
)
def test_a_base_that_is_away_for_now_is_transient(tool, args):
    with open_tools(TOOLS, capabilities={"kb": _Away(), "calendar": None, "images": None}) as kit:
        error = kit.call(tool, args).to_dict()["error"]
    assert (error["type"], error["retryable"]) == ("TRANSIENT", True)
    assert is_one_sentence(error["message"])
    assert "kb.db" not in error["message"]


def test_a_damaged_base_is_a_clear_envelope_without_its_inside(tmp_path):
    path = tmp_path / "kb.db"
    path.write_bytes(b"not a database" * 100)
    kb = KnowledgeBase(path)
    with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
        error = _search(kit, query="x")["error"]
    kb.database.close_now()
    assert error["type"] == "PERMANENT"
    assert "cannot be searched" in error["message"]
    assert is_one_sentence(error["message"])
    assert "kb.db" not in error["message"]
    assert path.read_bytes() == b"not a database" * 100


def _pairs(tool):
    """Arguments of the guide's examples, with the response that follows, if one does."""
    pairs = []
    for example in examples_in((TOOLS / tool / "guide.md").read_text(encoding="utf-8")):
        if example.kind == "arguments":
            pairs.append([orjson.loads(example.text), None])
        else:
            pairs[-1][1] = orjson.loads(example.text)
    return pairs


@pytest.mark.parametrize("tool", ["kb-search", "kb-get", "linkedin-lookup"])
def test_the_examples_of_the_guide_give_what_it_shows(kit, tool):
    for args, shown in _pairs(tool):
        answer = kit.call(tool.replace("-", "_"), args).to_dict()
        if shown is None:
            assert answer["ok"], answer
        elif "ok" in shown:
            assert {name: answer["error"].get(name) for name in shown["error"]} == shown["error"]
        else:
            assert _steady(answer["data"]) == _steady(shown)


def _steady(data):
    """Without what depends on the other records and on the machine."""
    steady = {name: value for name, value in data.items() if name != "query_time_ms"}
    if "results" in steady:
        steady["results"] = [
            {name: value for name, value in one.items() if name != "score"} for one in steady["results"]
        ]
    return steady


async def test_the_loop_is_free_while_it_searches(tmp_path, monkeypatch):
    """The search waits for what only the loop can give it: were the loop held, it would wait in vain."""
    entered, given, seen = threading.Event(), threading.Event(), []
    search = service.search_words

    def waiting(*args):
        entered.set()
        seen.append(given.wait(30))
        return search(*args)

    async def give():
        while not entered.is_set():
            await asyncio.sleep(0.001)
        given.set()

    monkeypatch.setattr(service, "search_words", waiting)
    with _kit(tmp_path / "kb.db") as (kit, _):
        async with kit.runtime() as runtime:
            session = await runtime.open_session()
            await session.begin_turn()
            giving = asyncio.create_task(give())
            assert (await session.call("kb_search", {"query": "onboarding"})).ok
            await giving
    assert seen == [True]


def test_the_longest_texts_that_can_be_imported_can_be_read(tmp_path):
    long = 'marmalade \x01"ž ' * 140_000
    records = [{"id": f"doc:n{number}", "text": long, "metadata": {"x": "y" * 30_000}} for number in range(5)]
    kb = KnowledgeBase(tmp_path / "kb.db")
    checked = [make_record(record) for record in [*records, {"id": "doc:short", "text": "short marmalade"}]]
    kb.database.write_now(lambda db: put_records(db, checked, Tally()))
    fields = ["full_text", "metadata"]
    with open_tools(TOOLS, capabilities={"kb": kb, "calendar": None, "images": None}) as kit:
        found = _search(kit, query="marmalade", top_k=10, return_fields=fields)
        got = kit.call("kb_get", {"ids": ["doc:n0", "doc:n1", "doc:short"], "return_fields": fields}).to_dict()
    kb.close_now()
    for answer, key, count in ((found, "results", 6), (got, "records", 3)):
        assert answer["ok"], answer
        assert "truncated" not in answer["meta"]
        assert len(answer["data"][key]) == count
        for one in answer["data"][key]:
            whole = one["id"] == "doc:short"
            assert one.get("truncated", False) is not whole
            assert one["full_text"] == "short marmalade" if whole else long.startswith(one["full_text"])
            assert whole or len(one["full_text"]) > 30_000
        assert 400_000 < len(orjson.dumps(answer["data"])) < 524_288


def test_naming_a_type_lists_all_of_it_and_other_words_still_search(tmp_path):
    with _kit(tmp_path / "kb.db") as (kit, kb):
        more = {"id": "project:atlas", "title": "Atlas", "text": "Maps of the harbour."}
        kb.database.write_now(lambda db: put_records(db, [make_record(more)], Tally()))
        for query in ("projects", "list all the projects", "Which projects are there?"):
            found = _search(kit, query=query, filters={"type": "project"})["data"]["results"]
            assert [one["title"] for one in found] == ["Atlas", "Automation pilot"], query
        assert [
            one["id"] for one in _search(kit, query="harbour projects", filters={"type": "project"})["data"]["results"]
        ][:1] == ["project:atlas"]
        one = _search(kit, query="projects", filters={"type": "project"}, top_k=1)["data"]
        assert len(one["results"]) == 1
        assert "There are 2 in all, these and 1 other: project:pilot." in one["suggestion"]
        many = [{"id": f"lab:bench_{n:02}", "title": f"Bench {n:02}", "text": "A bench. " * 50} for n in range(12)]
        kb.database.write_now(lambda db: put_records(db, [make_record(one) for one in many], Tally()))
        for mode, shown in (("text", 5), ("voice", 3)):
            listed = _search(kit, mode=mode, query="all labs", filters={"type": "lab"})["data"]
            assert [one["title"] for one in listed["results"]] == [f"Bench {n:02}" for n in range(shown)]
            assert all(one["id"] in listed["suggestion"] for one in many[shown:])
            assert "12 in all" in listed["suggestion"]
            assert len(orjson.dumps(listed)) < 1_500


@pytest.mark.parametrize("tool", ["kb_search", "kb_get"])
def test_by_default_an_answer_is_shorter_than_what_is_warned_of(tmp_path, tool):
    with _kit(tmp_path / "kb.db") as (kit, kb):
        long = [
            {"id": f"doc:manual_{n}", "title": f"Manual {n}", "text": "The pump is started by hand. " * 90}
            for n in range(5)
        ]
        kb.database.write_now(lambda db: put_records(db, [make_record(one) for one in long], Tally()))
        args = {"query": "start the pump by hand"} if tool == "kb_search" else {"ids": [one["id"] for one in long]}
        answer = kit.call(tool, args)
        listed = answer.data["results" if tool == "kb_search" else "records"]
        assert len(listed) == 5
        assert len(orjson.dumps(answer.data)) < 1_500
        assert all(len(one["snippet"]) >= 60 and one["snippet"].endswith("…") for one in listed)


@pytest.mark.parametrize("tool", ["kb_search", "kb_get"])
def test_of_records_with_much_beside_their_text_some_is_left_out_and_said(tmp_path, tool):
    about = {
        "owner": "finance operations",
        "status": "approved",
        "reviewed_by": "Ana Kovac",
        "audience": "customer support, wholesale team",
    }
    records = [
        {
            "id": f"process:refund-policy-{n}",
            "title": f"Refund policy for wholesale customers, region {n}",
            "text": "The pump is started by hand. " * 90,
            "url": f"https://intranet.example.com/handbook/processes/wholesale/refund-policy-{n}",
            "source": "handbook/processes/refunds.md",
            "metadata": about,
            "last_updated": "2026-01-10T15:30:00Z",
        }
        for n in range(8)
    ]
    with _kit(tmp_path / "kb.db") as (kit, kb):
        kb.database.write_now(lambda db: put_records(db, [make_record(one) for one in records], Tally()))
        ids = [one["id"] for one in records[:5]]
        args = {"query": "pump started by hand"} if tool == "kb_search" else {"ids": ids}
        data = kit.call(tool, args).data
        listed = data["results" if tool == "kb_search" else "records"]
        assert len(listed) == 5
        assert len(orjson.dumps(data)) < 1_500
        assert all(len(one["snippet"]) >= 50 for one in listed)
        assert "metadata of 5" in data["suggestion"]
        assert "url of" in data["suggestion"]
        alone = kit.call("kb_get", {"ids": ids[:1]}).data
        assert alone["records"][0]["metadata"] == about
        assert "suggestion" not in alone
