"""`handrail kb`: from files to answers and back, and never a traceback."""

import io
import json

import pytest

from handrail.cli.output import progress_for

LINES = """{"id": "person:ana_kovac", "title": "Ana Kovač", "text": "Runs onboarding.", "tags": ["people"]}
{"id": "doc:plan", "title": "Plan", "text": "The plan for spring."}
"""


@pytest.fixture
def base(project, handrail, monkeypatch):
    """A project with two records, without embeddings."""
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "none")
    (project / "a.jsonl").write_text(LINES, encoding="utf-8")
    said = handrail("kb", "import", "a.jsonl")
    assert (said.code, said.out) == (0, "2 added, 0 changed, 0 unchanged, 0 skipped.\n")
    return project


def test_the_same_import_again_is_no_work(base, handrail):
    assert handrail("kb", "import", "a.jsonl").out == "0 added, 0 changed, 2 unchanged, 0 skipped.\n"


def test_a_base_that_began_with_an_import_takes_the_starter_pages_when_asked(base, handrail):
    assert handrail("kb", "search", "What is Handrail?").out == "Nothing was found.\n"
    nothing = handrail("kb", "import")
    assert (nothing.code, nothing.err) == (
        2, "handrail kb: Name the files or folders to import; --starter takes in Handrail's own pages.\n",
    )  # fmt: skip
    first = json.loads(handrail("kb", "import", "a.jsonl", "--starter", "--json").out)
    assert first["added"] > 10
    assert (first["changed"], first["unchanged"], first["skipped"]) == (0, 2, 0)
    assert "doc:handrail_overview" in handrail("kb", "search", "What is Handrail?").out
    again = json.loads(handrail("kb", "import", "--starter", "--json").out)
    assert (again["added"], again["changed"], again["unchanged"]) == (0, 0, first["added"])

    assert handrail("kb", "delete", "--source", "handrail", "--yes").code == 0
    assert handrail("kb", "search", "What is Handrail?").out == "Nothing was found.\n"
    assert json.loads(handrail("kb", "import", "--starter", "--json").out)["added"] == first["added"]


def test_search_get_and_stats_print_for_people_and_programs(base, handrail):
    assert handrail("kb", "search", "onboarding").out.startswith(
        "1.00  person:ana_kovac  Ana Kovač\n      Runs onboarding."
    )
    found = json.loads(handrail("kb", "search", "kovac", "--json", "--type", "person", "--tag", "people").out)
    assert [one["id"] for one in found["results"]] == ["person:ana_kovac"]
    assert handrail("kb", "search", "zeppelin").out == "Nothing was found.\n"

    assert "Runs onboarding." in handrail("kb", "get", "person:ana_kovac").out
    said = handrail("kb", "get", "doc:plan", "doc:none", "--json")
    assert said.code == 1
    assert json.loads(said.out)["missing"] == ["doc:none"]
    assert said.err == 'There is no record "doc:none".\n'

    stats = json.loads(handrail("kb", "stats", "--json").out)
    assert (stats["records"], stats["types"], stats["embeddings"]) == (2, {"doc": 1, "person": 1}, None)
    assert "by keywords alone" in handrail("kb", "stats").out


def test_bad_records_are_named_and_skipped_or_refused(base, handrail):
    (base / "b.jsonl").write_text('{"id": "doc:new", "text": "x"}\n{"id": 5}\n', encoding="utf-8")
    strict = handrail("kb", "import", "b.jsonl", "--strict")
    assert strict.code == 1
    assert strict.err.startswith('b.jsonl:2: "id" must be text')
    assert "Nothing was imported" in strict.err
    assert handrail("kb", "get", "doc:new").code == 1

    loose = handrail("kb", "import", "b.jsonl", "--json")
    assert loose.code == 0
    told = json.loads(loose.out)
    assert (told["added"], told["skipped"], told["refused"]) == (1, 1, False)
    assert told["problems"][0]["place"] == "b.jsonl:2"


def test_nothing_but_bad_records_is_a_failure(base, handrail):
    (base / "b.jsonl").write_text("nope\n")
    said = handrail("kb", "import", "b.jsonl")
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("\nNothing was imported: 1 bad record.\n")
    told = handrail("kb", "import", "b.jsonl", "--json")
    assert (told.code, json.loads(told.out)["skipped"]) == (1, 1)


def test_a_second_import_beside_bad_records_ends_as_the_first_did(base, handrail):
    (base / "b.jsonl").write_text('nope\n{"id": "doc:new", "text": "x"}\n')
    assert handrail("kb", "import", "b.jsonl").code == 0
    again = handrail("kb", "import", "b.jsonl")
    assert (again.code, again.out) == (0, "0 added, 0 changed, 1 unchanged, 1 skipped.\n")


def test_defaults_are_for_records_that_name_none(base, handrail):
    (base / "b.jsonl").write_text('{"id": "doc:mine", "text": "secret"}\n')
    words = (
        "kb",
        "import",
        "b.jsonl",
        "--namespace",
        "personal",
        "--owner",
        "u1",
        "--tenant",
        "t",
        "--source",
        "notes",
    )
    assert handrail(*words).code == 0
    assert handrail("kb", "search", "secret").out == "Nothing was found.\n"
    assert handrail("kb", "search", "secret", "--tenant", "t").out == "Nothing was found.\n"
    assert "doc:mine" in handrail("kb", "search", "secret", "--tenant", "t", "--user", "u1").out


