"""`handrail doctor` and the databases beside the store: read only, and told in the words of whoever would stop at them."""

import json
import sqlite3
from contextlib import closing

import pytest
from tests.server.earlier import earlier_conversations

EVENT = "BEGIN:VCALENDAR\nBEGIN:VEVENT\nUID:a\nDTSTART:20260113T140000Z\nEND:VEVENT\nEND:VCALENDAR\n"
USING = {
    "service kb": ("kb.db", ("kb", "stats")),
    "service calendar": ("calendar.db", ("calendar", "list")),
    "conversations": ("conversations.db", ("users", "forget", "ana", "--yes")),
}
CHECKS = pytest.mark.parametrize("check", USING)


@pytest.fixture
def used(built, handrail, monkeypatch):
    """A project whose files have something in them."""
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "none")
    monkeypatch.setenv("HANDRAIL_SERVICES_CALENDAR_PATH", "calendar.db")
    lines = [json.dumps({"id": f"doc:{number}", "text": f"word{number} " * 200}) for number in range(50)]
    (built / "a.jsonl").write_text("\n".join(lines))
    (built / "a.ics").write_text(EVENT)
    assert handrail("kb", "import", "a.jsonl").code == 0
    assert handrail("calendar", "import", "a.ics").code == 0
    assert handrail("users", "forget", "nobody", "--yes").code == 0
    earlier_conversations(built / "conversations.db")
    return built


def doctored(handrail):
    return {found["name"]: (found["ok"], found["message"]) for found in json.loads(handrail("doctor", "--json").out)}


def as_they_are(folder):
    return {path.name: path.read_bytes() for name, _ in USING.values() for path in folder.glob(f"{name}*")}


def _no_database(path):
    path.write_bytes(b"no database " * 500)


def _another_programs(path):
    path.unlink()
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")


def _newer(path):
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 99")


def _folder(path):
    path.unlink()
    path.mkdir()


HARMS = pytest.mark.parametrize("harm", [_no_database, _another_programs, _newer, _folder])


def test_files_that_are_right_are_said_to_be_and_left_alone(used, handrail):
    before = as_they_are(used)
    found = doctored(handrail)
    assert found["service kb"] == (True, "embeddings: none")
    assert found["service calendar"] == (True, "calendar.db can be used")
    assert found["conversations"] == (True, "conversations.db is brought into the store at the next start")
    assert as_they_are(used) == before


@HARMS
@CHECKS
def test_a_file_that_cannot_be_used_is_told_as_its_command_tells_it(used, handrail, check, harm):
    name, words = USING[check]
    harm(used / name)
    listed = sorted(path.name for path in used.iterdir())
    said = handrail("doctor")
    ok, message = doctored(handrail)[check]
    assert (said.code, ok) == (1, False)
    assert sorted(path.name for path in used.iterdir()) == listed
    stopped = handrail(*words)
    assert stopped.code != 0
    assert stopped.err.splitlines()[-1] == f"handrail {words[0]}: {message}"


@CHECKS
def test_damage_in_the_middle_of_a_file_is_found(used, handrail, check):
    path = used / USING[check][0]
    with closing(sqlite3.connect(path)) as db:
        page = db.execute("PRAGMA page_size").fetchone()[0]
    data = bytearray(path.read_bytes())
    data[2 * page : 3 * page] = b"\xff" * page
    path.write_bytes(data)
    ok, message = doctored(handrail)[check]
    assert not ok
    assert path.name in message
    if check != "conversations":
        assert "is damaged; " in message


def test_a_file_that_somebody_writes_at_the_moment_is_read_as_it_is(used, handrail):
    with closing(sqlite3.connect(used / "kb.db", isolation_level=None)) as db:
        db.execute("BEGIN IMMEDIATE")
        db.execute("INSERT INTO fact VALUES ('one', 'more')")
        assert doctored(handrail)["service kb"][0]
        db.execute("COMMIT")
        assert doctored(handrail)["service kb"][0]


def test_conversations_of_an_earlier_version_are_of_no_concern_to_a_store_in_memory(used, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_STORE_URL", "memory:")
    (used / "conversations.db").write_bytes(b"of no concern")
    assert "conversations" not in doctored(handrail)


def test_conversations_that_are_in_the_store_have_no_check_of_their_own(used, handrail):
    assert handrail("users", "forget", "nobody", "--yes").code == 0
    assert not (used / "conversations.db").exists()
    assert "conversations" not in doctored(handrail)


def test_a_store_that_is_a_link_is_told_with_where_it_points(used, handrail):
    (used / "real").mkdir()
    (used / "handrail.db").rename(used / "real" / "store.db")
    (used / "handrail.db").symlink_to(used / "real" / "store.db")
    assert doctored(handrail)["store"] == (
        True,
        f'handrail.db can be used; it is a link to "{used / "real" / "store.db"}"',
    )


@pytest.mark.parametrize("suffix", ["-wal", ".owners"])
def test_a_file_beside_the_store_that_is_a_link_is_told(used, handrail, suffix):
    (used / "elsewhere").mkdir(exist_ok=True)
    for old in used.glob(f"handrail.db{suffix}"):
        old.rename(used / "elsewhere" / "old")
    (used / f"handrail.db{suffix}").symlink_to(used / "elsewhere" / "old")
    ok, message = doctored(handrail)["store"]
    assert not ok
    assert f'"handrail.db{suffix}" is a link' in message


@pytest.mark.parametrize("check", ["store", "conversations"])
def test_a_file_on_a_network_file_system_is_told(used, handrail, monkeypatch, check):
    mounts = used / "mounts"
    mounts.write_text(f"1 1 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {used} rw,noatime shared:1 - nfs4 host:/x rw\n")
    monkeypatch.setattr("handrail.stores.open_files._MOUNTS", mounts)
    ok, message = doctored(handrail)[check]
    assert not ok
    assert "on a network file system (nfs4)" in message


def test_files_of_another_user_are_told(used, handrail, monkeypatch):
    user = (used / "handrail.db").stat().st_uid
    monkeypatch.setattr("os.geteuid", lambda: user + 1)
    ok, message = doctored(handrail)["store"]
    assert not ok
    assert f'"handrail.db" belongs to user {user} and this is user {user + 1}' in message
    assert f'"handrail.db.owners" belongs to user {user}' in message


def test_a_store_that_was_restored_from_an_older_copy_is_named(built, handrail):
    ask = ("call", "lookup_order", "--args", '{"id": "A-1001"}')
    assert handrail(*ask).code == 0
    said = handrail("doctor").out
    assert "store age     no older than the audit log: it knows the newest calls there" in said
    older = (built / "handrail.db").read_bytes()
    assert handrail(*ask).code == 0
    (built / "handrail.db").write_bytes(older)
    said = handrail("doctor")
    assert said.code == 1
    assert "FAIL  store age     The store is older than its audit log: it does not know the session" in said.out
    assert "It was restored from an older copy" in said.out
