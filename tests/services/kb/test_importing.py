"""Import: resumable, idempotent, whole or not there, and with --strict all or nothing."""

import asyncio
import itertools
import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from handrail_reference.services.kb import importing, pausing
from handrail_reference.services.kb.files import find_sources
from handrail_reference.services.kb.importing import embed_missing, import_sources
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_queries import all_records, statistics
from handrail_reference.services.kb.record_writes import Tally, put_records, remove_records


def _lines(path, records):
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def _import(kb, *paths, **options):
    sources, passed = find_sources(paths)
    return import_sources(kb.database, sources, passed, **options)


def _records(count, word="plain"):
    return [{"id": f"doc:r{number}", "text": f"{word} record number {number}"} for number in range(count)]


def _content(kb):
    """Every table that an import fills, without numbers that only count up."""

    def stems(db):
        every = "SELECT s.lexeme, count(*), sum((w.often ->> s.lexeme)::int) FROM {} w, unnest(w.words) s GROUP BY 1 ORDER BY 1"
        found = [statistics(db), [record.to_dict() for record in all_records(db)]]
        found += [db.execute(every.format(table)).fetchall() for table in ("head_words", "piece_words")]
        sizes = "SELECT tenant, namespace, owner, heads, words_in_heads, pieces, words_in_pieces FROM scope ORDER BY 1, 2, 3"
        del found[0]["bytes"]
        return [*found, db.execute(sizes).fetchall()]

    def look(db):
        words = "SELECT term, doc, cnt FROM temp.v ORDER BY 1"
        db.execute("PRAGMA query_only = OFF")
        found = [statistics(db), [record.to_dict() for record in all_records(db)]]
        for table in ("head_words", "piece_words"):
            db.execute(f"CREATE VIRTUAL TABLE temp.v USING fts5vocab('main', '{table}', 'row')")
            found.append(db.execute(words).fetchall())
            db.execute("DROP TABLE temp.v")
        del found[0]["bytes"]
        return found

    return kb.database.read_now(stems if isinstance(kb.database, PostgresKnowledgeBase) else look)


@pytest.mark.parametrize("kind", ["sqlite"], indirect=True)
def test_the_words_of_a_batch_are_one_segment_of_the_index(open_base, tmp_path):
    kb = open_base()
    _import(kb, _lines(tmp_path / "a.jsonl", _records(400)))
    for table in ("head_words", "piece_words"):
        count = f"SELECT count(DISTINCT segid) FROM {table}_idx"
        assert kb.database.read_now(lambda db, count=count: db.execute(count).fetchone()) == (1,)


def test_the_same_content_again_is_no_work(open_base, tmp_path, embedder):
    kb = open_base(embedder=embedder)
    path = _lines(tmp_path / "a.jsonl", _records(30))
    assert _import(kb, path).tally.added == 30
    assert embed_missing(kb.database, embedder) == 30
    before, embedded = _content(kb), embedder.texts

    again = _import(kb, path)
    assert (again.tally.unchanged, again.tally.touched) == (30, 0)
    assert embed_missing(kb.database, embedder) == 0
    assert embedder.texts == embedded
    assert _content(kb) == before


def test_a_changed_record_takes_the_place_of_the_old_one(open_base, tmp_path, ids):
    kb = open_base()
    _import(kb, _lines(tmp_path / "a.jsonl", _records(3)))
    changed = [*_records(2), {"id": "doc:r2", "text": "marmalade"}]
    outcome = _import(kb, _lines(tmp_path / "a.jsonl", changed))
    assert (outcome.tally.changed, outcome.tally.unchanged) == (1, 2)
    assert ids(kb, "marmalade") == ["doc:r2"]
    assert set(ids(kb, "plain")) == {"doc:r0", "doc:r1"}


def test_changing_and_deleting_leaves_nothing_behind_in_the_index(open_base, tmp_path):
    kb = open_base({"id": "doc:keep", "title": "Ünï 知识", "text": "keep me " * 300, "tags": ["a", "b"]})
    before = _content(kb)
    extra = [make_record({"id": f"doc:x{n}", "title": "知识库 ﬁ", "text": "é word " * 400}) for n in range(5)]
    kb.database.write_now(lambda db: put_records(db, extra, Tally()))
    keys = kb.database.read_now(
        lambda db: [row[0] for row in db.execute("SELECT key FROM record WHERE id LIKE 'doc:x%'")]
    )
    assert kb.database.write_now(lambda db: remove_records(db, keys)) == 5
    assert _content(kb) == before


