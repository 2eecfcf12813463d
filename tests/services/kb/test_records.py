"""Records: everything from outside is checked, and every problem is a sentence."""

import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail_reference.services.kb.record import BadRecord, make_record, shown_title

GOOD = {"id": "person:ana_kovac", "title": "Ana Kovač", "text": "Runs onboarding."}


def test_a_record_needs_little_and_the_rest_has_defaults():
    record = make_record(GOOD)
    assert (record.type, record.namespace, record.owner, record.tenant) == ("person", "studio", "", "")
    assert make_record(record.to_dict()) == record


def test_a_date_is_kept_as_a_moment_in_utc():
    assert make_record({**GOOD, "last_updated": "2026-03-29"}).last_updated == "2026-03-29T00:00:00Z"
    assert make_record({**GOOD, "last_updated": "2026-03-29T01:30:00+02:00"}).last_updated == "2026-03-28T23:30:00Z"


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"id": "no colon"}, '"id" must look like'),
        ({"id": "Person:ana"}, '"id" must look like'),
        ({"id": 'person:"quoted"'}, '"id" must look like'),
        ({"id": "person:a\u202eb"}, '"id" must look like'),
        ({"type": "project"}, "make them agree"),
        ({"title": 5}, '"title" must be text'),
        ({"text": "a\0b"}, "NUL"),
        ({"title": "half \ud800"}, "surrogate"),
        ({"tags": "one"}, '"tags" must be a list'),
        ({"tags": [""]}, '"tags" must be a list'),
        ({"tags": ["a"] * 51}, '"tags" must be a list'),
        ({"metadata": [1]}, '"metadata" must be an object'),
        ({"metadata": {"a": "x" * 40_000}}, "bytes"),
        ({"metadata": {"a": "\0"}}, "NUL"),
        ({"namespace": "Not A Word"}, '"namespace" must be'),
        ({"namespace": "personal"}, "has an owner"),
        ({"owner": "u1"}, "has an owner"),
        ({"url": "javascript:alert(1)"}, '"url" must be'),
        ({"url": "https://"}, '"url" must be'),
        ({"last_updated": "yesterday"}, '"last_updated" must be'),
        ({"last_updated": "2026-03-29T12:00:00"}, '"last_updated" must be'),
        ({"title": "x" * 501}, "at most 500"),
        ({"text": "x" * 2_000_001}, "Split it"),
        ({"title": "", "text": " \n"}, "both are empty"),
        ({"contents": "x"}, "no field"),
        ({"content": "x"}, 'did you mean "text"'),
        ({"titel": "x"}, 'did you mean "title"'),
    ],
    ids=str,
)
def test_what_is_wrong_is_named_in_a_sentence(change, part):
    with pytest.raises(BadRecord) as caught:
        make_record({**GOOD, **change})
    assert part in str(caught.value)
    assert len(str(caught.value)) < 500


def test_every_problem_is_named_at_once():
    with pytest.raises(BadRecord) as caught:
        make_record({"id": "x", "tags": 1, "url": "x"})
    assert len(caught.value.problems) == 4


@pytest.mark.parametrize("raw", [None, 5, "x", [], [["id", "a:b"]]], ids=str)
def test_what_is_no_object_is_no_record(raw):
    with pytest.raises(BadRecord, match="A record is an object"):
        make_record(raw)


def test_the_hash_knows_content_and_not_where_it_is_from():
    one, other = make_record(GOOD), make_record({**GOOD, "source": "elsewhere.jsonl"})
    assert one.content_hash == other.content_hash
    assert one.content_hash != make_record({**GOOD, "text": "Runs payroll."}).content_hash


def test_a_record_without_a_title_is_shown_by_its_first_line():
    assert shown_title("", "\n## Eligibility\n\nBe eighteen.") == "Eligibility"
    assert shown_title("", "word " * 50).endswith("…")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
)
NAMES = st.sampled_from(
    ["id", "type", "title", "text", "tags", "namespace", "owner", "url", "metadata", "last_updated"]
)


@given(st.dictionaries(NAMES | st.text(max_size=5), VALUES, max_size=8))
def test_whatever_comes_is_a_record_or_a_list_of_problems(raw):
    try:
        record = make_record(raw)
    except BadRecord:
        return
    assert make_record(record.to_dict()) == record


@pytest.mark.parametrize("title", ["a\x1b[2Jb", "a\nb", "a\x07b", "a\u2028b", "a\x9bb"], ids=ascii)
def test_a_title_has_no_control_characters(title):
    with pytest.raises(BadRecord, match="control characters"):
        make_record({"id": "doc:a", "title": title})


def test_a_title_may_have_every_other_character():
    every = [chr(code) for code in range(1, sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    refused = {char for char in every if unicodedata.category(char) in ("Cc", "Zl", "Zp")}
    for char in refused:
        with pytest.raises(BadRecord, match="control characters"):
            make_record({"id": "doc:a", "title": f"a{char}b"})
    others = "".join(char for char in every if char not in refused)
    for start in range(0, len(others), 400):
        title = f"a{others[start : start + 400]}b"
        assert make_record({"id": "doc:a", "title": title}).title == title
