"""Files of earlier versions: the first start brings what is in them into the store, whatever happens in between."""

import asyncio
import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from tests.server.earlier import earlier_conversations
from tests.stores.processes import Racer

from handrail.contract.conversations import Ownership
from handrail.contract.errors import UsageError
from handrail.contract.store import Store, StoreUnavailable
from handrail.server import legacy_files
from handrail.server.legacy_files import copies, import_files, remove_old_copies
from handrail.settings import Settings
from handrail.stores import open_store

NAMES = tuple(f"s{number:03}" for number in range(250))


class Project:
    """A folder with a file of an earlier version, and the store that it goes into."""

    def __init__(self, folder: Path, url: str) -> None:
        self.settings = Settings(project=folder, store_url=url)
        self.path = folder / "conversations.db"
        self.copy = folder / "conversations.db.migrated"

    async def bring(self, store: Store | None = None) -> None:
        await import_files(self.settings, store or open_store(self.settings.store_url))

    async def found(self, *names: str) -> dict[str, str]:
        store = open_store(self.settings.store_url)
        await store.open()
        owners = await store.conversations.owners(names or NAMES)
        await store.close()
        return owners


@pytest.fixture(params=["sqlite", "postgres"])
def project(request: pytest.FixtureRequest, tmp_path: Path) -> Project:
    if request.param == "sqlite":
        return Project(tmp_path, f"sqlite:////{tmp_path}/handrail.db")
    return Project(tmp_path, request.getfixturevalue("postgres").new_database())


@pytest.mark.parametrize("version", [1, 2])
async def test_every_conversation_is_in_the_store_after_the_first_start(project, version):
    earlier_conversations(project.path, NAMES, version=version)
    await project.bring()
    assert not project.path.exists()
    assert project.copy.is_file()
    store = open_store(project.settings.store_url)
    await store.open()
    assert set(await store.conversations.owners(NAMES)) == set(NAMES)
    found = await store.conversations.load("s007")
    assert (found.user, found.key, found.live) == ("ana", "k1" if version == 2 else "", False)
    assert found.document == {"messages": [{"role": "user", "text": "words of s007"}]}
    assert [(turn.message_id, turn.text, turn.state, turn.answer, turn.last_event) for turn in found.turns] == [
        ("m1", "words of s007", "done", {"text": "answer 1"}, 10),
        ("m2", "words of s007", "running", {}, 20),
    ]
    # Nobody has it, so that whoever is asked first continues with the turn that was cut off.
    assert await store.conversations.standing("s007") == Ownership(owner="", live=False, running="m2")
    if version == 2:
        newest = await store.conversations.opened_with("k1", "ana", 1)
        assert (newest[0].session_id, newest[0].sealed) == (NAMES[-1], f"sealed {NAMES[-1]}")
        assert newest[0].updated_at == 1_700_000_001_500 + 249_000
    await store.close()
    await project.bring()
    assert project.copy.is_file()


async def test_after_a_crash_in_the_middle_the_next_start_goes_on_and_brings_nothing_back(project, monkeypatch):
    earlier_conversations(project.path, NAMES)
    store = open_store(project.settings.store_url)
    import_all, batches = store.conversations.import_all, []

    async def fails_at_the_second(source, batch):
        batches.append(batch)
        if len(batches) == 2:
            raise StoreUnavailable("The store is away.")
        return await import_all(source, batch)

    monkeypatch.setattr(store.conversations, "import_all", fails_at_the_second)
    with pytest.raises(StoreUnavailable):
        await project.bring(store)
    assert project.path.exists()
    assert set(await project.found()) == set(NAMES[:100])
    await store.open()
    await store.conversations.delete("s001")
    await store.close()
    await project.bring()
    assert set(await project.found()) == set(NAMES) - {"s001"}


async def test_after_a_crash_before_the_file_is_renamed_nothing_is_taken_twice(project, monkeypatch):
    earlier_conversations(project.path)
    with monkeypatch.context() as patched:
        patched.setattr(legacy_files, "_put_away", lambda _: None)
        await project.bring()
    store = open_store(project.settings.store_url)
    await store.open()
    await store.conversations.delete("s1")
    await store.conversations.finish("s2", None, {"newer": True}, owner="")
    await store.close()
    await project.bring()
    assert project.copy.is_file()
    assert set(await project.found("s1", "s2")) == {"s2"}


