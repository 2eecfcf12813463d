"""Search: the right records, in the right order, whatever the query looks like."""

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from handrail_reference.services.kb import keywords
from handrail_reference.services.kb.port import Filter

RECORDS = [
    {
        "id": "doc:overdraft",
        "title": "Overdraft limits",
        "text": "Your overdraft limit is five hundred.",
        "tags": ["Money"],
    },
    {"id": "doc:cards", "title": "Cards", "text": "Cards are sent by post. A lost card is blocked at once."},
    {"id": "person:rene", "title": "René Muñoz", "text": "René looks after cards.", "last_updated": "2026-02-01"},
    {"id": "process:post", "title": "Post", "text": "Letters are opened daily.", "last_updated": "2026-05-01"},
]


def test_the_record_that_has_the_words_comes_first(open_base, ids):
    kb = open_base(*RECORDS)
    assert ids(kb, "how high is my overdraft?")[0] == "doc:overdraft"
    assert ids(kb, "letters")[0] == "process:post"
    assert ids(kb, "zeppelin") == []


@pytest.mark.parametrize("query", ["OVERDRAFT", "overdrafts", "Limit", "limits"])
def test_case_and_plural_do_not_matter(open_base, ids, query):
    assert ids(open_base(*RECORDS), query)[0] == "doc:overdraft"


@pytest.mark.parametrize("query", ["rene munoz", "RENÉ", "Rene\u0301 Mun\u0303oz"])
def test_accents_do_not_matter(open_base, ids, query):
    assert ids(open_base(*RECORDS), query)[0] == "person:rene"


def test_text_in_a_script_without_spaces_is_found(open_base, ids):
    kb = open_base({"id": "doc:zh", "text": "这是一个知识库的例子"}, {"id": "doc:other", "text": "别的东西"})
    assert ids(kb, "知识库") == ["doc:zh"]


def test_who_is_called_what_was_asked_for_comes_first(open_base, ids):
    kb = open_base(
        {"id": "doc:a", "title": "Notes", "text": "atlas atlas atlas atlas atlas"},
        {"id": "project:atlas", "title": "Atlas", "text": "A map of everything."},
    )
    assert ids(kb, "What is Atlas?")[0] == "project:atlas"


def test_who_is_called_so_is_found_among_many_that_only_mention_it(open_base, ids):
    kb = open_base(
        *({"id": f"doc:n{n}", "title": f"Page {n}", "text": "atlas atlas atlas"} for n in range(100)),
        {"id": "project:atlas", "title": "Atlas", "text": "A map of everything that there is, and of more. " * 30},
    )
    assert ids(kb, "What is Atlas?")[0] == "project:atlas"


def test_the_best_piece_of_a_long_text_counts_and_gives_the_snippet(open_base):
    filler = "Nothing of interest stands in this sentence. " * 200
    kb = open_base(
        {"id": "doc:long", "text": f"{filler}The marmalade is kept in the cellar. {filler}"},
        {"id": "doc:short", "text": "Marmalade."},
    )
    found = kb.search_now("marmalade cellar", namespaces=["studio"])
    assert found[0].record.id == "doc:long"
    assert "marmalade is kept in the cellar" in found[0].snippet


def test_scores_are_between_0_and_1_and_fall(open_base):
    kb = open_base(*RECORDS, *({"id": f"doc:n{number}", "text": f"card number {number}"} for number in range(20)))
    scores = [one.score for one in kb.search_now("card post limit", namespaces=["studio"], limit=10)]
    assert len(scores) == 10
    assert all(0 <= score <= 1 for score in scores)
    assert all(better >= worse for better, worse in pairwise(scores))


def test_a_query_that_is_half_unknown_scores_lower(open_base):
    kb = open_base(*RECORDS)
    whole = kb.search_now("overdraft limit", namespaces=["studio"])[0].score
    half = kb.search_now("overdraft zeppelin quokka", namespaces=["studio"])[0].score
    assert half < whole


