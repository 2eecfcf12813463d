"""Files: every kind that can be imported, and everything that can be wrong with one, by file and line."""

import pytest

from handrail.contract.errors import UsageError
from handrail_reference.services.kb import files
from handrail_reference.services.kb.files import find_sources, read_source
from handrail_reference.services.kb.front_matter import FrontMatterError, split_page


def _read(*paths, **defaults):
    sources, passed = find_sources(paths)
    return [*passed, *(entry for source in sources for entry in read_source(source, defaults))]


def _problems(*paths):
    return [(entry.place, entry.problems[0]) for entry in _read(*paths) if entry.problems]


def _write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_json_lines_are_read_with_blank_lines_and_a_byte_order_mark(tmp_path):
    path = _write(
        tmp_path / "a.jsonl", b'\xef\xbb\xbf{"id": "doc:a", "text": "x"}\n\n  \r\n{"id": "doc:b", "text": "y"}'
    )
    entries = _read(path, namespace="public")
    assert [(entry.place, entry.record.id) for entry in entries] == [("a.jsonl:1", "doc:a"), ("a.jsonl:4", "doc:b")]
    assert {entry.record.namespace for entry in entries} == {"public"}
    assert entries[0].record.source == "a.jsonl"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (b"{", "not JSON"),
        (b'{"id": "doc:a", "text": "\xff"}', "The line is not UTF-8 text (byte 25)."),
        (b'{"id": "doc:a", "text": "a\\u0000b"}', "NUL"),
        (b'["doc:a"]', "A record is an object"),
        (b'{"id": "doc:a", "text": NaN}', "not JSON"),
        (b"[" * 3_000, "not JSON"),
        (b'{"id": "doc:a", "text": ' + b"[" * 500 + b"]" * 500 + b"}", "text"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_bad_line_is_named_and_the_next_one_is_read(tmp_path, line, part):
    path = _write(tmp_path / "a.jsonl", line + b'\n{"id": "doc:good", "text": "x"}\n')
    bad, good = _read(path)
    assert bad.place == "a.jsonl:1"
    assert part in bad.problems[0]
    assert good.record.id == "doc:good"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('{"id": "doc:a", "metadata": {"x": 1e400}}', "The number at column 35 is too large to be stored"),
        ('{"id": "doc:a", "metadata": {"x": -1.5e999}}', "The number at column 35 is too large to be stored"),
        ('{"id": "doc:ä", "text": "a\\ud800b"}', "The text at column 27 has half of a surrogate pair"),
        ('{"id": "doc:a", "text": "\\udc00"}', "The text at column 26 has half of a surrogate pair"),
        ('{"id": "doc:a", "text": "\\ud800\\u0041"}', "The text at column 26 has half of a surrogate pair"),
    ],
    ids=["number", "negative number", "first half", "second half", "half before a letter"],
)
def test_a_json_line_that_cannot_be_stored_is_not_called_something_else(tmp_path, line, says):
    bad = _read(_write(tmp_path / "a.jsonl", line))[0]
    assert bad.problems[0].startswith(says)
    assert "not JSON" not in bad.problems[0]


def test_a_line_beyond_the_limit_is_passed_over_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_LINE_BYTES", 100)
    path = _write(
        tmp_path / "a.jsonl", '{"id": "doc:a", "text": "' + "x" * 1_000 + '"}\n{"id": "doc:b", "text": "y"}\n'
    )
    bad, good = _read(path)
    assert "longer than 100 bytes" in bad.problems[0]
    assert (good.place, good.record.id) == ("a.jsonl:2", "doc:b")


def test_a_table_is_read_with_tags_and_metadata(tmp_path):
    table = 'id,title,tags,metadata.team,text\nperson:a,"Ana, K.",one; two,studio,"two\nlines"\n,,,,\nperson:b,Bo,,,x\n'
    first, second = _read(_write(tmp_path / "people.csv", "\ufeff" + table))
    assert first.record.tags == ("one", "two")
    assert first.record.metadata == {"team": "studio"}
    assert first.record.text == "two\nlines"
    assert (first.place, second.place) == ("people.csv:2", "people.csv:5")