def bring_in_a_process(folder: str, url: str, answers) -> None:
    asyncio.run(Project(Path(folder), url).bring())
    answers.send("done")


async def test_processes_that_start_at_once_bring_it_over_together(project, tmp_path):
    earlier_conversations(project.path, NAMES)
    racers = [Racer.start(bring_in_a_process, str(tmp_path), project.settings.store_url) for _ in range(2)]
    for racer in racers:
        assert await asyncio.to_thread(racer.told) == "done"
        racer.end()
    assert set(await project.found()) == set(NAMES)
    assert not project.path.exists()


async def test_a_file_that_an_earlier_server_still_uses_is_left_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(legacy_files, "_BUSY_SECONDS", 0.1)
    project = Project(tmp_path, f"sqlite:////{tmp_path}/handrail.db")
    earlier_conversations(project.path)
    with closing(sqlite3.connect(project.path)) as other:
        other.execute("SELECT count(*) FROM conversation").fetchone()
        with pytest.raises(StoreUnavailable, match="end the server that uses them"):
            await project.bring()
        assert await project.found("s1", "s2") == {}
    await project.bring()
    assert set(await project.found("s1", "s2")) == {"s1", "s2"}


async def test_a_file_of_another_program_stops_the_start_and_is_left_alone(tmp_path):
    project = Project(tmp_path, f"sqlite:////{tmp_path}/handrail.db")
    with closing(sqlite3.connect(project.path)) as db:
        db.execute("CREATE TABLE mine (x)")
    before = project.path.read_bytes()
    with pytest.raises(UsageError, match="is not the file of conversations"):
        await project.bring()
    assert project.path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE conversation SET document = substr(document, 1, 9) WHERE session_id = 's200'",
        "UPDATE conversation SET document = '[]' WHERE session_id = 's200'",
        "UPDATE conversation SET document = CAST(x'7bff7d' AS TEXT) WHERE session_id = 's200'",
        "UPDATE conversation SET updated = 'soon' WHERE session_id = 's200'",
        "UPDATE turn SET answer = 'words' WHERE session_id = 's200' AND message_id = 'm2'",
        "UPDATE turn SET text = CAST(x'7bff7d' AS TEXT) WHERE session_id = 's200' AND message_id = 'm2'",
    ],
)
async def test_a_damaged_conversation_is_one_sentence_and_nothing_is_brought_over(tmp_path, damage):
    project = Project(tmp_path, f"sqlite:////{tmp_path}/handrail.db")
    earlier_conversations(project.path, NAMES)
    with closing(sqlite3.connect(project.path)) as db, db:
        db.execute(damage)
    keys = tmp_path / "server-keys.json"
    keys.write_text(json.dumps({"keys": [{"name": "a", "hash": "0" * 64}]}))
    keys.chmod(0o600)
    before = project.path.read_bytes()
    with pytest.raises(UsageError, match=r'session "s200" in "conversations\.db" is damaged') as raised:
        await project.bring()
    assert "\n" not in str(raised.value)
    assert await project.found() == {}, "the batches before it are not brought over either"
    assert project.path.read_bytes() == before
    assert keys.exists()


def test_a_forgotten_user_is_in_no_file_that_the_import_left(tmp_path):
    earlier_conversations(tmp_path / "conversations.db")
    (tmp_path / "handrail.toml").write_text("")
    command = [sys.executable, "-m", "handrail", "users", "forget", "ana", "--yes", "--json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["deleted"]["conversations"] == 2
    for path in tmp_path.rglob("*"):
        assert b"words of s1" not in (path.read_bytes() if path.is_file() else b""), path.name


def test_what_an_import_left_goes_when_conversations_of_its_age_would(tmp_path):
    project = Project(tmp_path, "sqlite:///handrail.db")
    project.copy.write_bytes(b"old words")
    remove_old_copies(project.settings)
    assert copies(project.settings)[0] == project.copy
    assert project.copy.exists()
    remove_old_copies(Settings(project=tmp_path, server_keep_days=-1))
    assert not os.path.lexists(project.copy)
