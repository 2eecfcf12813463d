"""Whoever changes the log is found: one test per way to change it, and what can only be found with a key."""

import json
import shutil

import pytest

from handrail.cli import audit_command
from handrail.cli import main as handrail
from handrail.observe.audit import AuditLog
from handrail.observe.audit_files import Follower, tail_events
from handrail.observe.chain import SEALED_LINE, seal, split_seal
from handrail.observe.verify import read_events, verify_directory

KEY = b"a secret of the operator"


def write(path, count=100, *, key=None, flush_every=1, close=True, **options):
    log = AuditLog(path, key=key, checkpoint_every=20, **options)
    for number in range(count):
        log.emit(
            "execution", {"n": number, "callId": f"c{number}", "sessionId": f"s{number % 3}", "toolId": "kb_search"}
        )
        if number % flush_every == 0:
            log.flush()
    log.flush()
    if close:
        log.close()
    return sorted(path.glob("audit-*.jsonl"))[-1]


@pytest.fixture(params=[1, 50], ids=["flushed one by one", "flushed in batches"])
def file(request, tmp_path):
    made = write(tmp_path, flush_every=request.param)
    assert verify_directory(tmp_path) == []
    return made


def change(file, edit):
    lines = file.read_bytes().splitlines(keepends=True)
    edit(lines)
    file.write_bytes(b"".join(lines))


def messages(path, key=None):
    return [str(problem) for problem in verify_directory(path, key)]


def restamp(file, key=None):
    """What an attacker does who can write the files: every hash and every checkpoint computed anew."""
    head = json.loads(file.read_bytes().splitlines()[0])["prev"].encode()
    heads, group, out = {}, [], b""
    for line in file.read_bytes().splitlines():
        stem, old = split_seal(line)
        group.append(stem)
        if old is not None:
            text = b"\n".join(group)
            head = seal(key, head + text)
            heads[json.loads(line)["seq"]] = head
            out += SEALED_LINE % (text, b"hash", head)
            group = []
    file.write_bytes(out)
    records = b""
    place = file.parent / "checkpoints.jsonl"
    for line in place.read_bytes().splitlines():
        record = json.loads(line)
        if record["file"] != file.name:
            records += line + b"\n"
            continue
        record["head"] = heads[record["count"]].decode()
        del record["mac"]
        stem = json.dumps(record, separators=(",", ":")).encode()[:-1]
        records += SEALED_LINE % (stem, b"mac", seal(key, stem))
    place.write_bytes(records)


# ----------------------------------------------------------------------------------------------------------- tampering
def test_an_edited_line_is_found(file):
    def edit(lines):
        lines[30] = lines[30].replace(b'"kb_search"', b'"kb_delete"')

    change(file, edit)
    (problem,) = verify_directory(file.parent)
    assert "edited" in problem.message
    assert problem.line is not None
    assert 15 <= problem.line <= 31


def test_a_line_flushed_alone_is_named_exactly_when_it_was_edited(tmp_path):
    file = write(tmp_path)
    change(file, lambda lines: lines.__setitem__(30, lines[30].replace(b"kb_search", b"kb_delete")))
    assert messages(tmp_path) == [
        f"{file.name}:31: This line was edited, or the chain was re-stamped: the hash does not fit."
    ]


def test_a_missing_line_is_found(file):
    change(file, lambda lines: lines.pop(30))
    (problem,) = verify_directory(file.parent)
    assert problem.line == 31
    assert "missing or reordered" in problem.message


def test_swapped_lines_are_found(file):
    def swap(lines):
        lines[30], lines[31] = lines[31], lines[30]

    change(file, swap)
    found = verify_directory(file.parent)
    assert [problem.line for problem in found][:2] == [31, 32]
    assert "missing or reordered" in found[0].message
    assert "inserted or moved" in found[1].message


