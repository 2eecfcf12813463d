"""The audit log of a project: what `handrail audit verify` finds, lines that a crash left out, commands that share a chain."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import closing
from shutil import rmtree
from sqlite3 import connect

import pytest
from tests.observe.test_audit_verify import change, restamp

from handrail.observe.audit_files import audit_files, read_events

KEY = "a long secret of the operator"
ARGS = {"id": "A-1001", "status": "shipped"}
ORDER = ("--args", json.dumps(ARGS), "--yes")


@pytest.fixture
def keyed(built, monkeypatch):
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY", KEY)
    return built


def lines(project, event="execution"):
    return list(read_events(project / "audit", event=event))


# ------------------------------------------------------------------------------------------------------- what is found
def test_a_removed_call_is_found_though_every_hash_and_checkpoint_was_made_anew(keyed, handrail):
    for _ in range(3):
        assert handrail("call", "cancel_order", *ORDER).code == 0
    assert handrail("audit", "verify").code == 0
    file = audit_files(keyed / "audit")[-1]
    records = (keyed / "audit" / "checkpoints.jsonl").read_bytes()
    change(file, lambda kept: kept.pop(next(n for n, line in enumerate(kept) if b'"execution"' in line)))
    renumber(file)
    (keyed / "audit" / "checkpoints.jsonl").write_bytes(b"")
    restamp(file)
    said = handrail("audit", "verify")
    assert said.code == 1
    assert "re-stamped" in said.err
    (keyed / "audit" / "checkpoints.jsonl").write_bytes(records)
    assert handrail("audit", "verify").code == 1


def renumber(file):
    out = b""
    for number, line in enumerate(file.read_bytes().splitlines(keepends=True), 1):
        seq = json.loads(line)["seq"]
        out += line.replace(b'"seq":%d' % seq, b'"seq":%d' % number, 1)
    file.write_bytes(out)


def test_the_newest_chain_is_missed_when_it_is_gone_with_its_checkpoints(keyed, handrail):
    assert handrail("call", "count_words", "--args", '{"text": "a b"}').code in (0, 1)
    file = audit_files(keyed / "audit")[-1]
    file.unlink()
    (keyed / "audit" / "checkpoints.jsonl").unlink()
    said = handrail("audit", "verify")
    assert said.code == 1
    assert f"{file.name}: The file is missing" in said.err


def test_a_chain_whose_checkpoint_was_deleted_from_the_store_as_well_is_missed_with_the_key(keyed, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    with closing(connect(keyed / "handrail.db")) as db:
        db.execute("DELETE FROM audit_chain WHERE number = 1")
        db.commit()
    said = handrail("audit", "verify")
    assert (said.code, "Checkpoint number 1 of the store is missing" in said.err) == (1, True)
    with closing(connect(keyed / "handrail.db")) as db:
        db.execute("DELETE FROM audit_chain")
        db.commit()
    said = handrail("audit", "verify")
    assert (said.code, "no checkpoint of any chain" in said.err) == (1, True)


def test_a_checkpoint_of_the_store_that_was_edited_is_found_with_the_key(keyed, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    with closing(connect(keyed / "handrail.db")) as db:
        db.execute("UPDATE audit_chain SET seq = seq - 1 WHERE number = 1")
        db.commit()
    said = handrail("audit", "verify")
    assert (said.code, "Checkpoint number 1 of the store was not made with the key" in said.err) == (1, True)


def test_a_cut_tail_is_found_through_the_store_and_stays_found_when_commands_go_on(keyed, handrail):
    for _ in range(2):
        assert handrail("call", "cancel_order", *ORDER).code == 0
    file = audit_files(keyed / "audit")[-1]
    change(file, lambda kept: kept.__delitem__(slice(-4, None)))
    whole = [line for line in file.read_bytes().splitlines(keepends=True) if b'"hash"' in line]
    assert file.read_bytes().endswith(whole[-1])
    (keyed / "audit" / "checkpoints.jsonl").write_bytes(b"")
    said = handrail("audit", "verify")
    assert (said.code, "Its tail was cut" in said.err) == (1, True)
    for _ in range(4):  # far enough to pass the lines that were there
        assert handrail("call", "cancel_order", *ORDER).code == 0
    said = handrail("audit", "verify")
    assert (said.code, "is not the one of the checkpoint in the store" in said.err) == (1, True)


def test_without_a_key_verify_says_what_it_cannot_find(built, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    said = handrail("audit", "verify")
    assert (said.code, said.out) == (0, "The audit log is whole.\n")
    assert "Without a key nobody can tell" in said.err


def test_the_key_is_in_no_file_and_no_answer(keyed, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    for words in (("doctor",), ("doctor", "--json"), ("audit", "verify"), ("audit", "tail")):
        said = handrail(*words)
        assert KEY not in said.out + said.err
    for path in keyed.rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes()


def test_a_key_that_is_no_text_is_refused_without_being_shown(built, handrail):
    (built / "handrail.toml").write_text("[audit]\nkey = 123456789\n")
    said = handrail("list")
    assert (said.code, "123456789" in said.err) == (2, False)
    assert '"key" in [audit] must be text' in said.err


def test_doctor_hints_at_a_missing_key_and_is_content_with_one(built, handrail, monkeypatch):
    said = handrail("doctor")
    assert (said.code, "note  audit key     no key: " in said.out) == (0, True)
    monkeypatch.setenv("HANDRAIL_AUDIT_KEY", KEY)
    said = handrail("doctor")
    assert (said.code, "hashes are keyed" in said.out) == (0, True)


# ------------------------------------------------------------------------------------------------ commands share a chain
def test_commands_of_a_day_share_one_file_and_one_chain(keyed, handrail):
    for _ in range(3):
        assert handrail("call", "cancel_order", *ORDER).code == 0
    assert handrail("ledger", "list").code == 0
    (file,) = audit_files(keyed / "audit")
    assert "commands" in file.name
    numbers = [json.loads(line)["seq"] for line in file.read_bytes().splitlines()]
    assert numbers == list(range(1, len(numbers) + 1))
    assert handrail("audit", "verify").code == 0


def test_commands_at_the_same_moment_lose_no_line(keyed, process, handrail):
    words = [sys.executable, "-m", "handrail", "call", "cancel_order", *ORDER]
    running = [subprocess.Popen(words, cwd=keyed, stdout=subprocess.DEVNULL) for _ in range(4)]
    assert [one.wait(60) for one in running] == [0] * 4
    assert len(lines(keyed)) == 4
    assert len(audit_files(keyed / "audit")) == 1
    assert handrail("audit", "verify").code == 0


def test_a_line_that_a_dying_command_left_torn_is_taken_off_and_said(keyed, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    (file,) = audit_files(keyed / "audit")
    with file.open("ab") as stream:
        stream.write(b'{"event":"execution","ts":"2026')
    assert handrail("call", "cancel_order", *ORDER).code == 0
    assert [one["torn"] for one in lines(keyed, "audit_gap")] == [31]
    assert handrail("audit", "verify").code == 0


def test_a_key_that_is_introduced_during_the_day_begins_another_chain(built, handrail, monkeypatch):
    for key in ("", KEY, "", KEY):
        monkeypatch.setenv("HANDRAIL_AUDIT_KEY", key)
        assert handrail("call", "cancel_order", *ORDER).code == 0
    keyed = next(file for file in audit_files(built / "audit") if "keyed" in file.name)
    said = handrail("audit", "verify")
    assert said.code == 1, "the third call was made without the key"
    assert "The lines after number" in said.err
    assert keyed.name not in said.err


def test_what_was_written_before_a_key_was_introduced_is_covered_by_it(built, handrail, monkeypatch):
    for key in ("", KEY, KEY):
        monkeypatch.setenv("HANDRAIL_AUDIT_KEY", key)
        assert handrail("call", "cancel_order", *ORDER).code == 0
    said = handrail("audit", "verify")
    assert said.code == 0, said.err
    plain = next(file for file in audit_files(built / "audit") if "keyed" not in file.name)
    plain.write_bytes(plain.read_bytes().replace(b"A-1001", b"A-1002"))
    restamp(plain)
    said = handrail("audit", "verify")
    assert said.code == 1
    assert plain.name in said.err


def test_a_log_that_was_deleted_whole_is_missed_by_the_ledger(keyed, handrail):
    for _ in range(2):
        assert handrail("call", "cancel_order", *ORDER, "--user", "ana").code == 0
    gone = [one["ledgerKey"] for one in lines(keyed)]
    assert handrail("users", "forget", "ana", "--yes").code == 0
    assert handrail("audit", "verify").code == 0, "forgotten calls have their lines"
    rmtree(keyed / "audit")
    with closing(connect(keyed / "handrail.db")) as db, db:
        db.execute("DELETE FROM audit_chain")
    assert handrail("call", "cancel_order", *ORDER).code == 0
    said = handrail("audit", "verify")
    assert said.code == 1
    assert [key for key in gone if f'The call {key} to "cancel_order"' in said.err] == gone
    assert said.err.count("has no line") == 2
    with closing(connect(keyed / "handrail.db")) as db, db:
        for key in gone:  # as retention does
            db.execute("DELETE FROM ledger WHERE key = ?", (key,))
    assert handrail("audit", "verify").code == 0


def test_a_server_has_a_chain_of_its_own(keyed, handrail):
    from handrail.app import open_registry, open_runtime
    from handrail.settings import load_settings

    settings = load_settings(keyed, os.environ)
    runtime = open_runtime(settings, open_registry(settings), serving=True)
    runtime.audit.close()
    (file,) = audit_files(keyed / "audit")
    assert "commands" not in file.name


# ----------------------------------------------------------------------------------------- lines that a crash left out
DYING = """
import asyncio, os, signal, sys
from handrail import Registry, Runtime
from handrail.contract.errors import ErrorType