def test_equal_records_come_in_the_order_in_which_they_were_stored(open_base, ids):
    kb = open_base(*({"id": f"doc:{name}", "text": "the same words"} for name in "zmaq"))
    assert ids(kb, "same words") == ["doc:z", "doc:m", "doc:a", "doc:q"]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (Filter(type="person"), {"person:rene"}),
        (Filter(tags=("money",)), {"doc:overdraft"}),
        (Filter(tags=("MONEY", "other")), set()),
        (Filter(start=1_770_000_000.0), {"process:post"}),
        (Filter(end=1_770_000_000.0), {"person:rene"}),
        (Filter(type="' OR 1=1 --"), set()),
        (Filter(tags=("x' OR '1'='1",)), set()),
        (Filter(tags=("%",)), set()),
    ],
    ids=str,
)
def test_filters_leave_out_what_does_not_fit(open_base, ids, wanted, expected):
    kb = open_base(*RECORDS)
    query = "overdraft cards letters post rene"
    assert set(ids(kb, query, wanted=wanted)) == expected


EVIL = [
    '"', '""', "'", "*", "a*", "title:overdraft", "{title}: x", "NEAR(a b)", "overdraft NOT limit", "a AND", "OR", "^a",
    "overdraft\0limit", "\ud800", "(", "a:b:c", "-- comment", "; DROP TABLE record", "%", "_", "zq1", "scope:zq1",
    "\u202eevil", "x" * 500, "a " * 250, "😀", "\u0301", "ß ﬁ Ǆ",
]  # fmt: skip


@pytest.mark.parametrize("query", EVIL, ids=ascii)
def test_no_query_is_syntax(open_base, ids, query):
    kb = open_base(*RECORDS)
    ids(kb, query)
    assert ids(kb, "overdraft")[0] == "doc:overdraft"


def test_the_words_of_scopes_cannot_be_searched(open_base, ids):
    kb = open_base(*RECORDS)
    assert ids(kb, "zq1") == []


@given(query=st.text(max_size=80))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_text_can_be_searched_for(open_base, ids, query):
    kb = open_base(*RECORDS)
    assert set(ids(kb, query)) <= {record["id"] for record in RECORDS}


def test_common_words_choose_no_rows_but_count(open_base, ids, monkeypatch):
    monkeypatch.setattr(keywords, "ROW_BUDGET", 5)
    monkeypatch.setattr(keywords, "SMALL_BASE", 0)
    common = [{"id": f"doc:c{number}", "text": f"common filler{number}"} for number in range(40)]
    kb = open_base(
        *common,
        {"id": "doc:one", "text": "rare thing"},
        {"id": "doc:both", "text": "rare thing common word"},
        *({"id": f"doc:x{number}", "text": "something else entirely"} for number in range(200)),
    )
    assert ids(kb, "rare common")[:2] == ["doc:both", "doc:one"]


def test_where_the_rare_words_are_left_out_by_a_filter_the_common_ones_find(open_base, ids, monkeypatch):
    monkeypatch.setattr(keywords, "ROW_BUDGET", 5)
    monkeypatch.setattr(keywords, "SMALL_BASE", 0)
    kb = open_base(
        {"id": "doc:rare", "text": "rare"},
        *({"id": f"doc:c{number}", "text": "common"} for number in range(40)),
        {"id": "person:common", "text": "common"},
    )
    assert ids(kb, "rare common", wanted=Filter(type="person")) == ["person:common"]
    assert len(ids(kb, "common", limit=3)) == 3


def test_of_common_words_those_records_come_first_that_have_them_together(open_base, ids, monkeypatch):
    monkeypatch.setattr(keywords, "ROW_BUDGET", 5)
    monkeypatch.setattr(keywords, "SMALL_BASE", 0)
    kb = open_base(
        {"id": "doc:together", "text": "monthly things and a fee"},
        *({"id": f"doc:m{number}", "text": f"monthly thing {number}"} for number in range(30)),
        *({"id": f"doc:f{number}", "text": f"fee number {number}"} for number in range(30)),
        *({"id": f"doc:x{number}", "text": "something else entirely"} for number in range(200)),
    )
    found = ids(kb, "monthly fee", limit=5)
    assert found[0] == "doc:together"
    assert len(found) == 5