@pytest.mark.parametrize("numbered", ["as the one before", "as the next"])
def test_an_inserted_line_is_found(file, numbered):
    def insert(lines):
        lines.insert(30, lines[29 if numbered == "as the one before" else 30])

    change(file, insert)
    assert messages(file.parent)
    assert 29 <= verify_directory(file.parent)[0].line <= 33


def test_a_forged_line_is_found(file):
    change(file, lambda lines: lines.insert(30, b'{"anything": 1}\n'))
    assert any("not a line that an audit log wrote" in message for message in messages(file.parent))


def test_a_tail_cut_inside_a_line_is_found(file):
    file.write_bytes(file.read_bytes()[:-10])
    found = messages(file.parent)
    assert any("ends inside a line" in message for message in found)
    assert any("tail was cut" in message for message in found)


@pytest.mark.parametrize("count", [1, 2, 5, 40])
def test_whole_lines_cut_from_the_tail_are_found_through_the_checkpoint(file, count):
    change(file, lambda lines: lines.__delitem__(slice(-count, None)))
    assert any("Its tail was cut" in message for message in messages(file.parent))


def test_a_deleted_file_is_found_through_the_checkpoint(file):
    file.unlink()
    (problem,) = verify_directory(file.parent)
    assert problem.file == file.name
    assert "The file is missing" in problem.message


def test_an_emptied_file_is_found(file):
    file.write_bytes(b"")
    assert any("is empty" in message for message in messages(file.parent))


def test_a_beginning_that_is_cut_is_found(file):
    change(file, lambda lines: lines.__delitem__(slice(0, 3)))
    assert any("beginning of the file is missing" in message for message in messages(file.parent))


def test_a_copied_or_renamed_file_is_found(file):
    shutil.copy(file, file.with_name("audit-2000-copy.jsonl"))
    assert any("renamed or copied" in message for message in messages(file.parent))


def test_a_file_deleted_from_the_middle_of_a_chain_is_found(tmp_path):
    write(tmp_path, max_bytes=2_000)
    parts = sorted(tmp_path.glob("audit-*.jsonl"))
    assert len(parts) > 3
    assert verify_directory(tmp_path) == []
    parts[1].unlink()
    found = messages(tmp_path)
    assert f"{parts[2].name}:1: The file before it, {parts[1].name}, is missing." in found


def test_a_cut_between_two_files_of_a_chain_is_found_without_checkpoints(tmp_path):
    write(tmp_path, max_bytes=2_000)
    parts = sorted(tmp_path.glob("audit-*.jsonl"))
    change(parts[1], lambda lines: lines.pop())
    (tmp_path / "checkpoints.jsonl").unlink()
    assert any("does not continue where" in message for message in messages(tmp_path))


# --------------------------------------------------------------------------------------------------------- checkpoints
def test_missing_checkpoints_are_found(file):
    (file.parent / "checkpoints.jsonl").unlink()
    assert any("checkpoints are missing" in message for message in messages(file.parent))


def test_a_checkpoint_taken_out_is_found(file):
    change(file.parent / "checkpoints.jsonl", lambda lines: lines.pop(2))
    assert any("checkpoint of line number" in message for message in messages(file.parent))


def test_checkpoints_cut_after_another_process_began_are_found(tmp_path):
    first = write(tmp_path)
    write(tmp_path, 3)
    records = (tmp_path / "checkpoints.jsonl").read_bytes().splitlines(keepends=True)
    kept = [line for line in records if first.name.encode() not in line]
    (tmp_path / "checkpoints.jsonl").write_bytes(b"".join(kept))
    first.unlink()
    assert any("were cut or edited" in message for message in messages(tmp_path))


def test_a_log_that_is_being_written_and_one_of_a_crash_are_whole(tmp_path):
    write(tmp_path, 55, close=False)
    write(tmp_path, 5, close=False)
    assert verify_directory(tmp_path) == []


def test_a_directory_without_a_log_has_no_problem(tmp_path):
    assert verify_directory(tmp_path) == []


