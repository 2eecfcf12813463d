"""Commands on a project whose store is in PostgreSQL: the audit log is checked against it, and a user is forgotten in it."""

import json

import psycopg
import pytest

from handrail.observe.audit_files import audit_files
from handrail_reference.services.kb.opening import open_kb
from handrail_reference.services.kb.record import make_record
from handrail_reference.services.kb.record_writes import Tally, put_records

ORDER = ("--args", json.dumps({"id": "A-1001", "status": "shipped"}), "--yes")


@pytest.fixture
def url(built, postgres, monkeypatch):
    """The store of the project."""
    url = postgres.new_database()
    monkeypatch.setenv("HANDRAIL_STORE_URL", url)
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY", "a long secret of the operator")
    return url


def test_a_cut_tail_and_a_log_that_is_gone_are_found_through_the_store(built, handrail, url):
    for _ in range(2):
        assert handrail("call", "cancel_order", *ORDER).code == 0
    said = handrail("audit", "verify")
    assert (said.code, said.err) == (0, "")
    file = audit_files(built / "audit")[-1]
    kept = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(kept[:-2]))
    (built / "audit" / "checkpoints.jsonl").write_bytes(b"")
    said = handrail("audit", "verify")
    assert said.code == 1
    assert "checkpoint" in said.err
    file.unlink()
    said = handrail("audit", "verify")
    assert (said.code, bool(said.err)) == (1, True)


def test_a_store_that_cannot_be_reached_is_said_by_audit_verify(built, handrail, url, monkeypatch):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    monkeypatch.setenv("HANDRAIL_STORE_URL", url.replace("/test_", "/no_test_"))
    said = handrail("audit", "verify")
    assert said.code != 0
    assert "is not there" in said.err
    assert "Traceback" not in said.err


def test_a_forgotten_user_leaves_no_row_in_the_store_and_in_the_knowledge_base(built, handrail, url):
    assert handrail("call", "cancel_order", *ORDER, "--user", "ana-kovac").code == 0
    kb = open_kb(built, store_url=url, embeddings="none", starter=False)
    own = make_record({"id": "doc:diary", "text": "marmalade", "namespace": "personal", "owner": "ana-kovac"})
    kb.database.write_now(lambda db: put_records(db, [own], Tally()))
    kb.close_now()
    assert _rows_with(url, "ana-kovac")
    said = handrail("users", "forget", "ana-kovac", "--yes", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["deleted"]["records"] == 1
    assert _rows_with(url, "ana-kovac") == []
    assert handrail("audit", "verify").code == 0


def _rows_with(url, words):
    """Every row of every table that has these words somewhere."""
    tables = (
        "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables WHERE schemaname IN ('public', 'handrail_kb')"
    )
    with psycopg.connect(url) as db:
        return [
            (name, row)
            for (name,) in db.execute(tables).fetchall()
            for (row,) in db.execute(f"SELECT t::text FROM {name} t").fetchall()
            if words in row
        ]
