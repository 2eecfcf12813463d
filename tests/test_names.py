"""`scripts/check_names.py` finds the names and words that it is there for, in the places where people read them."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[1] / "scripts" / "check_names.py"


def check(folder: Path) -> tuple[int, str]:
    run = subprocess.run([sys.executable, SCRIPT, folder], check=False, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    return run.returncode, run.stdout


def write(folder: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


def test_plain_names_and_words_pass(tmp_path):
    write(
        tmp_path,
        {"src/core/claims.py": '"""Claims."""\n\n\nclass Claim:\n    """One."""\n', "docs/claims.md": "# Claims\n"},
    )
    assert check(tmp_path) == (0, "")


@pytest.mark.parametrize(
    "place", ["src/core/a.py", "tests/test_a.py", "scripts/a.py", "benchmarks/a.py", "examples/x/a.py"]
)
@pytest.mark.parametrize(
    "words",
    ["So many calls wait.", "It goes on.", "The client is told so.", "What is LONG OVER goes.", "the room of old rows"],
)
def test_foreign_words_are_found_wherever_people_read_code(tmp_path, place, words):
    code, said = check(write(tmp_path, {place: f'"""{words}"""\n'}))
    assert code == 1
    assert f'"{place}", line 1: ' in said


@pytest.mark.parametrize(
    "place", ["docs/a.md", "docs/decisions/0001-a.md", "README.md", "examples/x/README.md", "src/core/a.js"]
)
def test_foreign_words_are_found_in_pages_and_in_the_console(tmp_path, place):
    code, said = check(write(tmp_path, {place: "First.\nNothing stands against it.\n"}))
    assert (code, f'"{place}", line 2: "stands against"' in said) == (1, True)


def test_things_that_can_be_told_apart_are_plain_english(tmp_path):
    write(tmp_path, {"docs/a.md": "The two are told apart by their ids. What is going on is shown.\n"})
    assert check(tmp_path) == (0, "")


@pytest.mark.parametrize(
    "code", ["outcome_told = 1", "class A:\n    def _told_of_it(self): ...", "def f(was_told): ...", "A_TOLD_B = 1"]
)
def test_told_is_found_anywhere_in_a_name(tmp_path, code):
    assert "say what was reported, and to whom" in check(write(tmp_path, {"src/core/a.py": f"{code}\n"}))[1]


def test_a_class_that_differs_from_another_by_an_underscore_alone_is_found(tmp_path):
    write(tmp_path, {"src/core/a.py": "class Step: ...\n", "src/other/b.py": "class _Step: ...\n"})
    code, said = check(tmp_path)
    assert code == 1
    assert 'the class "Step"' in said
    assert 'the class "_Step"' in said


def test_a_module_name_that_repeats_is_found_and_a_package_of_its_own_is_not(tmp_path):
    same = {"src/core/words.py": "", "src/other/words.py": "", "src/core/__init__.py": "", "src/other/__init__.py": ""}
    code, said = check(write(tmp_path, same))
    assert code == 1
    assert said.count("another module has this name") == 2
    assert "__init__" not in said


@pytest.mark.parametrize(
    ("place", "code", "word"),
    [
        ("src/core/a.py", "class LogRoom: ...", "log_room"),
        ("src/core/a.py", "def doubts_about(): ...", "doubts"),
        ("src/core/a.py", "class A:\n    async def _deafen(self): ...", "deafen"),
        ("src/core/earlier_files.py", "", "earlier"),
    ],
)
def test_a_gesture_is_found_within_the_name_of_a_module_a_class_and_a_function(tmp_path, place, code, word):
    code, said = check(write(tmp_path, {place: f"{code}\n"}))
    assert (code, f'"{word}" tells a gesture' in said) == (1, True)


def test_a_word_that_only_contains_one_is_no_gesture(tmp_path):
    code = "def clear(): ...\ndef years(): ...\ndef talkative(): ...\ndef small_talk(): ...\nclass Year: ...\n"
    assert check(write(tmp_path, {"src/core/a.py": code})) == (0, "")


def test_a_test_class_that_is_called_as_a_stage_prop_is_found(tmp_path):
    assert 'the class "Desk"' in check(write(tmp_path, {"tests/kit.py": "class Desk: ...\n"}))[1]


def test_an_exception_is_for_as_many_as_it_says(tmp_path):
    write(tmp_path, {"docs/a.md": "It goes on.\nIt went on.\n"})
    exceptions = tmp_path / "scripts" / "name_exceptions.toml"
    exceptions.parent.mkdir()
    exceptions.write_text('[phrases]\n"docs/a.md" = 2\n', encoding="utf-8")
    assert check(tmp_path) == (0, "")
    exceptions.write_text('[phrases]\n"docs/a.md" = 1\n', encoding="utf-8")
    assert check(tmp_path)[0] == 1


@pytest.mark.parametrize(("allowed", "says"), [(3, "write 1"), (1, "")])
def test_an_exception_that_allows_too_much_has_to_shrink(tmp_path, allowed, says):
    write(
        tmp_path,
        {"docs/a.md": "It goes on.\n", "scripts/name_exceptions.toml": f'[phrases]\n"docs/a.md" = {allowed}\n'},
    )
    assert check(tmp_path)[0] == (1 if says else 0)
    assert says in check(tmp_path)[1]


def test_an_exception_that_nothing_needs_is_to_be_removed(tmp_path):
    write(tmp_path, {"docs/a.md": "Nothing.\n", "scripts/name_exceptions.toml": "[modules]\nwords = 2\n"})
    code, said = check(tmp_path)
    assert (code, "remove it" in said) == (1, True)
