"""Every example in the documentation is executed: files are written into a project, which is built; commands and programs run."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from typing import ClassVar

import pytest
from tests.docs.pages import DOCS, ROOT, blocks, run, shell, write_files


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The project that the README makes, and what its last command printed."""
    folder = tmp_path_factory.mktemp("read me")
    console = next(block for block in blocks(ROOT / "README.md") if block.language == "console")
    lines = [line.removeprefix("$ ") for line in console.text.splitlines() if line.startswith("$ ")]
    done = shell("\n".join(lines), folder)
    assert done.returncode == 0, done.stderr
    return folder / "demo", done.stdout


def test_the_readme_flow_prints_what_the_readme_shows(demo):
    shown = json.loads(next(block.text for block in blocks(ROOT / "README.md") if block.language == "json"))
    printed = json.loads(demo[1][demo[1].index("{\n") :])
    assert printed["data"] == shown["data"]
    assert shown["meta"].items() <= printed["meta"].items()


def test_the_generated_test_of_the_readme_tool_passes(demo):
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], demo[0])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "2 passed" in done.stdout


def test_the_programs_of_the_readme_run(demo):
    programs = [block.text for block in blocks(ROOT / "README.md") if block.language == "python"]
    assert programs
    for program in programs:
        done = run([sys.executable, "-c", program], demo[0])
        assert done.returncode == 0, done.stderr
        assert "'ok': True" in done.stdout


