"""JSON that is kept takes as much memory as it is long."""

import tracemalloc

import orjson

from handrail.schema.strict_json import trimmed


def test_what_is_kept_has_the_same_bytes_and_no_spare_room():
    values = [{"number": number} for number in range(500)]
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = [trimmed(orjson.dumps(value)) for value in values]
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [orjson.loads(one) for one in kept] == values
    assert (after - before) / len(kept) < 200
