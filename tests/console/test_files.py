"""The console's files by themselves: nothing inline, nothing from outside, nothing forgotten."""

import re
from pathlib import Path

import pytest

CONSOLE = Path(__file__).resolve().parents[2] / "src" / "handrail" / "console"
FILES = sorted(path for path in CONSOLE.iterdir() if path.is_file())
INDEX = (CONSOLE / "index.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_no_file_names_an_outside_address(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"'`)\\]+", text)) <= {
        "http://www.w3.org/2000/svg",
        "https?:",
        "https?:\\/\\/",
    }
    assert not re.findall(r"@import|url\((?!['\"]?#)", text)


@pytest.mark.parametrize("path", [path for path in FILES if path.suffix == ".js"], ids=lambda path: path.name)
def test_no_module_turns_text_into_markup_or_code(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    code = "\n".join(line for line in text.splitlines() if not line.strip().startswith("//"))
    for forbidden in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "new Function",
        "srcdoc",
    ):
        assert forbidden not in code
    assert text.startswith("//"), "a module begins with its purpose"


def test_no_page_has_inline_script_or_style_and_the_pages_name_every_module() -> None:
    pages = [path.read_text(encoding="utf-8") for path in FILES if path.suffix == ".html"]
    assert INDEX in pages
    named: set[str] = set()
    for page in pages:
        assert not re.findall(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page)
        named |= set(re.findall(r"/console/([\w.-]+\.(?:js|css))", page))
    assert named == {path.name for path in FILES if path.suffix in (".js", ".css")}


def test_every_import_is_there_and_used() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8") if path.suffix == ".js" else ""
        for names, source in re.findall(r'import \{([^}]*)\} from "\./([\w.-]+)"', text):
            exported = (CONSOLE / source).read_text(encoding="utf-8")
            for name in (one.strip() for one in names.split(",") if one.strip()):
                assert re.search(rf"export (?:async )?(?:function|const|class) {name}\b", exported), (path.name, name)
                assert len(re.findall(rf"\b{name}\b", text)) > 1, f"{path.name} does not use {name}"
