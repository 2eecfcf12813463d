"""The audit log: lines are buffered, chained, rotated, and survive a full disk without a hole."""

import errno
import json
import os
import subprocess
import sys
import textwrap
import threading
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.store import AuditSubject
from handrail.observe import chain
from handrail.observe.audit import AuditLog
from handrail.observe.chain import GENESIS, seal
from handrail.observe.sealing import open_event
from handrail.observe.verify import read_events, verify_directory

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)
OWN = {"audit_start", "checkpoint"}


class Ticking:
    """A clock that continues by about two milliseconds, exact in binary, whenever it is asked."""

    def __init__(self, now=1_700_000_000.0):
        self.now = now

    def __call__(self):
        self.now += 2**-9
        return self.now


def written(path):
    """The events that were emitted, without the log's own."""
    return [event for event in read_events(path) if event["event"] not in OWN]


def files(path):
    return sorted(path.glob("audit-*.jsonl"))


# ------------------------------------------------------------------------------------------------------------- lines
def test_a_line_has_its_event_time_number_and_fields(tmp_path):
    log = AuditLog(tmp_path, clock=Ticking())
    log.emit("execution", {"toolId": "kb_search", "ok": True})
    assert log.flush()
    (event,) = written(tmp_path)
    assert event.items() >= {"event": "execution", "seq": 2, "toolId": "kb_search", "ok": True}.items()
    assert event["ts"] == "2023-11-14T22:13:20.005Z"
    assert list(event)[:3] == ["event", "ts", "seq"]


def test_a_line_flushed_alone_is_chained_by_the_published_formula(tmp_path):
    log = AuditLog(tmp_path)
    log.emit("execution", {"toolId": "a"})
    log.flush()
    first, second = files(tmp_path)[0].read_bytes().splitlines()
    stem, _, stated = second.rpartition(b',"hash":"')
    assert stated == seal(None, json.loads(first)["hash"].encode() + stem) + b'"}'
    assert json.loads(first)["prev"] == GENESIS.decode()


def test_nothing_is_written_before_the_flush(tmp_path):
    log = AuditLog(tmp_path)
    log.emit("execution", {})
    assert written(tmp_path) == []
    log.flush()
    assert len(written(tmp_path)) == 1


def test_what_is_changed_after_the_emit_is_written_as_it_was(tmp_path):
    log = AuditLog(tmp_path)
    fields = {"args": {"to": "ana"}}
    log.emit("execution", fields)
    fields["args"]["to"] = "mallory"
    log.flush()
    assert written(tmp_path)[0]["args"] == {"to": "ana"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (Decimal("1.5"), "1.5"),
        (object(), "<object>"),
        (MappingProxyType({"a": 1}), {"a": 1}),
        ({1}, [1]),
        (2**80, 2**80),
        ("\ud800", "\ud800"),
        ({("a", 1): 2}, "<dict>"),
        (float("nan"), None),
    ],
)
def test_a_value_that_json_does_not_know_never_costs_the_event(tmp_path, value, expected):
    log = AuditLog(tmp_path)
    log.emit("execution", {"toolId": "a", "odd": value})
    log.flush()
    (event,) = written(tmp_path)
    assert event["odd"] == expected
    assert event["toolId"] == "a"
    assert verify_directory(tmp_path) == []


def test_circular_fields_and_fields_that_are_no_mapping_do_not_raise(tmp_path):
    log = AuditLog(tmp_path)
    circle = {}
    circle["circle"] = circle
    log.emit("execution", {"args": circle, "toolId": "a"})
    log.emit("execution", 7)
    log.emit("execution", MappingProxyType({"toolId": "b"}))
    log.flush()
    assert [event.get("toolId") for event in written(tmp_path)] == ["a", None, "b"]
    assert verify_directory(tmp_path) == []


def test_a_field_cannot_take_the_place_of_the_logs_own(tmp_path):
    log = AuditLog(tmp_path)
    log.emit("execution", {"seq": 99, "event": "session_end", "hash": "x", "ts": "never"})
    log.flush()
    (event,) = written(tmp_path)
    assert (event["event"], event["seq"], event["seq_"], event["event_"]) == ("execution", 2, 99, "session_end")
    assert verify_directory(tmp_path) == []


