"""One table says which characters a person does not see as what they are; previews, terminal and console share it."""

import re
import sys
import unicodedata
from pathlib import Path
from types import SimpleNamespace

import pytest

import handrail.console
from handrail.build.findings import Finding
from handrail.contract import hidden_characters
from handrail.contract.hidden_characters import RANGES, UNICODE_VERSION, escaped, escaped_json

SCRIPT = Path(handrail.console.__path__[0]) / "hidden-characters.js"
HIDDEN = {
    code
    for start, _, end in (one.partition("-") for one in RANGES.split())
    for code in range(int(start, 16), int(end or start, 16) + 1)
}
SPOOFS = {
    "a variation selector": "\ufe0f",
    "a supplementary variation selector": "\U000e0101",
    "a Hangul filler": "\u3164",
    "a half-width Hangul filler": "\uffa0",
    "a Hangul initial filler": "\u115f",
    "the combining grapheme joiner": "\u034f",
    "the Braille blank": "\u2800",
    "a no-break space": "\u00a0",
    "an ideographic space": "\u3000",
    "an em space": "\u2003",
    "the Ogham space mark": "\u1680",
    "a Khmer vowel that is not drawn": "\u17b4",
    "a Mongolian vowel separator": "\u180e",
    "a word joiner": "\u2060",
    "a right-to-left override": "\u202e",
    "an escape": "\x1b",
    "a C1 control": "\x9b",
    "a tag": "\U000e0041",
    "a private use character": "\ue000",
    "an unassigned character": "\u0378",
    "a noncharacter": "\uffff",
    "half a surrogate pair": "\ud800",
    "a line separator": "\u2028",
    "a blank note": "\U0001d159",
}


@pytest.mark.parametrize("what", SPOOFS)
def test_what_is_not_seen_is_written_out(what: str) -> None:
    letter = SPOOFS[what]
    assert escaped(f"bo{letter}b") == f"bo\\u{{{ord(letter):x}}}b"


@pytest.mark.parametrize(
    "text", ["plain text, 1 + 1 = 2", "Grüße, naïve café", "漢字かな한국어", "שלום مرحبا", "नमस्ते", "😀 €5 ½"]
)
def test_what_is_seen_stays(text: str) -> None:
    assert escaped(text) == text


def test_line_breaks_stay_where_they_are_wanted() -> None:
    assert escaped("a\n\tb\r", "\n\t") == "a\n\tb\\u{d}"


def test_json_stays_the_same_json() -> None:
    assert escaped_json('{\n  "a": "é\u202e\U000e0041"\n}') == '{\n  "a": "é\\u202e\\udb40\\udc41"\n}'


def test_server_and_console_have_the_same_table() -> None:
    script = SCRIPT.read_text(encoding="utf-8")
    assert re.search(r'UNICODE_VERSION = "([\d.]+)"', script)[1] == UNICODE_VERSION
    assert re.search(r"RANGES = `([^`]*)`", script)[1].split() == RANGES.split()


def test_the_table_agrees_with_python_s_own_data() -> None:
    known, ours = ([int(part) for part in it.split(".")] for it in (unicodedata.unidata_version, UNICODE_VERSION))
    for code in range(sys.maxunicode + 1):
        category = unicodedata.category(chr(code))
        if category in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") or (category == "Zs" and code != 0x20):
            assert code in HIDDEN, hex(code)
        elif category == "Cn":
            # Either version may know characters that the other does not yet.
            assert code in HIDDEN or known < ours, hex(code)
    ignored = [code for code in HIDDEN if unicodedata.category(chr(code))[0] not in "CZ"]
    names = {unicodedata.name(chr(code)).rstrip("0123456789-") for code in ignored}
    assert {"VARIATION SELECTOR", "HANGUL FILLER", "COMBINING GRAPHEME JOINER", "BRAILLE PATTERN BLANK"} <= names
    # A newer Python knows letters that the table still takes for unassigned, and so for hidden.
    assert len(ignored) < 300 or known > ours, "letters that are seen are not in the table"


def test_a_finding_of_the_build_cannot_steer_the_terminal() -> None:
    name = "ev\x1b[2Jil\u202e\nok"
    finding = Finding(rule="r", severity="error", tool=name, file=name, place="/a", message=f'"{name}"', fix="Mend it.")
    assert str(finding).split("\n") == [
        "error [r] ev\\u{1b}[2Jil\\u{202e}\\u{a}ok:/a",
        '    "ev\\u{1b}[2Jil\\u{202e}\\u{a}ok"',
        "    Mend it.",
    ]


def test_plain_text_does_not_even_load_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_characters, "_hidden", SimpleNamespace())
    assert escaped("plain") == "plain"
    assert escaped_json('{"a": 1}\n') == '{"a": 1}\n'