def test_the_same_id_in_another_namespace_is_another_record(open_base, tmp_path):
    lines = [{"id": "doc:a", "text": "x", "namespace": namespace} for namespace in ("studio", "public", "studio")]
    outcome = _import(open_base(), _lines(tmp_path / "a.jsonl", lines))
    assert (outcome.tally.added, outcome.skipped) == (2, 1)
    assert "a.jsonl:1 already" in outcome.problems[0][1]


def test_bad_records_are_named_by_line_and_skipped(open_base, tmp_path):
    kb = open_base()
    path = tmp_path / "a.jsonl"
    path.write_text('{"id": "doc:a", "text": "x"}\nnope\n{"id": "doc:a", "text": "y"}\n{"id": "doc:b", "text": "z"}\n')
    outcome = _import(kb, path)
    assert (outcome.tally.added, outcome.skipped) == (2, 2)
    places = [place for place, _ in outcome.problems]
    assert places == ["a.jsonl:2", "a.jsonl:3"]
    assert "a.jsonl:1 already" in outcome.problems[1][1]


def test_strict_changes_nothing_if_one_record_is_bad(open_base, tmp_path):
    kb = open_base({"id": "doc:old", "text": "old"})
    before = _content(kb)
    outcome = _import(kb, _lines(tmp_path / "a.jsonl", [*_records(600), {"id": "bad"}]), strict=True)
    assert outcome.refused
    assert outcome.problems[0][0] == "a.jsonl:601"
    assert _content(kb) == before


def test_a_batch_that_fails_is_not_there_at_all(open_base, tmp_path, monkeypatch):
    kb = open_base()
    monkeypatch.setattr(importing, "BATCH", 10)
    values = importing.record_writes._values
    calls = []

    def failing(*args):
        calls.append(1)
        if len(calls) == 25:
            raise RuntimeError("the disk went away")
        return values(*args)

    monkeypatch.setattr(importing.record_writes, "_values", failing)
    path = _lines(tmp_path / "a.jsonl", _records(40))
    with pytest.raises(RuntimeError):
        _import(kb, path)
    assert kb.database.read_now(statistics)["records"] == 20
    outcome = _import(kb, path)
    assert (outcome.tally.unchanged, outcome.tally.added) == (20, 20)


_KILLED = """
import sys, time
from pathlib import Path
from handrail_reference.services.kb import importing, record_writes
from handrail_reference.services.kb.database import KnowledgeDatabase
from handrail_reference.services.kb.files import find_sources
from handrail_reference.services.kb.postgres import PostgresKnowledgeBase

place = KnowledgeDatabase(Path(sys.argv[2])) if len(sys.argv) < 4 else PostgresKnowledgeBase(sys.argv[2], schema=sys.argv[3])
importing.BATCH = 20
def told(done, total):
    if done * 3 > total:
        print("far", flush=True)
        time.sleep(60)
sources, passed = find_sources([Path(sys.argv[1])])
importing.import_sources(place, sources, passed, progress=told)
"""