# ----------------------------------------------------------------------------------------------------------------- key
def edited_and_restamped(path, key=None, with_key=None):
    file = write(path, key=key)
    change(file, lambda lines: lines.__setitem__(30, lines[30].replace(b"kb_search", b"kb_delete")))
    restamp(file, with_key)


def test_a_restamped_chain_without_a_key_cannot_be_found(tmp_path):
    edited_and_restamped(tmp_path)
    assert verify_directory(tmp_path) == []


def test_a_chain_restamped_without_its_checkpoints_is_found_without_a_key(tmp_path):
    file = write(tmp_path)
    records = (tmp_path / "checkpoints.jsonl").read_bytes()
    change(file, lambda lines: lines.__setitem__(30, lines[30].replace(b"kb_search", b"kb_delete")))
    restamp(file)
    (tmp_path / "checkpoints.jsonl").write_bytes(records)
    assert any("is not the one of the checkpoint" in message for message in messages(tmp_path))


@pytest.mark.parametrize("with_key", [None, b"a guess"])
def test_a_restamped_chain_is_found_with_the_key(tmp_path, with_key):
    edited_and_restamped(tmp_path, KEY, with_key)
    found = messages(tmp_path, KEY)
    assert any("hash does not fit" in message for message in found)
    assert any("not made with the key" in message for message in found)


def test_a_chain_restamped_as_if_it_had_never_been_keyed_is_found_with_the_key(tmp_path):
    file = write(tmp_path, key=KEY)
    file.write_bytes(file.read_bytes().replace(b'"keyed":true', b'"keyed":false').replace(b"kb_search", b"kb_delete"))
    restamp(file)
    assert verify_directory(tmp_path) == []
    assert any("are not keyed, though there is a key" in message for message in messages(tmp_path, KEY))


def test_a_keyed_log_is_whole_with_its_key_and_not_provable_without(tmp_path):
    write(tmp_path, key=KEY, flush_every=7)
    assert verify_directory(tmp_path, KEY) == []
    assert any("cannot be checked without the key" in message for message in messages(tmp_path))
    assert messages(tmp_path, b"another key")


# ------------------------------------------------------------------------------------------------------------- reading
class Second:
    """A clock that can be set."""

    def __init__(self):
        self.now = 1_700_000_000.0

    def __call__(self):
        return self.now


def test_events_of_all_processes_come_in_order_of_time(tmp_path):
    clock = Second()
    logs = [AuditLog(tmp_path, clock=clock) for _ in range(3)]
    for number in range(30):
        clock.now += 0.01
        logs[number % 3].emit("execution", {"n": number})
    for log in logs:
        log.close()
    assert [event["n"] for event in read_events(tmp_path, event="execution")] == list(range(30))


def test_the_order_of_one_process_is_kept_across_its_files_whatever_its_clock_does(tmp_path):
    clock = Second()
    log = AuditLog(tmp_path, clock=clock, max_bytes=1_000)
    for number in range(40):
        clock.now += (0, 5, -5)[number % 3]
        log.emit("execution", {"n": number})
        log.flush()
    log.close()
    assert len(list(tmp_path.glob("audit-*.jsonl"))) > 2
    assert [event["n"] for event in read_events(tmp_path, event="execution")] == list(range(40))


def test_events_are_found_by_session_call_tool_and_kind(tmp_path):
    write(tmp_path, 30)
    assert [event["n"] for event in read_events(tmp_path, session="s1")] == list(range(1, 30, 3))
    assert [event["n"] for event in read_events(tmp_path, call="c7")] == [7]
    assert len(list(read_events(tmp_path, tool="kb_search", limit=4))) == 4
    assert list(read_events(tmp_path, tool="kb_search", event="refusal")) == []


def test_a_torn_tail_is_passed_over_when_reading(tmp_path):
    file = write(tmp_path, 10, close=False)
    file.write_bytes(file.read_bytes()[:-7])
    assert [event["n"] for event in read_events(tmp_path, tool="kb_search")] == list(range(9))


