"""The promise on public data: how often the right one of 199 tools is among the first five."""

from handrail.picking import ToolIndex


def shares(index, queries, scorer):
    """The share of queries with the right tool among the first five: all, and each half."""
    found = [item["tool"] in [one.tool_id for one in index.pick(item["query"], 5, scorer=scorer)] for item in queries]
    return [sum(part) / len(part) for part in (found, found[::2], found[1::2])]


def tools_of(data):
    return [{"toolId": name, "description": text} for name, text in data["tools"].items()]


def test_keywords_find_the_right_tool(metatool):
    everything, one, other = shares(ToolIndex(tools_of(metatool)), metatool["single_tool_queries"], "keywords")
    assert everything >= 0.70
    assert min(one, other) >= 0.67


def test_the_hybrid_finds_the_right_tool(metatool, minilm):
    index = ToolIndex(tools_of(metatool), embedder=minilm)
    everything, one, other = shares(index, metatool["single_tool_queries"], "hybrid")
    assert everything >= 0.84
    assert min(one, other) >= 0.83


def test_the_hybrid_finds_by_meaning_with_the_real_model(minilm):
    tools = [
        {"toolId": "get_weather", "description": "Current conditions and forecast for a city."},
        {"toolId": "send_invoice", "description": "Bill a customer."},
        {"toolId": "play_music", "description": "Play songs and playlists."},
    ]
    index = ToolIndex(tools, embedder=minilm)
    assert index.pick("Will I need an umbrella in Paris?", 1)[0].tool_id == "get_weather"
    assert index.pick("I want to hear some jazz", 1)[0].tool_id == "play_music"
