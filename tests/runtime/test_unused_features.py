"""A governed call pays nothing for what its host does not use: it enters no function of it."""

from collections import Counter

from benchmarks.features import NOTHING, PARTS, by_functions, counted_calls


async def test_a_call_enters_no_function_of_a_feature_that_is_off(tmp_path):
    entered = await counted_calls(tmp_path)
    assert entered[NOTHING]["runtime/pipeline.py"] > 0
    assert any(path.startswith(PARTS["OpenTelemetry"]) for path in entered["OpenTelemetry"]), (
        "it is seen where it is on"
    )
    lines = by_functions(entered)
    assert [line.name for line in lines if not line.ok] == []
    assert sum(line.limit is not None for line in lines) == len(PARTS) + 3


def test_a_function_of_a_feature_that_is_off_is_beyond_the_limit():
    entered = {NOTHING: Counter({"runtime/pipeline.py": 3, "runtime/statistics.py": 1})}
    assert [line.name for line in by_functions(entered) if not line.ok] == [
        "functions of statistics by day in a call without it"
    ]