@given(st.lists(st.tuples(st.text(max_size=20), st.dictionaries(st.text(max_size=9), JSON, max_size=3)), max_size=20))
def test_any_json_survives_writing_reading_and_verifying(events):
    with TemporaryDirectory() as folder:
        path = Path(folder)
        log = AuditLog(path, key=b"k", checkpoint_every=7, clock=Ticking())
        for name, fields in events:
            log.emit(name, fields)
        log.close()
        assert verify_directory(path, b"k") == []
        lines = [json.loads(line) for file in files(path) for line in file.read_bytes().splitlines()]
    # Not by name alone: an emitted event may be called as the log's own are.
    kept = [line for line in lines if not (line["event"] in OWN and ("count" in line or "anchor" in line))]
    own = {"event", "ts", "seq", "hash"}
    if not any(name in OWN or own & fields.keys() for name, fields in events):
        told = [(line["event"], {key: value for key, value in line.items() if key not in own}) for line in kept]
        assert told == events


def test_names_from_the_configuration_are_masked_in_what_is_nested(tmp_path):
    log = AuditLog(tmp_path, redact=["Password", "message"])
    log.emit("execution", {"args": {"PASSWORD": "x", "list": [{"password": "y"}]}, "message": "ours", "n": 1})
    log.flush()
    (event,) = written(tmp_path)
    assert event["args"] == {"PASSWORD": "[redacted]", "list": [{"password": "[redacted]"}]}
    assert event["message"] == "ours"
    assert b'"x"' not in files(tmp_path)[0].read_bytes()


# ------------------------------------------------------------------------------------------------------------- files
def test_each_log_writes_a_file_of_its_own_that_only_its_owner_reads(tmp_path):
    AuditLog(tmp_path).close()
    AuditLog(tmp_path).close()
    assert len(files(tmp_path)) == 2
    assert all(file.stat().st_mode & 0o077 == 0 for file in files(tmp_path))
    assert f"-{os.getpid()}-" in files(tmp_path)[0].name
    assert verify_directory(tmp_path) == []


def test_rotation_goes_on_with_the_chain_in_the_next_file(tmp_path):
    log = AuditLog(tmp_path, max_bytes=2_000)
    for number in range(100):
        log.emit("execution", {"n": number})
        if number % 5 == 0:
            log.flush()
    log.close()
    assert len(files(tmp_path)) > 3
    first, second = files(tmp_path)[:2]
    start = json.loads(second.read_bytes().splitlines()[0])
    last = json.loads(first.read_bytes().splitlines()[-1])
    assert start["previous"] == first.name
    assert start["prev"] == last["hash"]
    assert start["seq"] == last["seq"] + 1
    assert [event["n"] for event in written(tmp_path)] == list(range(100))
    assert verify_directory(tmp_path) == []


def test_checkpoints_are_lines_and_are_also_kept_beside_the_files(tmp_path):
    log = AuditLog(tmp_path, checkpoint_every=10)
    for number in range(100):
        log.emit("execution", {"n": number})
        log.flush()
    log.close()
    lines = list(read_events(tmp_path, event="checkpoint"))
    records = [json.loads(line) for line in (tmp_path / "checkpoints.jsonl").read_text().splitlines()]
    assert 9 <= len(lines) <= 12
    assert [(line["count"], line["hash"]) for line in lines] == [(item["count"], item["head"]) for item in records[1:]]


def test_a_file_that_is_deleted_under_us_is_replaced(tmp_path):
    log = AuditLog(tmp_path)
    files(tmp_path)[0].unlink()
    log.emit("execution", {"n": 1})
    assert log.flush()
    assert [event["n"] for event in written(tmp_path)] == [1]
    assert any("missing" in problem.message for problem in verify_directory(tmp_path))