async def run():
    runtime = Runtime(Registry.load("tool_registry.json"), store="sqlite:///handrail.db", audit="audit")
    session = await runtime.open_session()
    await session.begin_turn()
    answer = await session.call("cancel_order", {"id": "A-1001", "status": "shipped"}, call_id="c1")
    if answer.error is not None and answer.error.type is ErrorType.CONFIRMATION_REQUIRED:
        async for event in session.events():
            answer = await runtime.approve(event.data["id"], token=event.data["token"], approver="ben", via="desk 3")
            break
    assert answer.ok, answer
    os.kill(os.getpid(), signal.SIGKILL)

for _ in range(int(sys.argv[1])):
    child = os.fork()
    if child == 0:
        asyncio.run(run())
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""


def test_a_write_that_was_answered_just_before_a_kill_has_its_line_once_whoever_starts_next(built, handrail):
    runs = 10
    words = [sys.executable, "-c", DYING, str(runs)]
    done = subprocess.run(words, cwd=built, timeout=120, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    for _ in range(2):
        assert handrail("ledger", "list").code == 0  # opens the runtime, and closes it
        said = lines(built)
        with closing(connect(built / "handrail.db")) as db:
            rows = [key for (key,) in db.execute("SELECT key FROM ledger WHERE state = 'succeeded'")]
        assert len(rows) == runs
        assert Counter(one.get("ledgerKey") for one in said) == Counter(rows)
        assert any(one.get("recovered") for one in said)
        for one in said:
            assert (one["toolId"], one["callId"], one["ok"], one["args"]) == ("cancel_order", "c1", True, ARGS)
        left = next(one for one in said if one.get("recovered"))
        assert (left["approver"][:5], left["approvedVia"]) == ("user_", "desk 3")
        assert 'approved by "ben" (desk 3)' in handrail("audit", "why", left["ledgerKey"]).out
    assert handrail("audit", "verify").code == 0


def test_a_process_that_ended_well_leaves_nothing_to_be_recovered(built, handrail):
    for _ in range(2):
        assert handrail("call", "cancel_order", *ORDER).code == 0
    assert [one.get("recovered") for one in lines(built)] == [None, None]
    with closing(connect(built / "handrail.db")) as db:
        assert db.execute("SELECT count(*) FROM audit_owner").fetchone() == (0,)


# ----------------------------------------------------------------------------------------------- what lines say, and why
def test_a_call_is_found_by_its_id_its_ledger_key_and_its_confirmation(built, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0
    (ran,) = lines(built)
    assert ran["callId"]
    assert ran["ledgerKey"] == json.loads(handrail("ledger", "list", "--json").out)[0]["key"]
    (approved,) = lines(built, "confirmation_approved")
    assert (approved["callId"], approved["ledgerKey"]) == (ran["callId"], ran["ledgerKey"])
    for name in (ran["callId"], ran["ledgerKey"], approved["confirmationId"]):
        said = handrail("audit", "why", name)
        assert said.code == 0
        assert "was held for a person's confirmation, then was approved by a person (--yes), then ran" in said.out


def test_the_tail_shows_checkpoints_only_when_it_is_asked_to(built, handrail):
    assert handrail("call", "cancel_order", *ORDER).code == 0

    def kinds(*words):
        return {json.loads(line)["event"] for line in handrail("audit", "tail", "--json", *words).out.splitlines()}

    assert kinds().isdisjoint({"checkpoint", "audit_start"})
    assert kinds("--checkpoints") >= {"checkpoint", "audit_start", "execution"}
    assert len(handrail("audit", "tail", "-n", "1").out.splitlines()) == 1


@pytest.mark.parametrize("words", [("show", ""), ("show", "--tool", " ")])
def test_an_empty_name_is_no_name(built, handrail, words):
    handrail("call", "count_words", "--args", '{"text": 3}')
    code, output, errors = handrail("audit", *words)
    assert (code, output) == (2, "")
    assert "is empty; name one, or leave it out" in errors


def test_a_call_is_shown_with_what_was_sent_and_which_validator_judged(built, handrail):
    done = handrail("call", "count_words", "--args", '{"text": 3}', "--json")
    assert done.code == 1
    (line,) = [json.loads(one) for one in handrail("audit", "show", "--event", "refusal", "--json").out.splitlines()]
    shown = handrail("audit", "show", line["callId"] or line["idempotencyKey"]).out
    assert f"refusal  count_words {line['toolVersion']}" in shown
    facts = dict(row.strip().split(maxsplit=1) for row in shown.splitlines() if row.startswith("  "))
    assert facts["sent"].endswith('{"text": 3}')
    assert facts["validator"].startswith("jsonschema-rs ")
    assert facts["ended"].startswith("VALIDATION, refused by validate after ")


def test_a_call_that_was_repaired_and_clamped_is_shown_on_its_way_from_the_text_to_the_handler(built, handrail):
    place = built / "tools" / "count-words" / "schema.json"
    schema = json.loads(place.read_text("utf-8"))
    schema["allowedModes"] = ["text", "voice"]
    schema["parameters"]["properties"]["top"] = {"type": "integer", "description": "How many are counted."}
    schema["parameters"]["properties"]["case"] = {"type": "boolean", "default": False, "description": "Case counts."}
    schema["clamp"] = {"voice": {"top": 3}}
    place.write_text(json.dumps(schema), "utf-8")
    with (built / "handrail.toml").open("a", encoding="utf-8") as file:
        file.write("\n[policy]\nrepair = true\n")
    assert handrail("build").code == 0
    sent = '{"text": "a b", "top": "9",}'
    assert handrail("call", "count_words", "--mode", "voice", "--args", sent).code == 0
    (line,) = [json.loads(one) for one in handrail("audit", "show", "--event", "execution", "--json").out.splitlines()]
    shown = handrail("audit", "show", line["callId"] or line["idempotencyKey"]).out
    assert f"execution  count_words {line['toolVersion']}" in shown
    facts = dict(row.strip().split(maxsplit=1) for row in shown.splitlines() if row.startswith("  "))
    assert facts["sent"] == sent
    assert json.loads(facts["parsed"]) == {"text": "a b", "top": "9"}
    assert json.loads(facts["validated"]) == {"text": "a b", "top": 3, "case": False}
    assert (facts["defaulted"], facts["clamped"], facts["repaired"]) == ("/case", "top", "yes")
    assert facts["validator"].startswith("jsonschema-rs ")
    assert facts["ended"].startswith("ok after ")


def test_a_call_is_named_once(built, handrail):
    handrail("call", "count_words", "--args", '{"text": 3}')
    said = handrail("audit", "show", "c1", "--call", "c1")
    assert (said.code, said.out) == (2, "")
    assert "Name the call once" in said.err