@pytest.mark.parametrize(
    ("table", "place", "part"),
    [
        ("title,text\nx,y\n", "t.csv:1", "name the columns"),
        ("id,id,text\na,b,c\n", "t.csv:1", "name the columns"),
        ("", "t.csv:1", "name the columns"),
        ("id,text\ndoc:a\n", "t.csv:2", "1 fields"),
        ("id,text,colour\ndoc:a,x,red\n", "t.csv:2", "no field"),
        ('id,text\ndoc:a,"open', "t.csv:2", "cannot be read"),
        (b"id,text\ndoc:a,\xff\n", "t.csv", "not UTF-8"),
        ("id,metadata,text\ndoc:a,nope,x\n", "t.csv:2", '"metadata"'),
        ("id,text\ndoc:a,a\0b\n", "t.csv:2", "NUL"),
    ],
    ids=lambda value: ascii(value)[:30],
)
def test_a_strange_table_is_named_by_its_line(tmp_path, table, place, part):
    found = _problems(_write(tmp_path / "t.csv", table))
    assert found[0][0] == place
    assert part in found[0][1]


PAGE = """---
id: process:onboarding
title: "Onboarding: the first week"
tags: [people, 'day one']
last_updated: 2026-03-01
metadata:
  team: studio
---
# Ignored heading

Say hello.
"""


def test_a_folder_of_pages_is_read_with_front_matter(tmp_path):
    _write(tmp_path / "pages" / "onboarding.md", PAGE)
    _write(tmp_path / "pages" / "Sub Folder" / "Plain Page.markdown", "# Plain\n\nNo front matter.")
    _write(tmp_path / "pages" / ".hidden" / "x.md", "# Hidden")
    _write(tmp_path / "pages" / "notes.txt", "not a page")
    entries = _read(tmp_path / "pages")
    by_id = {entry.record.id: entry.record for entry in entries}
    assert set(by_id) == {"process:onboarding", "doc:sub_folder/plain_page"}
    page = by_id["process:onboarding"]
    assert (page.title, page.tags) == ("Onboarding: the first week", ("people", "day one"))
    assert (page.metadata, page.source) == ({"team": "studio"}, "pages/onboarding.md")
    assert by_id["doc:sub_folder/plain_page"].title == "Plain"


def test_links_in_folders_are_not_followed(tmp_path):
    secret = _write(tmp_path / "secret.md", "# Secret")
    folder = tmp_path / "pages"
    _write(folder / "real.md", "# Real")
    (folder / "link.md").symlink_to(secret)
    (folder / "loop").symlink_to(folder)
    entries = _read(folder)
    assert [entry.record.title for entry in entries if entry.record] == ["Real"]
    assert [entry.place for entry in entries if entry.problems] == ["pages/link.md"]


def test_a_huge_page_and_one_that_is_no_text_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "MAX_PAGE_BYTES", 100)
    _write(tmp_path / "p" / "big.md", "x" * 101)
    _write(tmp_path / "p" / "binary.md", b"\xff\xfe")
    assert [place for place, _ in _problems(tmp_path / "p")] == ["p/big.md", "p/binary.md"]


@pytest.mark.parametrize("name", ["missing.jsonl", "picture.png"])
def test_what_cannot_be_imported_is_said_at_once(tmp_path, name):
    if name.endswith("png"):
        _write(tmp_path / name, "x")
    with pytest.raises(UsageError, match=name):
        find_sources([tmp_path / name])


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("---\n---\nx", {}),
        ("---\ntitle: A # note\n---\n", {"title": "A"}),
        ('---\ntitle: "a \\"b\\" # c"\n---\n', {"title": 'a "b" # c'}),
        ("---\ntags:\n  - one\n  - 'two, three'\n---\n", {"tags": ["one", "two, three"]}),
        ("---\ntags: []\n---\n", {"tags": []}),
        ("---\nurl: https://example.org/a:b\n---\n", {"url": "https://example.org/a:b"}),
        ("---\nempty:\n---\n", {}),
        ("no front matter", {}),
    ],
    ids=ascii,
)
def test_front_matter_is_read(text, values):
    assert split_page(text)[0] == values


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("---\ntitle: x\n", 1),
        ("---\njust words\n---\n", 2),
        ("---\na: 1\na: 2\n---\n", 3),
        ("---\ntags: [a\n---\n", 2),
        ("---\ntitle: &anchor x\n---\n", 2),
        ("---\ntitle: !!python/object x\n---\n", 2),
        ("---\ntitle: |\n  block\n---\n", 2),
        ('---\ntitle: "open\n---\n', 2),
        ('---\ntitle: "a" b\n---\n', 2),
        ("---\n- item\n---\n", 2),
    ],
    ids=ascii,
)
def test_front_matter_that_is_not_understood_is_named_by_its_line(text, line):
    with pytest.raises(FrontMatterError) as caught:
        split_page(text)
    assert caught.value.line == line