def test_threads_may_emit_while_another_flushes(tmp_path):
    log = AuditLog(tmp_path)

    def emit(thread):
        for number in range(500):
            log.emit("execution", {"thread": thread, "n": number})

    threads = [threading.Thread(target=emit, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        log.flush()
    log.close()
    events = written(tmp_path)
    for number in range(4):
        assert [event["n"] for event in events if event["thread"] == number] == list(range(500))
    assert verify_directory(tmp_path) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
def test_the_child_of_a_fork_begins_a_chain_of_its_own(tmp_path):
    run(
        tmp_path,
        """
        log.emit("execution", {"n": 1})
        child = os.fork()
        log.emit("execution", {"n": 2 if child else 3})
        log.close()
        if not child:
            os._exit(0)
        os.waitpid(child, 0)
        """,
    )
    assert len(files(tmp_path)) == 2
    assert sorted(event["n"] for event in written(tmp_path)) == [1, 2, 3]
    assert verify_directory(tmp_path) == []


def test_a_closed_log_takes_events_without_raising_and_is_not_healthy(tmp_path):
    log = AuditLog(tmp_path)
    log.close()
    log.close()
    log.emit("execution", {})
    assert not log.flush()
    assert not log.healthy
    assert log.trouble == "The audit log is closed."


# ------------------------------------------------------------------------------------------------------------ memory
def test_a_log_in_memory_gives_its_events_at_once():
    log = AuditLog(None, clock=Ticking())
    log.emit("execution", {"toolId": "a", "args": {"n": 1}})
    (event,) = log.events
    expected = {"event": "execution", "ts": "2023-11-14T22:13:20.001Z", "seq": 1, "toolId": "a", "args": {"n": 1}}
    assert event == expected
    assert log.healthy


def test_a_log_on_disk_has_no_list_of_events(tmp_path):
    with pytest.raises(TypeError, match="read_events"):
        AuditLog(tmp_path).events  # noqa: B018


# --------------------------------------------------------------------------------------------------------- full disk
def run(path: Path, body: str) -> str:
    """Run a program with a `log` on `path` in a process of its own, and give what it prints."""
    head = """
    import os, resource, sys
    from pathlib import Path
    from handrail.observe.audit import AuditLog
    def room(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    log = AuditLog(Path(sys.argv[1]), max_pending=50)
    """
    program = textwrap.dedent(head) + textwrap.dedent(body)
    done = subprocess.run([sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_full_disk_tears_a_line_and_room_mends_it(tmp_path):
    # Really short writes, without root: beyond RLIMIT_FSIZE the kernel writes what fits and then answers EFBIG.
    told = run(
        tmp_path,
        """
        room(3_000)
        for number in range(30):
            log.emit("execution", {"n": number, "fill": "x" * 100})
        print(log.flush(), log.healthy, log.trouble)
        file = next(Path(sys.argv[1]).glob("audit-*.jsonl"))
        print(file.stat().st_size, file.read_bytes().endswith(b"\\n"))
        for number in range(30, 100):
            log.emit("execution", {"n": number})
        log.flush()
        room(resource.RLIM_INFINITY)
        print(log.flush(), log.healthy)
        log.emit("execution", {"n": 100})
        log.close()
        """,
    )
    first, torn, mended = told.splitlines()
    assert first.startswith("False False The audit log in ")
    assert "File too large" in first
    assert torn == "3000 False"
    assert mended == "True True"
    events = written(tmp_path)
    assert [event.get("n") for event in events] == [*range(80), None, 100]
    assert events[80].items() >= {"event": "audit_gap", "dropped": 20}.items()
    assert verify_directory(tmp_path) == []


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are POSIX")
def test_a_process_that_dies_while_the_disk_is_full_leaves_a_tail_that_is_found(tmp_path):
    run(
        tmp_path,
        """
        room(3_000)
        for number in range(30):
            log.emit("execution", {"n": number, "fill": "x" * 100})
        log.flush()
        os._exit(0)
        """,
    )
    (problem,) = verify_directory(tmp_path)
    assert "ends inside a line" in problem.message
    assert [event["n"] for event in written(tmp_path)] == list(range(len(written(tmp_path))))
    AuditLog(tmp_path).close()
    assert len(files(tmp_path)) == 2
    assert len(verify_directory(tmp_path)) == 1


class FullDisk:
    """Stands for `os.write`: takes `room` bytes in all, then answers ENOSPC."""

    def __init__(self, monkeypatch):
        self.room = 0
        self._write = os.write
        monkeypatch.setattr(chain.os, "write", self)

    def __call__(self, descriptor, data):
        if self.room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        count = self._write(descriptor, data[: self.room])
        self.room -= count
        return count


@pytest.mark.parametrize("room", [0, 1, 155, 700, 2_000])
def test_room_that_comes_back_bit_by_bit_leaves_no_hole(tmp_path, monkeypatch, room):
    log = AuditLog(tmp_path, checkpoint_every=5)
    disk = FullDisk(monkeypatch)
    for number in range(40):
        log.emit("execution", {"n": number})
        disk.room = room // 40 + 1
        log.flush()
    disk.room = 10**9
    assert log.flush()
    log.close()
    assert [event["n"] for event in written(tmp_path)] == list(range(40))
    # A checkpoint that was torn is told again; the torn one stays, and is said.
    assert {problem.file for problem in verify_directory(tmp_path)} <= {"checkpoints.jsonl"}


def test_a_record_torn_in_the_shared_file_spoils_no_other(tmp_path, monkeypatch):
    disk = FullDisk(monkeypatch)
    ours, theirs = (chain.Appender(tmp_path / "shared", shared=True) for _ in range(2))
    ours.push(b"one\n")
    ours.push(b"two, longer\n")
    disk.room = 9
    with pytest.raises(OSError, match="No space"):
        ours.drain()
    disk.room = 100
    theirs.push(b"theirs\n")
    theirs.drain()
    ours.push(b"three\n")
    ours.drain()
    assert (tmp_path / "shared").read_bytes().splitlines() == [b"one", b"two, ", b"theirs", b"two, longer", b"three"]


def test_the_number_of_dropped_lines_is_exact(tmp_path, monkeypatch):
    log = AuditLog(tmp_path, max_pending=10)
    disk = FullDisk(monkeypatch)
    log.emit("execution", {"n": 0})
    log.flush()
    for number in range(1, 38):
        log.emit("execution", {"n": number})
    assert not log.healthy
    disk.room = 10**9
    assert log.flush()
    assert log.healthy
    log.close()
    events = written(tmp_path)
    assert [event["n"] for event in events[:-1]] == list(range(11))
    assert events[-1].items() >= {"event": "audit_gap", "dropped": 27}.items()


def test_large_lines_that_cannot_be_written_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr("handrail.observe.audit.MAX_PENDING_BYTES", 10_000)
    log = AuditLog(tmp_path)
    disk = FullDisk(monkeypatch)
    log.emit("execution", {"n": -1})
    log.flush()
    for number in range(30):
        log.emit("execution", {"n": number, "fill": "x" * 1000})
    log.flush()
    disk.room = 10**9
    log.flush()
    events = written(tmp_path)
    kept = len(events) - 2
    assert 5 <= kept < 10
    assert events[-1]["dropped"] == 30 - kept
    assert [event["n"] for event in events[1:-1]] == list(range(kept))


def test_a_log_that_nobody_flushes_is_not_healthy_once_it_drops(tmp_path):
    log = AuditLog(tmp_path, max_pending=3)
    for _ in range(5):
        log.emit("execution", {})
    assert not log.healthy
    assert log.trouble == "The audit log was not flushed in time; 2 lines were dropped."
    assert log.flush()
    assert log.healthy
    assert log.trouble is None


def test_a_directory_that_cannot_be_made_is_unhealthy_until_it_can(tmp_path):
    (tmp_path / "audit").write_text("in the way")
    log = AuditLog(tmp_path / "audit" / "here")
    assert not log.healthy
    assert "cannot be written" in log.trouble
    log.emit("execution", {"n": 1})
    (tmp_path / "audit").unlink()
    assert log.flush()
    assert [event["n"] for event in written(tmp_path / "audit" / "here")] == [1]


def test_closing_on_a_full_disk_says_what_is_lost(tmp_path, monkeypatch, caplog):
    log = AuditLog(tmp_path)
    FullDisk(monkeypatch)
    log.emit("execution", {})
    log.close()
    assert "could not be written" in caplog.text


@pytest.mark.parametrize("value", ["as it was", ["as it was"]], ids=["a value", "a list"])
def test_words_are_sealed_as_they_were_when_they_were_noted(value: Any) -> None:
    log, subject = AuditLog(None), AuditSubject("p1", b"k" * 32)
    fields = {"toolId": "find", "value": value, "sessionId": "s1"}
    log.emit_for(subject, "refusal", fields, private=("toolId",))
    fields["sessionId"] = "s2"
    if isinstance(value, list):
        value.append("and more")
    [line] = log.events
    assert line["sessionId"] == "s1"
    assert "toolId" not in line
    assert "as it was" not in str(line)
    opened = open_event(line, {"p1": b"k" * 32})
    assert opened["toolId"] == "find"
    assert opened["value"] in ("as it was", ["as it was"])
