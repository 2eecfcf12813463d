"""rank_results: the same items always give the same order."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st


def _rank(run_tool, items, **options):
    return run_tool("rank_results", {"items": items, **options})["data"]


def _ids(data):
    return [item["id"] for item in data["items"]]


def test_the_highest_score_comes_first(run_tool):
    data = _rank(run_tool, [{"id": "a", "score": 1}, {"id": "b", "score": 3}, {"id": "c", "score": 2.5}])
    assert data["items"] == [
        {"rank": 1, "id": "b", "final_score": 3, "date": None},
        {"rank": 2, "id": "c", "final_score": 2.5, "date": None},
        {"rank": 3, "id": "a", "final_score": 1, "date": None},
    ]


def test_equal_scores_keep_their_order(run_tool):
    assert _ids(_rank(run_tool, [{"id": name, "score": 0.5} for name in "zmaq"])) == list("zmaq")


def test_boosts_count_only_when_asked_for(run_tool):
    items = [{"id": "a", "score": 1}, {"id": "b", "score": 0.5, "boosts": {"recent": 0.4, "own": 0.3}}]
    assert _ids(_rank(run_tool, items)) == ["a", "b"]
    boosted = _rank(run_tool, items, by="boosted")
    assert _ids(boosted) == ["b", "a"]
    assert boosted["items"][0]["final_score"] == 1.2


def test_a_negative_boost_moves_an_item_down(run_tool):
    items = [{"id": "a", "score": 1, "boosts": {"outdated": -0.6}}, {"id": "b", "score": 0.5}]
    assert _ids(_rank(run_tool, items, by="boosted")) == ["b", "a"]


def test_sums_that_are_equal_on_paper_are_equal(run_tool):
    items = [{"id": "a", "score": 0.3}, {"id": "b", "score": 0.1, "boosts": {"recent": 0.2}}]
    data = _rank(run_tool, items, by="boosted")
    assert _ids(data) == ["a", "b"]
    assert [item["final_score"] for item in data["items"]] == [0.3, 0.3]


def test_the_order_of_boosts_does_not_change_the_sum(run_tool):
    boosts = {"a": 1e9, "b": 0.1, "c": -1e9, "d": 0.7}
    items = [
        {"id": "a", "score": 1, "boosts": boosts},
        {"id": "b", "score": 1, "boosts": dict(reversed(boosts.items()))},
    ]
    first, second = _rank(run_tool, items, by="boosted")["items"]
    assert first["final_score"] == second["final_score"]


def test_the_newest_comes_first_and_the_undated_last(run_tool):
    items = [
        {"id": "none", "score": 9},
        {"id": "day", "score": 1, "date": "2026-03-29"},
        {"id": "noon", "score": 1, "date": "2026-03-29T12:00:00Z"},
        {"id": "older", "score": 1, "date": "2025-12-31T23:59:59Z"},
    ]
    assert _ids(_rank(run_tool, items, by="date")) == ["noon", "day", "older", "none"]


def test_dates_are_compared_as_moments_and_not_as_text(run_tool):
    items = [
        {"id": "utc", "score": 1, "date": "2026-03-29T12:00:00Z"},
        {"id": "later", "score": 1, "date": "2026-03-29T07:30:00-05:00"},
        {"id": "same", "score": 1, "date": "2026-03-29t14:00:00.000+02:00"},
    ]
    assert _ids(_rank(run_tool, items, by="date")) == ["later", "utc", "same"]


def test_on_the_same_date_the_score_decides(run_tool):
    items = [{"id": name, "score": score, "date": "2026-03-29"} for name, score in (("a", 1), ("b", 2), ("c", 2))]
    assert _ids(_rank(run_tool, items, by="date")) == ["b", "c", "a"]


def test_a_leap_second_comes_before_the_next_minute_ends(run_tool):
    items = [
        {"id": "before", "score": 1, "date": "2016-12-31T23:59:59Z"},
        {"id": "leap", "score": 1, "date": "2016-12-31T23:59:60Z"},
        {"id": "after", "score": 1, "date": "2017-01-01T00:00:01Z"},
    ]
    assert _ids(_rank(run_tool, items, by="date")) == ["after", "leap", "before"]


def test_a_date_that_cannot_be_compared_is_named_with_its_place(run_tool):
    items = [{"id": "a", "score": 1}, {"id": "b", "score": 1, "date": "0000-01-01"}]
    error = run_tool("rank_results", {"items": items, "by": "date"})["error"]
    assert error["type"] == "VALIDATION"
    assert "0000-01-01" in error["message"]
    assert error["details"] == [{"pointer": "/items/1/date"}]


def test_of_the_same_id_only_the_best_is_kept(run_tool):
    items = [{"id": "a", "score": 1}, {"id": "b", "score": 2}, {"id": "a", "score": 3}, {"id": "a", "score": 2}]
    data = _rank(run_tool, items)
    assert [(item["rank"], item["id"], item["final_score"]) for item in data["items"]] == [(1, "a", 3), (2, "b", 2)]
    assert (data["total"], data["duplicates"]) == (2, 2)


def test_duplicates_do_not_use_up_the_limit(run_tool):
    items = [{"id": "a", "score": 9}] * 5 + [{"id": "b", "score": 1}]
    assert _ids(_rank(run_tool, items, limit=2)) == ["a", "b"]


def test_ten_items_are_given_unless_asked_otherwise(run_tool):
    items = [{"id": str(number), "score": number} for number in range(200)]
    assert _ids(_rank(run_tool, items)) == [str(number) for number in range(199, 189, -1)]
    assert len(_rank(run_tool, items, limit=50)["items"]) == 50


@pytest.mark.parametrize(
    "args",
    [
        {"items": []},
        {"items": [{"id": "a", "score": 1}] * 201},
        {"items": [{"id": "a"}]},
        {"items": [{"id": "a", "score": "1"}]},
        {"items": [{"id": "a", "score": 1, "date": "yesterday"}]},
        {"items": [{"id": "a", "score": 1, "title": "unknown"}]},
        {"items": [{"id": "a", "score": 1, "boosts": {"recent": "much"}}]},
        {"items": [{"id": "a", "score": 1}], "limit": 51},
        {"items": [{"id": "a", "score": 1}], "by": "title"},
    ],
)
def test_arguments_outside_of_the_schema_are_refused(run_tool, args):
    assert run_tool("rank_results", args)["error"]["type"] == "VALIDATION"


NUMBERS = st.one_of(st.integers(-5, 5), st.floats(-1e9, 1e9, allow_nan=False))
DATES = st.one_of(st.dates().map(str), st.datetimes().map(lambda moment: f"{moment.isoformat()}Z"))
OPTIONAL = {"date": DATES, "boosts": st.dictionaries(st.text(max_size=5), NUMBERS, max_size=5)}
ITEM = st.fixed_dictionaries({"id": st.text(min_size=1, max_size=3), "score": NUMBERS}, optional=OPTIONAL)
DISTINCT = st.lists(ITEM, min_size=1, max_size=25, unique_by=lambda item: item["id"])
BY = st.sampled_from(["score", "date", "boosted"])
LIMIT = st.integers(1, 50)


@given(DISTINCT, BY, LIMIT)
def test_a_ranking_is_a_permutation_cut_to_the_limit(run_tool, items, by, limit):
    data = _rank(run_tool, items, by=by, limit=limit)
    everything = _ids(_rank(run_tool, items, by=by, limit=50))
    assert len(data["items"]) == min(limit, len(items))
    assert set(_ids(data)) <= {item["id"] for item in items}
    assert len(set(_ids(data))) == len(data["items"])
    assert _ids(data) == everything[:limit]
    assert [item["rank"] for item in data["items"]] == list(range(1, len(data["items"]) + 1))
    assert (data["total"], data["duplicates"]) == (len(items), 0)


@given(st.lists(ITEM, min_size=1, max_size=25), BY, LIMIT)
def test_the_same_items_give_the_same_ranking(run_tool, items, by, limit):
    data = _rank(run_tool, items, by=by, limit=limit)
    assert _rank(run_tool, items, by=by, limit=limit) == data
    assert data["total"] + data["duplicates"] == len(items)


@given(DISTINCT, st.sampled_from(["score", "boosted"]))
def test_scores_fall_and_equal_ones_keep_their_order(run_tool, items, by):
    ranked = _rank(run_tool, items, by=by, limit=50)["items"]
    place = {item["id"]: index for index, item in enumerate(items)}
    for better, worse in pairwise(ranked):
        assert better["final_score"] >= worse["final_score"]
        if better["final_score"] == worse["final_score"]:
            assert place[better["id"]] < place[worse["id"]]


@given(DISTINCT, st.integers(), BY)
def test_items_with_different_scores_are_ranked_alike_in_any_order(run_tool, items, seed, by):
    items = [{"id": item["id"], "score": index} for index, item in enumerate(items)]
    shuffled = random.Random(seed).sample(items, len(items))
    assert _rank(run_tool, items, by=by) == _rank(run_tool, shuffled, by=by)
