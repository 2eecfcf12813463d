"""Numbers per tool and session, in the seeds' JSON shape and in a text that a strict Prometheus parser takes."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.observe.metrics import MAX_TOOLS, OTHER, WINDOW, Metrics, quantile


class Hands:
    """A clock that is moved by hand."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


def parse(text):
    """A strict reader of the text format 0.0.4: {(name, labels): value}, or an assertion that says what is wrong."""
    assert text.endswith("\n")
    label = r'[a-zA-Z_][a-zA-Z0-9_]*="(?:[^"\\\n]|\\[\\n"])*"'
    sample = re.compile(rf"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{{({label}(?:,{label})*)\}})? (\S+)")
    samples, families, current = {}, {}, None
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            current = line.split(" ")[2]
            assert current not in families, f"{current} is told twice"
            families[current] = None
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == current
            assert kind in ("counter", "gauge", "summary", "histogram")
            families[name] = kind
        else:
            found = sample.fullmatch(line)
            assert found, line
            name, labels, value = found[1], found[2] or "", float(found[3])
            suffix = {"summary": "_(sum|count)$", "histogram": "_(bucket|sum|count)$"}.get(families[current])
            base = re.sub(suffix, "", name) if suffix else name
            assert base == current, f"{name} stands below {current}"
            assert families[current] != "counter" or name.endswith("_total")
            pairs = tuple(re.findall(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"', labels))
            assert (name, pairs) not in samples, f"{line} is told twice"
            samples[name, pairs] = value
    return samples


def test_the_json_has_the_shape_of_the_seeds():
    metrics = Metrics()
    for size in (100, 200, 300, 400):
        metrics.record("kb_search", size / 10, True, None, size)
    metrics.context(3200, 9300)
    metrics.session_opened("s1")
    metrics.turn_started("s1")
    told = metrics.to_json()
    assert told["responseSizes"] == {"kb_search": {"p50": 200, "p95": 400, "p99": 400}}
    assert told["responseTokens"] == {"kb_search": {"avg": 62, "p95": 100}}
    assert (
        told["context"].items()
        >= {
            "sessionInitTokens": 12500,
            "systemPromptTokens": 3200,
            "toolDeclTokens": 9300,
        }.items()
    )
    assert told["loopDetection"] == {"activeSessions": 1, "totalTurnsTracked": 1}
    assert told["tools"]["kb_search"] == {
        "calls": 4,
        "held": 0,
        "errors": {},
        "stragglers": {"running": 0, "total": 0},
        "avgDuration": 25.0,
        "latency": {"p50": 20.0, "p95": 40.0, "p99": 40.0},
    }


def test_errors_are_counted_by_type():
    metrics = Metrics()
    for kind in ("TIMEOUT", "TIMEOUT", "RATE_LIMIT", None):
        metrics.record("a", 1, False, kind, 0)
    metrics.record("a", 1, True, None, 0)
    assert metrics.to_json()["tools"]["a"]["errors"] == {"INTERNAL": 1, "RATE_LIMIT": 1, "TIMEOUT": 2}


def test_percentiles_are_over_the_last_thousand_and_the_average_over_all():
    metrics = Metrics()
    for _ in range(500):
        metrics.record("a", 1_000_000, True, None, 1_000_000)
    for number in range(WINDOW):
        metrics.record("a", number + 1, True, None, number + 1)
    told = metrics.to_json()
    assert told["responseSizes"]["a"] == {"p50": 500, "p95": 950, "p99": 990}
    assert told["tools"]["a"]["latency"] == {"p50": 500.0, "p95": 950.0, "p99": 990.0}
    assert told["tools"]["a"]["calls"] == 1500
    assert told["tools"]["a"]["avgDuration"] > 300_000


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=300), st.sampled_from([0.5, 0.95, 0.99]))
def test_a_quantile_is_a_value_that_enough_values_do_not_exceed(values, share):
    found = quantile(sorted(values), share)
    assert found in values
    assert sum(value <= found for value in values) * 100 >= share * 100 * len(values) - 1e-6
    assert sum(value < found for value in values) * 100 < share * 100 * len(values)


