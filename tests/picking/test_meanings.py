"""Picking with an embedder: meanings, the hybrid, and what happens when the embedder fails."""

import numpy as np
import pytest

from handrail import pick_tools
from handrail.contract.errors import HandrailError
from handrail.picking import ToolIndex


def ids(picked):
    return [one["toolId"] for one in picked]


def test_a_request_without_a_common_word_is_found_by_meaning(catalogue, concepts):
    assert pick_tools("Do I need an umbrella?", catalogue) == []
    assert ids(pick_tools("Do I need an umbrella?", catalogue, embedder=concepts))[0] == "get_weather"


def test_words_decide_between_tools_of_one_meaning(catalogue, concepts):
    tools = [*catalogue, {"toolId": "lamps", "description": "Weather forecast for a lighthouse."}]
    query = "rain at the lighthouse"
    assert ids(pick_tools(query, tools, 2, embedder=concepts, scorer="hybrid"))[0] == "lamps"
    assert ids(pick_tools(query, tools, 2, embedder=concepts, scorer="embeddings"))[0] == "get_weather"


def test_a_clause_of_a_long_description_is_found(concepts):
    tools = [
        {"toolId": "many", "description": "Weather, money, the bill, songs"},
        {"toolId": "one", "description": "Songs about rain in a language"},
    ]
    index = ToolIndex(tools, embedder=concepts)
    assert index.pick("a melody", 1, scorer="embeddings")[0].tool_id == "many"


def test_mode_always_budget_and_k_hold_with_meanings(catalogue, concepts):
    index = ToolIndex(catalogue, embedder=concepts)
    picked = index.pick("a melody", 3, mode="text", always=["send_invoice"])
    assert picked[0].tool_id == "send_invoice"
    assert "playMusic" not in [one.tool_id for one in picked]
    assert index.pick("a melody", 0) == []
    assert index.pick("a melody", token_budget=0) == []


@pytest.mark.parametrize("query", ["", "thanks", "?"])
def test_a_request_that_asks_for_nothing_is_not_even_embedded(catalogue, concepts, query):
    assert pick_tools(query, catalogue, embedder=concepts) == []
    assert concepts.asked == []


def test_what_is_about_something_else_does_not_fit(concepts):
    tools = [{"toolId": "a", "description": "Songs and playlists."}]
    assert pick_tools("Translate a language", tools, embedder=concepts) == []


def test_tools_are_embedded_once_and_a_request_costs_one_call(catalogue, concepts):
    for query in ("umbrella", "a melody tonight", "euros"):
        pick_tools(query, catalogue, embedder=concepts)
    assert len(concepts.asked) == 4
    assert len(concepts.asked[0]) >= len(catalogue)


def test_vectors_can_be_made_before_the_first_request(catalogue, concepts):
    index = ToolIndex(catalogue, embedder=concepts)
    assert concepts.asked == []
    index.prepare()
    index.prepare()
    assert len(concepts.asked) == 1


def test_a_long_request_is_embedded_by_its_telling_words_alone(catalogue, concepts):
    index = ToolIndex(catalogue, embedder=concepts)
    index.prepare()
    index.pick("Can you help me with the rain " + "please " * 50)
    assert concepts.asked[-1] == ["rain"]


class Failing:
    def __init__(self, error):
        self.error = error

    def embed(self, texts):
        raise self.error


@pytest.mark.parametrize("error", [HandrailError("gone"), OSError("gone")], ids=["ours", "theirs"])
def test_words_still_work_when_the_embedder_does_not(catalogue, error, caplog):
    assert ids(pick_tools("weather", catalogue, embedder=Failing(error))) == ["get_weather"]
    assert "keywords only: gone" in caplog.text


def test_an_embedder_that_was_insisted_on_may_fail(catalogue):
    with pytest.raises(HandrailError, match="gone"):
        pick_tools("weather", catalogue, embedder=Failing(HandrailError("gone")), scorer="hybrid")


@pytest.mark.parametrize(
    "vectors",
    [np.zeros((1, 3)), np.zeros(3), np.full((99, 3), np.nan)],
    ids=["too few", "one row", "no numbers"],
)
def test_vectors_that_are_none_are_refused(catalogue, vectors):
    class Broken:
        def embed(self, texts):
            return vectors[: len(texts)]

    with pytest.raises(HandrailError, match="one row of finite numbers"):
        ToolIndex(catalogue, embedder=Broken()).pick("weather", scorer="embeddings")


def test_keywords_never_call_the_embedder(catalogue, concepts):
    pick_tools("weather", catalogue, embedder=concepts, scorer="keywords")
    assert concepts.asked == []


def test_the_order_of_the_catalogue_changes_nothing(catalogue, concepts):
    query = "weather abroad on holiday"
    assert ToolIndex(catalogue, embedder=concepts).pick(query) == ToolIndex(catalogue[::-1], embedder=concepts).pick(
        query
    )


def test_odd_texts_reach_an_embedder_as_texts_that_it_can_encode(concepts):
    tools = [{"toolId": "a", "description": "rain \ud800 weather"}, {"toolId": "b", "description": ""}]
    pick_tools("rain \udfff today", tools, embedder=concepts)
    asked = [text for texts in concepts.asked for text in texts]
    assert len(asked) > len(tools)
    assert all(text == text.encode().decode() for text in asked)
