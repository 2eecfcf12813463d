"""The one repair attempt at its edges: what it is never tried on, and that it gives arguments or a refusal for any text."""

from __future__ import annotations

import json
from contextlib import suppress

import json_repair
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.errors import JsonError
from handrail.schema.strict_json import MAX_REPAIR_LENGTH, parse_arguments, repair

ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=8)  # lone surrogates and control characters, too


@pytest.mark.parametrize(
    "raw",
    ["{'a':[[" * 22, "{'a':" + "(" * 64, "{'a':'" + "x" * MAX_REPAIR_LENGTH],
    ids=["many lists", "many parentheses", "long text"],
)
def test_text_on_which_a_repair_could_take_long_is_not_given_to_it(raw: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_repair, "loads", lambda *args, **options: pytest.fail("it was tried"))
    with pytest.raises(JsonError, match="could not be repaired"):
        repair(raw)


@given(st.text(st.sampled_from("{}[]:,\"'ab1 \\")) | ANY_TEXT)
def test_repair_gives_acceptable_arguments_or_a_refusal(raw: str) -> None:
    mended = {}
    with suppress(JsonError):
        mended = repair(raw)
    assert json.dumps(parse_arguments(orjson.dumps(mended))) == json.dumps(mended)
