"""Bytes → events: however a stream is cut into pieces, its events are the same; one beyond all measure is dropped."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from handrail.providers.event_stream import (
    MAX_EVENT_BYTES,
    LineDecoder,
    ServerSentEvents,
    StreamCounters,
    WholeBodyDecoder,
)

STREAM = (
    b': a comment\r\n\r\nevent: named\ndata: {"a": 1}\n\ndata:first\ndata: second\r\n\r\nid: 7\nretry: 3\n\n'
    b'rubbish\n\ndata: {"b": "\xc3\xbc"}\n\ndata: [DONE]\n\ndata: left'
)
EVENTS = [b'{"a": 1}', b"first\nsecond", '{"b": "ü"}'.encode(), b"[DONE]", b"left"]


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_server_sent_events_do_not_depend_on_how_they_arrive(cuts):
    counters = StreamCounters()
    decoder = ServerSentEvents(counters)
    places = [0, *sorted(cuts), len(STREAM)]
    found = [e for one, two in pairwise(places) for e in decoder.feed(STREAM[one:two])]

    assert [*found, *decoder.end()] == EVENTS
    assert counters.malformed_events == 1


@given(cuts=st.lists(st.integers(0, 30), max_size=12))
def test_lines_do_not_depend_on_how_they_arrive(cuts):
    stream = b'{"a":1}\r\n\n{"b":2}\n{"c":3}'
    decoder = LineDecoder(StreamCounters())
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    found = [e for one, two in pairwise(places) for e in decoder.feed(stream[one:two])]

    assert [line for line in [*found, *decoder.end()] if line] == [b'{"a":1}', b'{"b":2}', b'{"c":3}']


def test_an_event_beyond_all_measure_is_dropped_and_those_after_it_are_read():
    counters = StreamCounters()
    large = b"x" * (MAX_EVENT_BYTES // 4)
    events = ServerSentEvents(counters)
    found = [*events.feed(b"data: ")]
    for _ in range(5):
        found += events.feed(large)
    found += events.feed(b"\n\ndata: small\n\n")
    assert (found, counters.oversized_events) == ([b"small"], 1)

    found = [*events.feed((b"data: " + large + b"\n") * 5), *events.feed(b"\ndata: small\n\n")]
    assert (found, counters.oversized_events) == ([b"small"], 2)

    lines = LineDecoder(counters)
    assert [*lines.feed(large * 5 + b"\nsmall\n")] == [b"small"]
    whole = WholeBodyDecoder(counters)
    assert (whole.feed(large * 5), whole.end()) == ((), ())
    assert counters.oversized_events == 4
