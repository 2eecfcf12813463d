"""The picture of a spoken booking in the docs is drawn from spans that were received, and shows those that a run has today."""

import importlib.util
import sys
import xml.etree.ElementTree as ET

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from tests.docs.pages import ROOT
from tests.observe.spoken_booking import play

SVG = "{http://www.w3.org/2000/svg}"
CONVERSATION, TURN, CALL = "voice conversation", "invoke_agent", "execute_tool calendar_create_event"
EXPECTED = [
    (CONVERSATION,),
    (CONVERSATION, "calendar clashes"),
    (CONVERSATION, TURN),
    (CONVERSATION, TURN),
    *[(CONVERSATION, TURN, "chat a-model")] * 5,
    (CONVERSATION, TURN, CALL),
    (CONVERSATION, TURN, CALL),
    (CONVERSATION, TURN, CALL, "calendar clashes"),
    (CONVERSATION, TURN, CALL, "calendar create"),
    *[(CONVERSATION, "loudspeaker")] * 4,
    *[(CONVERSATION, "microphone")] * 2,
]


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("trace_picture", ROOT / "scripts" / "trace_picture.py")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "trace_picture", module)
        spec.loader.exec_module(module)
        yield module


def shown(picture):
    """The paths of the spans that a picture shows."""
    groups = [one for one in ET.fromstring(picture).iter(f"{SVG}g") if one.get("class") == "span"]
    return [tuple(one.get("data-path").split(" / ")) for one in groups]


def span(number, parent, name, start, end, trace=b"t" * 16):
    parent_id = parent.to_bytes(8, "big") if parent else b""
    return Span(
        trace_id=trace,
        span_id=number.to_bytes(8, "big"),
        parent_span_id=parent_id,
        name=name,
        start_time_unix_nano=int(start * 1e9),
        end_time_unix_nano=int(end * 1e9),
    )


async def test_a_spoken_booking_is_one_trace_and_the_picture_in_the_docs_shows_its_spans(tmp_path, script):
    rows = script.rows_of(await play(tmp_path))
    assert sorted(row.path for row in rows) == sorted(EXPECTED)
    held, carried_out = [row for row in rows if row.name == CALL]
    assert (held.note, carried_out.note) == ("held for a yes", "carried out")
    (create,) = [row for row in rows if row.name == "calendar create"]
    yes = [row for row in rows if row.name == "microphone"][1]
    assert yes.start < create.start
    assert sorted(shown((ROOT / "docs" / "pictures" / "spoken-booking.svg").read_text(encoding="utf-8"))) == sorted(
        EXPECTED
    )


def test_each_span_has_a_bar_at_its_time_and_stands_under_its_parent(script):
    rows = script.rows_of(
        [
            span(3, 1, "late", 13, 14),
            span(1, 0, "all", 10, 20),
            span(2, 1, "<b> & co", 10, 15),
            span(4, 2, "in", 12, 13),
        ]
    )
    picture = script.draw(rows, "A & B", "four <spans>")
    assert shown(picture) == [("all",), ("all", "<b> & co"), ("all", "<b> & co", "in"), ("all", "late")]
    groups = [one for one in ET.fromstring(picture).iter(f"{SVG}g") if one.get("class") == "span"]
    bars = [(float(one.find(f"{SVG}rect").get("x")), float(one.find(f"{SVG}rect").get("width"))) for one in groups]
    (left, whole), *others = bars
    assert [(round((x - left) / whole, 2), round(width / whole, 2)) for x, width in others] == [
        (0.0, 0.5),
        (0.2, 0.1),
        (0.3, 0.1),
    ]
    words = [one.text for one in ET.fromstring(picture).iter(f"{SVG}text")]
    assert {"A & B", "four <spans>", "<b> & co", "10.00 s", "0 s", "10 s"} <= set(words)


def test_spans_of_two_traces_and_no_spans_are_refused(script):
    with pytest.raises(ValueError, match="more than one trace"):
        script.rows_of([span(1, 0, "a", 0, 1), span(2, 0, "b", 0, 1, trace=b"u" * 16)])
    with pytest.raises(ValueError, match="No span"):
        script.rows_of([])
