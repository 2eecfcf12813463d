"""`handrail kb sync`: changed documents only, deletions too, from a folder or a Git repository."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from handrail.cli import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "a project"
    folder.mkdir()
    (folder / "handrail.toml").write_text('[services.kb]\nembeddings = "none"\nstarter = false\n')
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture
def pages(tmp_path: Path) -> Path:
    folder = tmp_path / "handbook"
    for name, text in {"leave.md": "# Leave\n\nThirty days.", "money/pay.md": "# Pay\n\nOn the first."}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        os.utime(path, (1_700_000_000, 1_700_000_000))
    return folder


def synced(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> dict[str, Any]:
    assert main(["kb", "sync", *words, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def counts(found: dict[str, Any]) -> tuple[int, int, int, int]:
    return found["added"], found["changed"], found["removed"], found["unchanged"]


def record(capsys: pytest.CaptureFixture[str], name: str) -> dict[str, Any] | None:
    main(["kb", "get", name, "--json"])
    records = json.loads(capsys.readouterr().out)["records"]
    return records[0] if records else None


def test_only_what_changed_is_written_and_what_was_deleted_goes(
    project: Path, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert counts(synced(capsys, str(pages))) == (2, 0, 0, 0)
    pay = record(capsys, "doc:money/pay")
    assert pay is not None
    assert (pay["source"], pay["last_updated"]) == ("handbook:money/pay.md", "2023-11-14T22:13:20Z")
    os.utime(pages / "leave.md")
    assert counts(synced(capsys, str(pages))) == (0, 0, 0, 2), "a file that was only touched is no change"
    (pages / "leave.md").write_text("# Leave\n\nThirty-five days.")
    (pages / "money/pay.md").unlink()
    (pages / "new.md").write_text("# New\n\nA page.")
    assert counts(synced(capsys, str(pages), "--dry-run")) == (1, 1, 1, 0)
    assert record(capsys, "doc:money/pay") is not None
    assert counts(synced(capsys, str(pages))) == (1, 1, 1, 0)
    assert record(capsys, "doc:money/pay") is None
    assert counts(synced(capsys, str(pages))) == (0, 0, 0, 2)


def test_records_of_others_are_left_alone(project: Path, pages: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = project / "other.jsonl"
    other.write_text('{"id": "doc:mine", "title": "Mine", "text": "Kept."}\n')
    assert main(["kb", "import", str(other), "--json"]) == 0
    capsys.readouterr()
    assert counts(synced(capsys, str(pages))) == (2, 0, 0, 0)
    found = synced(capsys, str(pages), "--name", "second", code=1)
    assert counts(found) == (0, 0, 0, 0)
    assert 'is that of a record from "handbook:leave.md"' in found["problems"][0]["problem"]
    for path in pages.rglob("*.md"):
        path.unlink()
    assert main(["kb", "sync", str(pages)]) == 2
    assert "holds no Markdown pages now" in capsys.readouterr().err
    assert counts(synced(capsys, str(pages), "--allow-empty")) == (0, 0, 2, 0)
    assert record(capsys, "doc:mine") is not None


def test_a_page_that_cannot_be_read_keeps_its_record(
    project: Path, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    synced(capsys, str(pages))
    (pages / "leave.md").write_bytes(b"\xff\xfe broken")
    found = synced(capsys, str(pages), code=1)
    assert counts(found) == (0, 0, 0, 1)
    assert "not UTF-8" in found["problems"][0]["problem"]
    assert record(capsys, "doc:leave") is not None


@pytest.mark.parametrize(("command", "code"), [("sync", 1), ("import", 0)])
def test_the_name_of_a_page_steers_no_terminal(
    project: Path, pages: Path, capsys: pytest.CaptureFixture[str], command: str, code: int
) -> None:
    (pages / "a\x1b[2Jb\u202e.md").write_bytes(b"\xff\xfe broken")
    assert main(["kb", command, str(pages)]) == code
    said = capsys.readouterr()
    assert "not UTF-8" in said.err
    assert not {"\x1b", "\u202e"} & set(said.out + said.err)


@pytest.fixture
def repository(pages: Path, tmp_path: Path) -> Path:
    """A bare repository, and the folder that is pushed to it."""
    if shutil.which("git") is None:
        reason = "There is no git on this machine; install it to try a repository."
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    bare = tmp_path / "hand book.git"
    git(tmp_path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(pages, "init", "--quiet", "--initial-branch=main")
    git(pages, "remote", "add", "origin", str(bare))
    commit(pages, "2024-01-02T03:04:05Z")
    return bare


def git(folder: Path, *words: str, **environment: str) -> None:
    who = {f"GIT_{role}_{what}": "a@example.com" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    subprocess.run(
        ["git", *words], cwd=folder, check=True, env={**os.environ, **who, **environment}, capture_output=True
    )


def commit(folder: Path, at: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "--quiet", "-m", "Change pages", GIT_COMMITTER_DATE=at, GIT_AUTHOR_DATE=at)
    git(folder, "push", "--quiet", "origin", "main")


def test_a_repository_is_followed_with_the_times_of_its_commits(
    project: Path, pages: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = repository.as_uri()
    first = synced(capsys, address, "--name", "handbook")
    assert counts(first) == (2, 0, 0, 0)
    (pages / "leave.md").write_text("# Leave\n\nThirty-five days.")
    (pages / "money/pay.md").unlink()
    commit(pages, "2024-05-06T07:08:09Z")
    second = synced(capsys, address, "--name", "handbook")
    assert counts(second) == (0, 1, 1, 0)
    assert second["version"] != first["version"]
    leave = record(capsys, "doc:leave")
    assert leave is not None
    assert (leave["source"], leave["last_updated"]) == ("handbook:leave.md", "2024-05-06T07:08:09Z")
    assert counts(synced(capsys, address, "--name", "handbook", "--branch", "main")) == (0, 0, 0, 1)


def test_a_part_or_another_branch_of_a_repository_does_not_take_the_pages_of_the_first_away(
    project: Path, pages: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    address = repository.as_uri()
    assert counts(synced(capsys, address, "--name", "handbook")) == (2, 0, 0, 0)
    git(pages, "push", "--quiet", "origin", "main:draft")
    for words in (["--path", "money"], ["--branch", "draft"], ["--path", "money", "--dry-run"]):
        assert main(["kb", "sync", address, "--name", "handbook", *words]) == 2
        assert f'The name "handbook" belongs to "{address} (main)", and this is "{address} (' in capsys.readouterr().err
    assert counts(synced(capsys, address, "--name", "handbook")) == (0, 0, 0, 2)
    assert counts(synced(capsys, address, "--name", "handbook", "--branch", "draft", "--moved")) == (0, 0, 0, 2)
    assert counts(synced(capsys, address, "--name", "handbook", "--branch", "draft")) == (0, 0, 0, 2)


def test_a_run_that_changes_nothing_gives_no_name_away(
    project: Path, pages: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert counts(synced(capsys, str(pages), "--name", "book", "--dry-run")) == (2, 0, 0, 0)
    assert counts(synced(capsys, str(pages / "money"), "--name", "book")) == (1, 0, 0, 0)
    assert counts(synced(capsys, str(pages), "--name", "book", "--path", "money")) == (0, 0, 0, 1)


def test_the_password_of_an_address_is_kept_in_no_file(
    project: Path,
    pages: Path,
    repository: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    there = f'[url "{repository.parent.as_uri()}/"]\n\tinsteadOf = https://me:hunter2@git.example/\n'
    (tmp_path / ".gitconfig").write_text(there)
    address = f"https://me:hunter2@git.example/{repository.as_uri().rpartition('/')[2]}"
    assert counts(synced(capsys, address, "--name", "handbook")) == (2, 0, 0, 0)
    (pages / "leave.md").write_text("# Leave\n\nThirty-five days.")
    commit(pages, "2024-05-06T07:08:09Z")
    assert counts(synced(capsys, address, "--name", "handbook")) == (0, 1, 0, 1)
    files = [path for path in project.rglob("*") if path.is_file()]
    assert any(path.name == "HEAD" for path in files)
    assert [path for path in files if b"hunter2" in path.read_bytes()] == []


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--branch", "nope"], 'no branch "nope"'),
        (["--branch", "--upload-pack=x"], "cannot be the name of a branch"),
        (["--name", "a b"], "cannot name an origin"),
        (["--path", "../.."], "no folder of it"),
        (["--path", "absent"], "no folder of it"),
    ],
)
def test_what_is_wrong_with_a_repository_is_one_sentence(
    project: Path, repository: Path, capsys: pytest.CaptureFixture[str], words: list[str], sentence: str
) -> None:
    given = ["--name=handbook", *words] if "--name" not in words else words
    assert main(["kb", "sync", repository.as_uri(), *_joined(given)]) == 2
    assert sentence in capsys.readouterr().err


def _joined(words: list[str]) -> list[str]:
    """As `--name=value`, so that a value may begin with a dash."""
    out: list[str] = []
    for word in words:
        if out and out[-1] in ("--branch", "--name", "--path"):
            out[-1] = f"{out[-1]}={word}"
        else:
            out.append(word)
    return out


def test_a_repository_that_is_not_there_is_one_sentence_without_its_password(
    project: Path, repository: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for credentials in ("me:hunter2@", ""):
        assert main(["kb", "sync", f"http://{credentials}127.0.0.1:9/none.git"]) == 2
        said = capsys.readouterr().err
        assert "Git could not bring the repository here" in said
        assert "'http://127.0.0.1:9/none.git':" in said
        assert "hunter2" not in said


def test_without_git_a_repository_is_one_sentence(
    project: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "")
    assert main(["kb", "sync", "https://example.com/handbook.git"]) == 2
    assert 'needs the command "git"' in capsys.readouterr().err


@pytest.mark.parametrize("origin", ["absent", "handrail.toml"])
def test_what_is_no_folder_is_one_sentence(project: Path, capsys: pytest.CaptureFixture[str], origin: str) -> None:
    assert main(["kb", "sync", origin]) == 2
    assert "is no folder" in capsys.readouterr().err
