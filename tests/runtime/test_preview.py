"""What a preview shows cannot be mistaken, and its length is bounded."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.schema.work import calls_of

from handrail.contract.hidden_characters import escaped
from handrail.runtime.confirmation import MASK, MAX_LINES, render


def tool(preview: str | None = None, **properties: Any) -> Any:
    return SimpleNamespace(tool_id="pay", parameters={"properties": properties}, preview=preview)


def shown(value: Any) -> str:
    return render(tool("{q}"), {"q": value})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", True),
        ("Yes", True),
        ("no", False),
        ("nothing", None),
        ("", []),
        ("[]", []),
        ("{}", {}),
        ('["a, b"]', ["a, b"]),
        ("a\\u{202e}b", "a\u202eb"),
        ("\\u{a}", "\n"),
        (" a", "a"),
        ('"yes"', "yes"),
        (MASK, "x"),
    ],
)
def test_values_that_differ_look_different(text: str, value: Any) -> None:
    assert shown(text) != shown(value)
    assert escaped(shown(text)) == shown(text)


def test_items_of_a_list_are_as_clear() -> None:
    assert shown(["yes", "b"]) == '["yes","b"]'
    assert shown([True, "b"]) == '[true,"b"]'
    assert shown([""]) == '[""]'
    assert shown(["ann@example.com", "bob@example.com", 3]) == "ann@example.com, bob@example.com, 3"


def test_a_literal_escape_is_told_from_a_hidden_character() -> None:
    assert shown("a\\u{202e}b") == "a\\u{5c}u{202e}b"
    assert shown("a\u202eb") == "a\\u{202e}b"
    assert shown("C:\\users") == "C:\\users"


def test_a_text_like_an_argument_that_is_not_given_is_quoted() -> None:
    assert render(tool("{q}"), {}) == "–"
    assert render(tool("{q}"), {"q": "–"}) == '"–"'
    assert render(tool("{q}", q={"writeOnly": True}), {"q": "x"}) == MASK


def test_the_mask_of_the_audit_is_not_quoted() -> None:
    assert render(tool("{q}"), {"q": "x"}, masked={"q": "[redacted]"}) == "[redacted]"
    assert render(tool("{q}"), {"q": "[redacted]"}, masked={"q": "[redacted]"}) == '"[redacted]"'


def test_facts_are_the_tool_s_own_words() -> None:
    assert render(tool("Pay"), {}, "yes") == "Pay\nyes"


def test_arguments_beyond_the_lines_are_counted() -> None:
    args = {f"k{i}": "\u202e" * 10 for i in range(2_500)}
    text = render(tool(), args)
    assert text.count("\n") == MAX_LINES + 1
    assert text.endswith(f"… and {2_500 - MAX_LINES} more arguments")
    assert calls_of(lambda: render(tool(), args)) < 5_000
    assert render(tool(), {f"k{i}": 1 for i in range(MAX_LINES + 1)}).endswith("… and 1 more argument")


def test_items_beyond_what_can_be_seen_are_counted() -> None:
    items = list(range(12_000))
    assert shown(items).endswith("more characters)… and 11900 more items")
    assert calls_of(lambda: shown(items)) < 1_000