@pytest.fixture(scope="module")
def restaurant(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project that the page on writing tools makes."""
    folder = tmp_path_factory.mktemp("authoring") / "restaurant"
    done = shell("handrail init .", _made(folder))
    assert done.returncode == 0, done.stderr
    write_files("authoring.md", folder)
    return folder


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def test_the_tools_of_the_authoring_page_build_without_a_warning(restaurant):
    done = shell("handrail build --strict", restaurant)
    assert done.returncode == 0, done.stderr
    assert "4 tools" in done.stdout


@pytest.mark.parametrize(
    ("tool", "args", "data"),
    [
        ("split_bill", {"total": 100, "people": 4, "tip": 10}, {"each": 27.5}),
        ("greet_guest", {"name": "Ana"}, {"greeting": "Welcome, Ana."}),
        ("find_table", {"guests": 5}, {"tables": [{"id": "window", "seats": 6}]}),
    ],
)
def test_the_tools_of_the_authoring_page_do_what_it_says(restaurant, tool, args, data):
    assert shell("handrail build", restaurant).returncode == 0
    done = shell(f"handrail call {tool} --args '{json.dumps(args)}'", restaurant)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["data"] == data


def test_the_booking_of_the_authoring_page_waits_for_a_person(restaurant):
    assert shell("handrail build", restaurant).returncode == 0
    args = json.dumps({"table": "bar", "guests": 2, "when": "2026-12-01T19:00:00Z"})
    held = shell(f"handrail call book_table --args '{args}' < /dev/null", restaurant)
    request = json.loads(held.stdout)["error"]["confirmation_request"]
    text, facts = request["preview"].split("\n")
    assert text == "Book the table bar for 2 guests, Tuesday 01 December 2026, 19:00 (UTC+0000)."
    assert facts == "The table is free."
    approved = shell(f"handrail call book_table --yes --args '{args}'", restaurant)
    assert json.loads(approved.stdout)["ok"] is True, approved.stdout


def test_the_test_of_the_authoring_page_passes(restaurant):
    done = run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests"], restaurant)
    assert done.returncode == 0, done.stdout + done.stderr


async def test_the_pattern_of_graceful_degradation_degrades():
    source = [
        block.text for block in blocks(ROOT / "docs" / "authoring.md") if block.language == "python" and not block.file
    ]
    namespace: dict[str, object] = {}
    exec(source[-1], namespace)

    class Bare:
        capabilities: ClassVar[dict[str, bool]] = {}

    answer = await namespace["execute"]({"query": "x"}, Bare())
    assert answer["data"] == {"hits": [], "degraded": True}


def test_every_python_block_in_the_documentation_is_python():
    for path in DOCS:
        for block in blocks(path):
            if block.language == "python":
                compile(block.text, str(path), "exec")


@pytest.mark.parametrize("name", ["architecture.md", "flow.md", "glossary.md"])
def test_every_path_that_a_page_about_the_code_names_exists(name):
    named = re.findall(r"`((?:src|tests|docs)/[^`]+)`", (ROOT / "docs" / name).read_text(encoding="utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", ["guarantees.md", "security.md", "seed-coverage.md"])
def test_every_test_that_a_page_names_exists(name):
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    files = {named.partition("::")[0] for named in re.findall(r"`(tests/[^`]+)`", page)}
    assert files
    assert [path for path in files if not (ROOT / path).exists()] == []
    written = "".join((ROOT / path).read_text(encoding="utf-8") for path in files if path.endswith(".py"))
    tests = set(re.findall(r"(?:`|::)(test_\w+)`", page))
    assert tests
    assert [test for test in tests if f"def {test}(" not in written] == []
    pairs = re.findall(r"`(tests/[^`:]+)::(test_\w+)`", page)
    elsewhere = [pair for pair in pairs if f"def {pair[1]}(" not in (ROOT / pair[0]).read_text(encoding="utf-8")]
    assert elsewhere == []


def test_the_roadmap_says_what_is_absent_and_what_was_decided_against():
    page = (ROOT / "docs" / "roadmap.md").read_text(encoding="utf-8")
    absent, _, against = page.partition("## Decided against")
    assert "Composition" in absent
    assert "background" in absent
    assert "approves its own call" in against
    for part in (absent, against):
        rows = [line for line in part.splitlines() if line.startswith("| ")][2:]
        assert len(rows) > 5
        assert all(cell.strip() for row in rows for cell in row.strip("|").split("|"))


ITEMS = (
    "tools offered in voice",
    "latency of a turn",
    "context alarm",
    "peak context of a session, spoken ones too",
    "OpenTelemetry",
    "provenance is kept",
    "the exact input of a refused call",
    "semantic `kb_search`",
    "listing by type",
    "handover sentences",
    "rate limit",
    "permissions",
    "availability by `user.isAuthenticated`",
    "a tool whose condition is false",
    "analytics",
    "log of a build",
    "log of a start",
    "log of a clamp",
    "log of a duplicate",
    "log of a turn",
    "`MODE_RESTRICTED`",
    "warning of long responses",
    "calendar errors `AUTH`, `RATE_LIMIT`",
    "annotations for selection",
    "background work, results that stream",
    "reload in a running server",
    "`lastAudioFingerprint`",
    "Google Calendar",
    "an event on a real calendar service",
    "invitations",
    "Zoom",
    "a real image",
    "composition",
    "versions per organisation",
    "A/B",
    "a roadmap page",
)
"""What worked partly or not at all, in the order of the page of seeds."""
DIFFERENCES = (
    "JavaScript, one server for voice and one for text",
    "all tools declared, no step to discover any",
    "`handlerPath` is an absolute `file:///` address",
    "the version hashes `JSON.stringify` of schemas",
    "the summary is the second line of a guide that is not empty",
    "all guides in the system instruction",
    "`geminiNative` schemas turned back into JSON Schema for text",
    "defaults written into the arguments by the validator",
    "a cache of idempotent calls in memory, the oldest evicted",
    "the key is 16 hex digits of a hash with the turn",
    "a turn is counted for each message of the model",
    "a spent budget answers `RATE_LIMIT`",
    "the budget is counted call by call",
    "the latency of a turn is added up by call",
    "top_k is lowered in the handler of voice",
    "the confirmation token goes to the model and is made from the arguments and the time",
    'the preview is a sentence for two known tools, else "Execute …"',
    "a confirmation lasts five minutes",
    "a held call runs when the model calls again",
    "handlers get the client's socket and the provider's session",
    "a block is a message to the client",
    "`image_draft_prompt` is an action",
    "`image_draft_prompt` gives variants of a model",
    "client ids from the time and `Math.random`",
    "arguments with single quotes are accepted",
    "a definition stands on its class under a symbol",
    "the audit is a line in the console's log",
)
"""What is different on purpose, in its order."""


def test_the_page_of_seeds_has_every_item_and_every_difference():
    page = (ROOT / "docs" / "seed-coverage.md").read_text(encoding="utf-8")
    parts = page.split("## What is different on purpose")
    for part, wanted, size in zip(parts, (ITEMS, DIFFERENCES), (36, 27), strict=True):
        rows = re.findall(r"^\| (\d+) \| ([^|]+?) \| ([^|]+?) \| ([^|]+?) \|$", part, re.MULTILINE)
        assert [(number, name) for number, name, *_ in rows] == [(str(n), name) for n, name in enumerate(wanted, 1)]
        assert len(rows) == len(set(wanted)) == size


def test_every_link_between_the_pages_leads_somewhere():
    broken = []
    for path in DOCS:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", path.read_text(encoding="utf-8")):
            if not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []


def anchors_of(path):
    """As GitHub makes them: the heading in small letters, without marks, with hyphens for spaces."""
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
    headings = re.findall(r"^#+ +(.+)$", text, flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_every_link_to_a_heading_leads_to_one():
    broken = []
    for path in DOCS:
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text(encoding="utf-8")):
            page = path.parent / target if target else path
            if page.suffix == ".md" and anchor not in anchors_of(page):
                broken.append(f"{path.name}: {target}#{anchor}")
    assert broken == []


def test_generated_pages_are_current():
    done = run([sys.executable, "scripts/generate_docs.py", "--check"], ROOT)
    assert done.returncode == 0, done.stdout


def test_each_of_the_questions_is_answered_from_at_most_five_files():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Thirteen questions")[2]
    answers = re.split(r"^\*\*[^*]+\?\*\*", page, flags=re.M)[1:]
    assert len(answers) == 13
    for answer in answers:
        assert 1 <= len(set(re.findall(r"`((?:src|tests)/[^`]+)`", answer))) <= 5, answer


def test_the_layers_of_the_contributing_page_are_those_that_the_linter_checks():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    [layers] = [contract["layers"] for contract in contracts if contract["id"] == "layers"]
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8").partition("## Where a change belongs")[2]
    lines = page.split("```")[1].strip().splitlines()
    shown = [set(re.split(r"\s{2,}", line)[0].split(", ")) for line in lines]
    assert shown == [set(re.findall(r"\w+", layer)) for layer in layers]
