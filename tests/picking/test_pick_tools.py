"""`pick_tools` by keywords: what is found, in which order, and what limits it."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail import Registry, ToolDefinition, pick_tools
from handrail.contract.errors import UsageError
from handrail.picking import ToolIndex
from handrail.testing import open_tools


def ids(picked):
    return [one["toolId"] if isinstance(one, dict) else one.tool_id for one in picked]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("What will the weather be in Split tomorrow?", "get_weather"),
        ("convert 20 euros to another currency", "convertCurrency"),
        ("I need translations of a letter", "translate_text"),
        ("flights to Oslo", "search_flights"),
        ("play some MUSIC", "playMusic"),
        ("climate", "get_weather"),
        ("has the payment arrived by its due date", "send_invoice"),
    ],
    ids=["description", "camel-case id", "stemmed", "plural", "capitals", "tag", "parameter"],
)
def test_the_right_tool_comes_first(catalogue, query, first):
    assert ids(pick_tools(query, catalogue, 3))[0] == first


def test_the_very_definitions_come_back_best_first(catalogue):
    picked = pick_tools("weather forecast for flights", catalogue)
    assert picked[0] is catalogue[0]
    assert picked[1] is catalogue[2]


def test_words_of_the_id_count_more_than_words_of_an_argument():
    tools = [
        {"toolId": "a", "description": "x", "parameters": {"properties": {"invoice": {"type": "string"}}}},
        {"toolId": "invoice", "description": "x"},
    ]
    assert ids(pick_tools("invoice", tools)) == ["invoice", "a"]


def test_a_name_written_together_is_found_by_its_words():
    tools = [
        {"toolId": "citycarpark", "description": "Free lots."},
        {"toolId": "b", "description": "A car and a park in the city."},
    ]
    assert "citycarpark" in ids(pick_tools("where can I park my car", tools))


def test_a_rare_word_decides_among_tools_that_share_a_common_one():
    tools = [{"toolId": name, "description": "Play songs."} for name in "abcd"]
    tools.append({"toolId": "z", "description": "Play jazz songs."})
    assert ids(pick_tools("jazz songs", tools))[0] == "z"
    assert ids(pick_tools("songs of jazz", tools))[0] == "z"


def test_arguments_of_nested_objects_count():
    inner = {"type": "object", "properties": {"iban": {"type": "string", "description": "Bank account."}}}
    tools = [
        {"toolId": "a", "description": "x", "parameters": {"properties": {"to": {"type": "array", "items": inner}}}},
        {"toolId": "b", "description": "x"},
    ]
    assert ids(pick_tools("bank account", tools)) == ["a"]


@pytest.mark.parametrize("query", ["", "   ", "???", "thanks, that is it", "qwertz asdf", "\ud800"])
def test_none_fits(catalogue, query):
    assert pick_tools(query, catalogue) == []


def test_none_fits_in_an_empty_catalogue():
    assert pick_tools("weather", []) == []


def test_a_request_of_asking_words_alone_finds_the_tool_that_is_called_so():
    tools = [{"toolId": "help", "description": "How this works."}, {"toolId": "weather", "description": "Sun."}]
    assert ids(pick_tools("help me please", tools)) == ["help"]


def test_a_higher_least_score_leaves_weak_matches_out(catalogue):
    query = "the weather forecast for flights over the islands"
    best, second = ToolIndex(catalogue).pick(query)
    assert best.score > second.score
    assert ids(pick_tools(query, catalogue, min_score=best.score - 0.001)) == ["get_weather"]
    assert pick_tools(query, catalogue, min_score=1) == []


def test_k_limits_the_answer(catalogue):
    query = "weather currency flights translate"
    assert len(pick_tools(query, catalogue, 2)) == 2
    assert pick_tools(query, catalogue, 0) == []
    assert len(pick_tools(query, catalogue, 100)) == 4


def test_equals_come_in_the_order_of_their_ids():
    tools = [{"toolId": name, "description": "Rolls dice."} for name in ("zeta", "alpha", "mid")]
    assert ids(pick_tools("roll the dice", tools)) == ["alpha", "mid", "zeta"]
    assert ids(pick_tools("roll the dice", tools, 2)) == ["alpha", "mid"]


def test_always_comes_first_and_counts(catalogue):
    picked = ids(pick_tools("weather and flights", catalogue, 2, always=["translate_text"]))
    assert picked[0] == "translate_text"
    assert len(picked) == 2


def test_always_is_kept_beyond_k_and_when_nothing_fits(catalogue):
    assert ids(pick_tools("qwertz", catalogue, 0, always=["playMusic", "get_weather"])) == ["playMusic", "get_weather"]


def test_a_tool_that_is_always_there_is_not_there_twice(catalogue):
    always = ["get_weather", "get_weather"]
    assert ids(pick_tools("weather and flights", catalogue, 5, always=always)).count("get_weather") == 1


def test_the_mode_leaves_tools_out_even_if_always_wanted(catalogue):
    assert ids(pick_tools("play music", catalogue, mode="text")) == []
    assert ids(pick_tools("play music", catalogue, mode="voice")) == ["playMusic"]
    assert ids(pick_tools("play music", catalogue, mode="text", always=["playMusic", "get_weather"])) == ["get_weather"]


def test_the_budget_is_not_exceeded_and_a_smaller_tool_may_still_fit(catalogue):
    large = {
        "toolId": "weather_archive",
        "description": "Archive of forecasts.",
        "parameters": {"properties": {"station": {"enum": list(range(500))}}},
    }
    tools = [*catalogue, large]
    index = ToolIndex(tools)
    unlimited = ids(pick_tools("weather in the archive, forecast", tools))
    budget = index.tokens(["get_weather"]) + 5
    limited = ids(pick_tools("weather in the archive, forecast", tools, token_budget=budget))
    assert unlimited == ["weather_archive", "get_weather"]
    assert limited == ["get_weather"]
    assert pick_tools("weather", tools, token_budget=0) == []


def test_what_is_always_there_takes_from_the_budget_first(catalogue):
    index = ToolIndex(catalogue)
    budget = index.tokens(["send_invoice"]) + index.tokens(["get_weather"]) - 1
    picked = ids(pick_tools("weather", catalogue, token_budget=budget, always=["send_invoice"]))
    assert picked == ["send_invoice"]
    assert len(ids(pick_tools("weather", catalogue, token_budget=budget + 1, always=["send_invoice"]))) == 2


def test_the_cost_is_a_quarter_of_the_declaration(catalogue):
    definition = catalogue[-1]
    declared = {"name": definition["toolId"], "description": definition["description"]}
    text = json.dumps({**declared, "parameters": definition["parameters"]})
    assert ToolIndex(catalogue).tokens(["send_invoice"]) == -(-len(text) // 4)


def test_an_enormous_request_is_answered_by_its_beginning_and_end(catalogue):
    filler = "lorem ipsum " * 500_000
    assert ids(pick_tools(f"Translate this: {filler}", catalogue))[0] == "translate_text"
    assert "get_weather" in ids(pick_tools(f"{filler} what does this say about the weather?", catalogue))


def test_an_enormous_description_does_no_harm(catalogue):
    tools = [*catalogue, {"toolId": "huge", "description": "a" * 5_000_000, "parameters": {"properties": []}}]
    assert ids(pick_tools("weather", tools))[0] == "get_weather"


def test_schemas_that_are_none_do_no_harm():
    deep = {}
    for _ in range(5_000):
        deep = {"properties": {"weather": deep}}
    tools = [
        {"toolId": "a", "description": None, "tags": "weather", "parameters": "weather"},
        {"toolId": "b", "description": "weather", "tags": [1, "x"], "parameters": deep, "summary": 4},
    ]
    assert ids(pick_tools("weather", tools)) == ["b"]


def test_scripts_without_spaces_are_found():
    tools = [{"toolId": "a", "description": "查询天气预报"}, {"toolId": "b", "description": "播放音乐"}]
    assert ids(pick_tools("明天天气怎么样", tools)) == ["a"]


def test_the_same_tool_twice_is_one(catalogue):
    assert ids(pick_tools("weather", [*catalogue, catalogue[0], dict(catalogue[0])])) == ["get_weather"]


def test_two_different_tools_of_one_name_are_refused(catalogue):
    with pytest.raises(UsageError, match='Two different tools are called "get_weather"'):
        pick_tools("weather", [*catalogue, {"toolId": "get_weather", "description": "Other."}])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda tools: pick_tools(5, tools), "The query is a text"),
        (lambda tools: pick_tools("x", tools, -1), "`k` is how many"),
        (lambda tools: pick_tools("x", tools, True), "`k` is how many"),
        (lambda tools: pick_tools("x", tools, mode="sms"), 'no mode "sms"'),
        (lambda tools: pick_tools("x", tools, token_budget=-1), "`token_budget`"),
        (lambda tools: pick_tools("x", tools, min_score=2), "`min_score`"),
        (lambda tools: pick_tools("x", tools, min_score=float("nan")), "`min_score`"),
        (lambda tools: pick_tools("x", tools, scorer="magic"), 'no scorer "magic"'),
        (lambda tools: pick_tools("x", tools, scorer="hybrid"), "needs an embedder"),
        (lambda tools: pick_tools("x", tools, always=["get_wether"]), 'did you mean "get_weather"'),
        (lambda tools: pick_tools("x", tools, always="get_weather"), "`always` is a list"),
        (lambda tools: pick_tools("x", tools[0]), "put this one into a list"),
        (lambda tools: pick_tools("x", "tools"), "not str"),
        (lambda tools: pick_tools("x", None), "not NoneType"),
        (lambda tools: pick_tools("x", [None]), "not NoneType"),
        (lambda tools: pick_tools("x", [{"name": "a"}]), 'no "toolId"'),
    ],
    ids=[
        *("query", "k", "k-bool", "mode", "budget", "score", "score-nan", "scorer", "embedder", "always", "always-str"),
        *("one", "str", "none", "none-in-list", "no-id"),
    ],
)
def test_wrong_use_is_said_in_a_sentence(catalogue, call, message):
    with pytest.raises(UsageError, match=message):
        call(catalogue)


def test_definitions_snapshots_registries_and_generators_work_alike(tmp_path):
    from handrail.build.scaffold import new_tool

    for name in ("lookup_order", "cancel_order", "weather_report"):
        new_tool(tmp_path, tmp_path / "tools", name, "retrieval")
    with open_tools(tmp_path / "tools") as kit:
        definitions = [tool.definition for tool in kit.snapshot]
        expected = ids(pick_tools("cancel an order", definitions))
        assert expected[0] == "cancel_order"
        assert ids(pick_tools("cancel an order", kit.snapshot)) == expected
        assert ids(pick_tools("cancel an order", kit.registry)) == expected
        assert ids(pick_tools("cancel an order", (one for one in definitions))) == expected
        assert ids(pick_tools("cancel an order", [one.to_dict() for one in definitions])) == expected
        assert isinstance(kit.registry, Registry)
        assert all(isinstance(one, ToolDefinition) for one in pick_tools("order", kit.snapshot))


def test_the_index_is_made_once_per_catalogue(catalogue, monkeypatch):
    from handrail.picking import pick

    made = []
    real = pick.ToolIndex
    monkeypatch.setattr(pick, "ToolIndex", lambda *args, **named: made.append(1) or real(*args, **named))
    for query in ("weather", "music", "flights"):
        pick_tools(query, catalogue)
        pick_tools(query, list(catalogue))
    assert len(made) == 1
    catalogue[1]["description"] = "Tells when the tide is high."
    assert ids(pick_tools("tide", catalogue)) == ["convertCurrency"]
    assert len(made) == 2


def test_catalogues_that_were_not_used_lately_are_forgotten(catalogue):
    from handrail.picking import pick

    for number in range(30):
        pick_tools("weather", [*catalogue, {"toolId": f"t{number}", "description": "x"}])
    assert len(pick._indexes) == 8


WORDS = st.sampled_from(["weather", "money", "flight", "song", "bill", "letter", "city", "rain", "euro", "date"])
CATALOGUES = st.lists(st.lists(WORDS, min_size=1, max_size=6), min_size=1, max_size=12)


@given(CATALOGUES, st.lists(WORDS, min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_catalogue_changes_nothing(texts, query, chance):
    tools = [{"toolId": f"t{number}", "description": " ".join(words)} for number, words in enumerate(texts)]
    shuffled = list(tools)
    chance.shuffle(shuffled)
    asked = " ".join(query)
    assert ToolIndex(tools).pick(asked, 20) == ToolIndex(shuffled).pick(asked, 20)


@given(CATALOGUES, st.lists(WORDS, min_size=1, max_size=6), st.integers(0, 12), st.integers(0, 400))
def test_limits_only_leave_out(texts, query, k, budget):
    tools = [{"toolId": f"t{number}", "description": " ".join(words)} for number, words in enumerate(texts)]
    index = ToolIndex(tools)
    asked = " ".join(query)
    everything = index.pick(asked, 20)
    assert [one.score for one in everything] == sorted((one.score for one in everything), reverse=True)
    assert all(0 < one.score <= 1 for one in everything)
    assert index.pick(asked, k) == everything[:k]
    limited = index.pick(asked, 20, token_budget=budget)
    assert [one for one in everything if one in limited] == limited
    assert index.tokens(one.tool_id for one in limited) <= budget


@given(CATALOGUES, st.lists(WORDS, min_size=1, max_size=6))
def test_a_tool_that_shares_no_word_is_not_picked_and_drops_none(texts, query):
    tools = [{"toolId": f"t{number}", "description": " ".join(words)} for number, words in enumerate(texts)]
    asked = " ".join(query)
    before = {one.tool_id for one in ToolIndex(tools).pick(asked, 20, min_score=0)}
    stranger = {"toolId": "stranger", "description": "Completely unrelated astrophysics."}
    after = {one.tool_id for one in ToolIndex([*tools, stranger]).pick(asked, 20, min_score=0)}
    assert after == before


@given(st.text(max_size=300), st.lists(st.tuples(st.text(min_size=1, max_size=20), st.text(max_size=60)), max_size=6))
def test_any_text_can_be_asked_and_described(query, texts):
    tools = [{"toolId": name, "description": text} for name, text in dict(texts).items()]
    picked = pick_tools(query, tools, 3)
    assert len(picked) <= 3
    assert all(one in tools for one in picked)


def test_the_programs_of_the_page_run(capsys):
    page = (Path(__file__).parents[2] / "docs" / "picking-tools.md").read_text(encoding="utf-8")
    programs = re.findall(r"^```python\n(.*?)^```$", page, re.M | re.S)
    exec("\n".join(programs), {})
    printed = capsys.readouterr().out.split("\n")
    assert printed[:2] == ["get_weather", "search_flights"]
    assert printed[2].startswith("get_tool_guide 0.0")
    assert printed[3].startswith("convertCurrency 0.")