def test_an_export_is_the_same_bytes_every_time_and_can_be_imported(base, handrail):
    first = handrail("kb", "export")
    assert [json.loads(line)["id"] for line in first.out.splitlines()] == ["doc:plan", "person:ana_kovac"]
    assert handrail("kb", "export", "-o", "out.jsonl").out == '2 records written to "out.jsonl".\n'
    assert (base / "out.jsonl").read_text(encoding="utf-8") == first.out
    assert handrail("kb", "delete", "--namespace", "studio", "--yes").out == "2 records deleted.\n"
    assert handrail("kb", "import", "out.jsonl").code == 0
    assert handrail("kb", "export").out == first.out


def test_deleting_many_is_asked_for(base, handrail):
    said = handrail("kb", "delete", "--source", "a.jsonl")
    assert said.code == 2
    assert "say --yes" in said.err
    assert handrail("kb", "delete").code == 2
    missing = handrail("kb", "delete", "doc:plan", "doc:none")
    assert missing.code == 2
    assert "nothing was deleted" in missing.err
    assert json.loads(handrail("kb", "delete", "doc:plan", "--json").out) == {"deleted": 1}
    assert handrail("kb", "delete", "--source", "a.jsonl", "--yes").out == "1 record deleted.\n"


def test_a_new_project_answers_about_handrail(project, handrail, monkeypatch):
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "none")
    assert "doc:handrail_overview" in handrail("kb", "search", "What is Handrail?").out
    (project / "kb.db").unlink()
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_STARTER", "false")
    for side in ("kb.db-wal", "kb.db-shm"):
        (project / side).unlink(missing_ok=True)
    assert handrail("kb", "search", "What is Handrail?").out == "Nothing was found.\n"


@pytest.mark.parametrize(
    "words",
    [
        ("import", "missing.jsonl"),
        ("import", "picture.png"),
        ("import", "empty"),
        ("search", "x", "--limit", "0"),
        ("search", "x", "--type", "nonsense"),
        ("search", "\udc80"),
        ("embed",),
        ("nonsense",),
        (),
    ],
    ids=str,
)
def test_wrong_usage_is_one_sentence(base, handrail, words):
    (base / "picture.png").write_bytes(b"x")
    (base / "empty").mkdir()
    said = handrail("kb", *words)
    assert said.code == 2
    assert "Traceback" not in said.err
    assert said.err


@pytest.mark.parametrize("action", ["stats", "export", "delete", "embed"])
def test_what_needs_a_base_says_that_there_is_none(project, handrail, action):
    said = handrail("kb", action, *(["doc:x"] if action == "delete" else []))
    assert said.code == 2
    assert "There is no knowledge base" in said.err
    assert not (project / "kb.db").exists()


def test_a_damaged_base_is_one_sentence(base, handrail):
    for side in ("kb.db-wal", "kb.db-shm"):
        (base / side).unlink(missing_ok=True)
    (base / "kb.db").write_bytes(b"nonsense" * 1000)
    for words in (("search", "x"), ("stats",), ("export",), ("import", "a.jsonl"), ("get", "doc:plan")):
        said = handrail("kb", *words)
        assert said.code == 2, said
        assert said.err.count("\n") == 1
        assert "is not a SQLite database" in said.err


def test_commands_work_as_processes_of_their_own(base, process):
    said = process("kb", "search", "onboarding", "--json", cwd=base, HANDRAIL_SERVICES_KB_EMBEDDINGS="none")
    assert (said.code, said.err) == (0, "")
    assert process("kb", "export", cwd=base).out.count("\n") == 2


def test_what_takes_little_time_says_nothing_and_what_takes_more_a_line_every_two_seconds():
    stream, now = io.StringIO(), iter([0.0, *(number / 10 for number in range(1000))])
    report = progress_for("building", stream, lambda: next(now))
    for done in range(1, 20):
        report(done, 19)
    assert stream.getvalue() == ""
    for done in range(41, 101):
        report(done, 100)
    assert stream.getvalue().splitlines() == [f"building: {done} of 100" for done in (42, 62, 82, 100)]


@pytest.mark.parametrize("terminal", [False, True])
def test_progress_is_a_bar_on_a_terminal_and_lines_elsewhere(terminal):
    class Stream(io.StringIO):
        def isatty(self):
            return terminal

    stream, now = Stream(), iter(range(1000))
    report = progress_for("Importing (bytes)", stream, lambda: next(now))
    for done in range(0, 101, 5):
        report(done, 100)
    assert ("█" in stream.getvalue()) is terminal
    assert stream.getvalue().endswith("100/100\n" if terminal else "Importing (bytes): 100 of 100\n")


SAME = """{"id": "doc:same", "text": "everybody's"}
{"id": "doc:same", "text": "the world's", "namespace": "public"}
{"id": "doc:same", "text": "u1's", "namespace": "personal", "owner": "u1"}
{"id": "doc:same", "text": "acme's", "tenant": "acme"}
"""