def test_the_newest_events_are_found_from_the_end(tmp_path):
    write(tmp_path, 2_000, flush_every=100)
    assert [event["n"] for event in tail_events(tmp_path, 4) if "n" in event] == [1997, 1998, 1999]
    assert tail_events(tmp_path, 0) == []
    assert len(tail_events(tmp_path, 10_000)) == len(list(read_events(tmp_path)))


def test_a_follower_gives_what_is_new_and_nothing_twice(tmp_path):
    clock = Second()
    log = AuditLog(tmp_path, clock=clock)
    follower = Follower(tmp_path)
    assert follower.news() == []
    log.emit("execution", {"n": 1})
    log.flush()
    clock.now += 1
    AuditLog(tmp_path, clock=clock).close()
    assert [event["event"] for event in follower.news()] == ["execution", "audit_start", "checkpoint"]
    assert follower.news() == []


# ------------------------------------------------------------------------------------------------------------- command
@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def command(*words):
    import argparse

    parser = argparse.ArgumentParser()
    audit_command.configure(parser)
    return audit_command.run(parser.parse_args(words))


def test_verify_says_that_a_log_is_whole_or_names_each_problem(project, capsys):
    file = write(project / "audit", 30)
    assert command("verify") == 0
    assert capsys.readouterr().out == "The audit log is whole.\n"
    change(file, lambda lines: lines.pop(10))
    assert command("verify") == 1
    said = capsys.readouterr()
    assert said.out == "1 problem.\n"
    assert said.err.startswith(f"{file.name}:11: ")
    assert command("verify", "--json") == 1
    assert json.loads(capsys.readouterr().out)[0]["line"] == 11


def test_verify_takes_the_key_from_a_file(project, capsys):
    write(project / "audit", 3, key=KEY)
    (project / "key").write_bytes(KEY + b"\n")
    assert command("verify", "--key-file", "key") == 0
    assert command("verify") == 1


def test_show_and_tail_print_lines_that_cannot_steer_a_terminal(project, capsys):
    log = AuditLog(project / "audit")
    log.emit("refusal", {"callId": "c\x1b[2J1", "toolId": "kb_search", "message": "two words"})
    log.close()
    assert command("show", "--tool", "kb_search") == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out
    assert 'refusal       kb_search          callId=c\\u{1b}[2J1 message="two words"\n' in out
    assert command("tail", "-n", "2", "--json", "--checkpoints") == 0
    assert [json.loads(line)["event"] for line in capsys.readouterr().out.splitlines()] == ["refusal", "checkpoint"]


def test_tail_follows_until_it_is_interrupted(project, capsys, monkeypatch):
    log = AuditLog(project / "audit")
    log.emit("execution", {"n": 1})
    log.flush()
    naps = []

    def nap(seconds):
        if naps:
            raise KeyboardInterrupt
        naps.append(seconds)
        log.emit("execution", {"n": 2})
        log.flush()

    monkeypatch.setattr(audit_command.time, "sleep", nap)
    assert command("tail", "-n", "1", "-f") == 0
    assert [line.rpartition("=")[2] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]


def test_why_answers_in_one_sentence(project, capsys):
    log = AuditLog(project / "audit")
    log.emit("refusal", {"callId": "c1", "toolId": "kb_search", "gate": "mode", "errorType": "MODE_RESTRICTED"})
    log.close()
    assert command("why", "c1") == 0
    assert 'refused by the gate "mode" (MODE_RESTRICTED)' in capsys.readouterr().out
    assert command("why", "c2") == 1
    assert 'the nearest are "c1"' in capsys.readouterr().out


def test_a_directory_that_is_not_there_is_wrong_usage(project, capsys):
    assert handrail(["audit", "verify"]) == 2
    assert 'There is no audit log in "audit"' in capsys.readouterr().err