def test_tokens_are_characters_by_four_rounded_up():
    metrics = Metrics()
    metrics.record("a", 1, True, None, 5)
    assert metrics.to_json()["responseTokens"]["a"] == {"avg": 2, "p95": 2}


def test_a_session_has_its_calls_turns_duration_and_peak_context():
    clock = Hands()
    metrics = Metrics(clock)
    metrics.session_opened("s1")
    metrics.session_opened("s1")
    for tokens in (100, 900, 300):
        metrics.turn_started("s1")
        metrics.session_call("s1")
        metrics.session_context(("s1", tokens, 1_000))
    metrics.note(("s1", "search", 1.0, None, 20))
    clock.now = 2.5
    expected = {"calls": 4, "turns": 3, "duration": 2500, "peakContextTokens": 900, "contextWindow": 1_000}
    assert metrics.session("s1") == expected
    metrics.session_closed("s1")
    clock.now = 10
    assert metrics.session("s1") == expected
    assert metrics.session("s2") is None
    told = metrics.to_json()["sessions"]
    assert (told["open"], told["total"], told["calls"], told["turns"]) == (0, 1, 4, 3)
    assert told["recent"] == {"s1": expected}
    assert metrics.to_json()["loopDetection"] == {"activeSessions": 0, "totalTurnsTracked": 0}


def test_unknown_sessions_and_endless_names_do_not_fill_the_memory():
    metrics = Metrics()
    metrics.session_closed("nobody")
    metrics.turn_started("nobody")
    for number in range(MAX_TOOLS + 50):
        metrics.record(f"t{number}", 1, True, None, 1)
    tools = metrics.to_json()["tools"]
    assert len(tools) == MAX_TOOLS + 1
    assert tools[OTHER]["calls"] == 50
    for number in range(500):
        metrics.session_opened(f"s{number}")
        metrics.session_closed(f"s{number}")
    assert len(metrics.to_json()["sessions"]["recent"]) == 100


def test_long_responses_and_a_full_context_are_warned_of():
    metrics = Metrics()
    metrics.record("short", 1, True, None, 1_500)
    metrics.session_opened("s1")
    metrics.session_context(("s1", 900_000, 1_000_000))
    assert metrics.warnings() == []
    for _ in range(20):
        metrics.record("long", 1, True, None, 1_501)
    metrics.session_context(("s1", 950_000, 1_000_000))
    assert metrics.warnings() == [
        'Responses of "long" are long: P95 is 1,501 characters, more than 1,500.',
        "A session used 95% of its model's context window, more than 90%.",
    ]


def test_prometheus_text_is_taken_by_a_strict_parser():
    metrics = Metrics()
    metrics.record("kb_search", 20, True, None, 400)
    metrics.record("kb_search", 40, False, "TIMEOUT", 0)
    metrics.context(10, 20)
    samples = parse(metrics.to_prometheus())
    tool = ("tool", "kb_search")
    assert samples["handrail_tool_calls_total", (tool,)] == 2
    assert samples["handrail_tool_errors_total", (tool, ("type", "TIMEOUT"))] == 1
    assert samples["handrail_tool_duration_seconds", (tool, ("quantile", "0.5"))] == 0.02
    assert samples["handrail_tool_duration_seconds_sum", (tool,)] == pytest.approx(0.06)
    assert samples["handrail_tool_duration_seconds_count", (tool,)] == 2
    assert samples["handrail_tool_response_characters", (tool, ("quantile", "0.99"))] == 400
    assert samples["handrail_tool_response_tokens_avg", (tool,)] == 50
    assert samples["handrail_context_declaration_tokens", ()] == 20


@given(st.lists(st.text(max_size=10), max_size=5), st.floats(0, 1e9))
def test_any_name_and_number_make_valid_prometheus_text(names, duration):
    metrics = Metrics()
    for name in names:
        metrics.record(name, duration, False, name, 7)
    samples = parse(metrics.to_prometheus())
    told = {pairs[0][1] for (name, pairs), _ in samples.items() if name == "handrail_tool_calls_total"}
    assert len(told) == len(set(names))