@pytest.fixture
def same(base, handrail):
    """A base in which an id is used four times."""
    (base / "same.jsonl").write_text(SAME, encoding="utf-8")
    assert handrail("kb", "import", "same.jsonl").code == 0

    def texts():
        lines = (json.loads(line) for line in handrail("kb", "export", "--source", "same.jsonl").out.splitlines())
        return {line["text"] for line in lines}

    return texts


def test_an_id_in_several_namespaces_is_deleted_where_it_is_meant(same, handrail):
    said = handrail("kb", "delete", "doc:same")
    assert said.code == 2
    assert "several namespaces (studio, public)" in said.err
    assert len(same()) == 4
    assert handrail("kb", "delete", "doc:same", "--namespace", "public").out == "1 record deleted.\n"
    assert same() == {"everybody's", "u1's", "acme's"}
    assert handrail("kb", "delete", "doc:same", "--namespace", "personal").code == 2
    assert "personal of u1" in handrail("kb", "delete", "doc:same", "--user", "u1").err
    assert handrail("kb", "delete", "doc:same").out == "1 record deleted.\n"
    assert same() == {"u1's", "acme's"}
    assert handrail("kb", "delete", "doc:same", "--user", "u1").out == "1 record deleted.\n"
    assert handrail("kb", "delete", "doc:same").code == 2
    assert handrail("kb", "delete", "doc:same", "--tenant", "acme").out == "1 record deleted.\n"
    assert same() == set()


def test_yes_deletes_all_that_one_reads_and_no_other_tenants(same, handrail):
    assert handrail("kb", "delete", "doc:same", "--user", "u1", "--yes").out == "3 records deleted.\n"
    assert same() == {"acme's"}


def test_a_source_is_deleted_for_one_tenant_with_every_owner(same, handrail):
    assert handrail("kb", "delete", "--source", "same.jsonl", "--yes").out == "3 records deleted.\n"
    assert same() == {"acme's"}
    assert handrail("kb", "delete", "--source", "same.jsonl", "--tenant", "acme", "--yes").out == "1 record deleted.\n"


def test_get_shows_every_record_of_an_id(same, handrail):
    def texts(*words):
        return [one["text"] for one in json.loads(handrail("kb", "get", "doc:same", "--json", *words).out)["records"]]

    assert texts() == ["everybody's", "the world's"]
    assert texts("--user", "u1") == ["everybody's", "the world's", "u1's"]
    assert texts("--tenant", "acme") == ["acme's"]
    assert texts("--namespace", "public") == ["the world's"]


def test_what_is_printed_does_not_steer_the_terminal(base, handrail):
    evil = {"id": "doc:evil", "text": "marmalade \x1b[2J\u202e\x07 jar\r\nsecond", "metadata": {"x": "\x1b]0;t\x07"}}
    (base / "evil.jsonl").write_text(json.dumps(evil) + "\n", encoding="utf-8")
    assert handrail("kb", "import", "evil.jsonl").code == 0
    for words in (("search", "marmalade"), ("get", "doc:evil"), ("stats",)):
        out = handrail("kb", *words).out
        assert not set(out) & {"\x1b", "\x07", "\u202e", "\r"}, words
    assert "\\u{1b}[2J\\u{202e}\\u{7} jar\\u{d}\nsecond" in handrail("kb", "get", "doc:evil").out


def test_an_export_that_cannot_be_written_names_the_file_that_was_asked_for(base, handrail):
    for output in ("nowhere/x.jsonl", "."):
        said = handrail("kb", "export", "-o", output)
        assert said.code == 2
        assert said.err.count("\n") == 1
        assert f'"{output}" cannot be written' in said.err


def test_without_embeddings_stats_and_doctor_say_so_and_nothing_else_does(base, handrail, monkeypatch, caplog):
    assert "keywords alone" not in handrail("doctor").out, "it was chosen"
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "auto")
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_MODELS_DIRECTORY", str(base / "no-models"))
    said = [handrail("kb", "search", "plan"), handrail("chat", "What is Handrail?")]
    assert "keywords alone" not in caplog.text + "".join(one.out + one.err for one in said)
    assert handrail("doctor").out.count("keywords alone") == 1
    assert handrail("kb", "stats").out.count("keywords alone") == 1


def test_an_import_tells_what_it_did_before_what_is_missing(base, handrail, monkeypatch):
    pytest.importorskip("numpy")
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_EMBEDDINGS", "ollama")
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_OLLAMA_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("HANDRAIL_SERVICES_KB_OLLAMA_MODEL", "mine")
    (base / "b.jsonl").write_text('{"id": "doc:new", "text": "x"}\n')
    said = handrail("kb", "import", "b.jsonl")
    assert (said.code, said.out) == (0, "1 added, 0 changed, 0 unchanged, 0 skipped.\n")
    assert "http://127.0.0.1:9/api/embed does not answer" in said.err
    assert "handrail kb embed" in said.err
    assert "doc:new" in handrail("kb", "search", "x").out
    assert "does not answer" in handrail("kb", "embed").err