def test_an_import_that_was_killed_goes_on_and_ends_as_if_nothing_had_happened(open_base, place_of, tmp_path):
    path = _lines(tmp_path / "a.jsonl", _records(200))
    killed = tmp_path / "killed.db"
    place = place_of(killed)
    there = [str(place)] if isinstance(place, Path) else [place._url, place._schema]
    process = subprocess.Popen([sys.executable, "-c", _KILLED, str(path), *there], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"far\n"
    process.kill()
    process.wait()
    process.stdout.close()

    kb, fresh = open_base(path=killed), open_base(path=tmp_path / "fresh.db")
    stored = kb.database.read_now(statistics)["records"]
    assert 0 < stored < 200
    assert stored % 20 == 0
    outcome = _import(kb, path)
    assert (outcome.tally.unchanged, outcome.tally.added) == (stored, 200 - stored)
    _import(fresh, path)
    assert _content(kb) == _content(fresh)


def test_embedding_that_was_stopped_goes_on(open_base, tmp_path, embedder):
    kb = open_base(*_records(50))

    class Tired(type(embedder)):
        def embed(self, texts):
            if self.texts >= 20:
                raise KeyboardInterrupt
            return super().embed(texts)

    with pytest.raises(KeyboardInterrupt):
        embed_missing(kb.database, Tired(), batch=10)
    assert kb.database.read_now(statistics)["vectors"] == {"hashing-test": 20}
    assert embed_missing(kb.database, embedder, batch=10) == 30
    assert embedder.texts == 30


def test_an_export_imports_to_the_same_bytes(open_base, tmp_path):
    from handrail_reference.commands.kb_output import write_lines

    first = open_base(
        {
            "id": "person:ä",
            "title": "Ä",
            "tags": ["x"],
            "metadata": {"b": 1, "a": [1.5, None]},
            "url": "https://e.org/?q=1",
        },
        {"id": "doc:mine", "text": "line\nline\ttab \u2028 end", "namespace": "personal", "owner": "u1", "tenant": "t"},
        {"id": "doc:dated", "text": "x", "last_updated": "2026-03-29T12:00:00.5+02:00", "source": "elsewhere"},
    )
    one, other = tmp_path / "one.jsonl", tmp_path / "other.jsonl"
    first.database.read_now(lambda db: write_lines(all_records(db), str(one)))
    second = open_base(path=tmp_path / "second.db")
    assert _import(second, one).skipped == 0
    second.database.read_now(lambda db: write_lines(all_records(db), str(other)))
    # What named no source is from the export now; the rest is the same to the byte.
    assert other.read_bytes().replace(b'"source":"one.jsonl",', b"") == one.read_bytes()
    third = open_base(path=tmp_path / "third.db")
    _import(third, other)
    third.database.read_now(lambda db: write_lines(all_records(db), str(one)))
    assert one.read_bytes() == other.read_bytes()


def test_a_folder_of_bad_pages_imports_the_good_ones(open_base, tmp_path):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "a.md").write_text("# A\n\ntext")
    (pages / "b.md").write_text("---\ntitle: [x\n---\n")
    outcome = _import(open_base(), pages)
    assert (outcome.tally.added, outcome.skipped) == (1, 1)
    assert outcome.problems[0][0] == "pages/b.md:2"


def test_time_is_not_part_of_what_is_stored(open_base, tmp_path):
    one, other = open_base(*_records(5), path=tmp_path / "one.db"), open_base(path=tmp_path / "other.db")
    time.sleep(0.01)
    other.database.write_now(lambda db: put_records(db, [make_record(raw) for raw in _records(5)], Tally()))
    assert _content(one) == _content(other)


@pytest.mark.parametrize("strict", [False, True])
async def test_the_loop_runs_on_while_a_file_is_read(open_base, tmp_path, monkeypatch, strict):
    """No thread is made to give the interpreter away here, so that the loop runs only where the import lets it."""
    monkeypatch.setattr(pausing, "_BUSY_SECONDS", 0.0)
    kb, rounds, seen = open_base(), 0, []
    table = tmp_path / "bad.csv"
    table.write_text("id,text\n" + "no id,x\n" * 300, encoding="utf-8")
    usual = sys.getswitchinterval()
    sys.setswitchinterval(1_000)
    try:
        work = asyncio.to_thread(_import, kb, table, strict=strict, on_problem=lambda *_: seen.append(rounds))
        importer = asyncio.create_task(work)
        while not importer.done():
            rounds += 1
            await asyncio.sleep(0)
    finally:
        sys.setswitchinterval(usual)
    assert importer.result().skipped == len(seen) == 300
    assert seen[0] < seen[-1]


def test_there_is_a_pause_after_each_millisecond_of_work(paused):
    assert paused(lambda number: True) == [0, 1, 2, "pause", 3, 4, 5, "pause", 6]


def test_there_is_no_pause_where_none_is_needed(paused):
    assert paused(lambda number: False) == [0, 1, 2, 3, 4, 5, 6]
    assert paused(lambda number: number == 4) == [0, 1, 2, 3, 4, "pause", 5, 6]


@pytest.fixture
def paused(monkeypatch):
    """Seven things of 0.4 ms each, and the pauses between them."""

    def run(is_needed):
        now, story = 0.0, []

        def things():
            nonlocal now
            for number in range(7):
                now += 0.0004
                yield number

        clock = SimpleNamespace(thread_time=lambda: now, sleep=lambda seconds: story.append("pause"))
        monkeypatch.setattr(pausing, "time", clock)
        for number in pausing.unhurried(things(), lambda: is_needed(story[-1])):
            story.append(number)
        return story

    return run


def test_writing_pauses_only_while_somebody_searches(open_base, monkeypatch):
    pauses = []
    clock = SimpleNamespace(thread_time=itertools.count().__next__, sleep=pauses.append)
    monkeypatch.setattr(pausing, "time", clock)
    kb, records = open_base(), [make_record(raw) for raw in _records(20)]

    def write():
        kb.database.write_now(lambda db: put_records(db, records, Tally()))

    write()
    assert not pauses
    kb.database.read_now(lambda db: write())
    assert len(pauses) == 20
