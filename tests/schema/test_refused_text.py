"""Long text that is refused: what the fast parser skips changes nothing about what is said, and where."""

from __future__ import annotations

import sys
from random import Random

import pytest

from handrail.contract.errors import JsonError
from handrail.schema import strict_json
from handrail.schema.strict_json import parse

GOOD = [
    "0",
    "-2.5",
    "1e22",
    "9007199254740991",
    "true",
    "null",
    '""',
    '"b:c"',
    '"\\u003a"',
    '"\\\\"',
    '"]{,"',
    '"\\ud83d\\ude00"',
    "[]",
    "{}",
]
WRONG = [
    *("1e309", "9007199254740992", "-12345678901234567890", "NaN", "-Infinity", "01", "1.", "+1", "tru", "'a'"),
    *('"\n"', '"\\x"', '"\\ud800"', '"\ud800"', '"9007199254740992"', "1.0000000000000000001", "1e0000000000000001"),
]  # fmt: skip
KEYS = ['""', '"a"', '"\\u0061"', '"b"', '":"', '"\\u003a"', '"~/"', '"{"', '"\\ud800"', "a", f'"{"k" * 90}"']
PIECES = [*'[]{},:"\\ 0-e\n', "\ud800", "[[", "],[", "},{", ",,", '"a":1', "\x00"]
LENGTHS = [1, 8, 64, 512]


class Texts:
    """Texts that are JSON, or nearly so."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def text(self) -> str:
        wrong = self.random.choice([0, 0.02, 0.05, 0.2])
        text = self.value(self.random.choice([2, 4, 6]), wrong)
        if self.random.random() < 0.2:
            text = f"[{','.join(self.value(2, wrong / 4) for _ in range(60))}]"
        for _ in range(self.random.choice([0, 0, 1, 3, 30])):
            text = self.random.choice(["[%s]", "[1,%s]", '{"a":%s}', '{"q":1,"p":%s,"z":2}']) % text
        for _ in range(self.random.choice([0, 0, 1, 2])):
            place = self.random.randrange(len(text) + 1)
            kept = place + self.random.choice([0, 0, 1, len(text)])
            text = text[:place] + self.random.choice(["", *PIECES]) + text[kept:]
        return text

    def value(self, depth: int, wrong: float) -> str:
        random = self.random
        kind = random.random() if depth else 0
        size = random.choice([0, 1, 2, 6])
        if kind < 0.4:
            text = random.choice(WRONG if random.random() < wrong else GOOD)
        elif kind < 0.7:
            text = f"[{','.join(self.value(depth - 1, wrong) for _ in range(size))}]"
        else:
            keys = [
                random.choice(KEYS) if random.random() < wrong else f'"{i - (random.random() < wrong)}"'
                for i in range(size)
            ]
            text = f"{{{','.join(f'{key}{self.space()}:{self.value(depth - 1, wrong)}' for key in keys)}}}"
        return self.space() + text + self.space()

    def space(self) -> str:
        return self.random.choice(["", "", "", "", " ", "\r\n\t"])


def told(text: str, max_depth: int) -> tuple[str, str, str | None] | None:
    try:
        parse(text, max_depth=max_depth)
    except JsonError as error:
        return error.code, error.message, error.pointer
    return None


@pytest.mark.parametrize("seed", range(4))
def test_a_refusal_is_the_same_however_much_is_skipped_before_it(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = Texts(seed)
    refusals = set()
    for _ in range(1_000):
        text, max_depth = texts.text(), texts.random.choice([32, 32, 5])
        monkeypatch.setattr(strict_json, "MAX_STRETCH", sys.maxsize)
        token_by_token = told(text, max_depth)
        monkeypatch.setattr(strict_json, "MAX_STRETCH", texts.random.choice(LENGTHS))
        assert told(text, max_depth) == token_by_token, text
        refusals.add(token_by_token and token_by_token[0])
    assert refusals == {None, "invalid_json", "duplicate_key", "invalid_number", "invalid_unicode", "too_deep"}


ITEMS = "1,[],{},[[2],{}]," * 400
PLACES = [
    ('{"a":[%s9007199254740992]}', "invalid_number", "/a/1600"),
    ('{"a":[%s{"b":1,"b":2}]}', "duplicate_key", "/a/1600/b"),
    ('{"a":[%s1],"b":2,"a":3}', "duplicate_key", "/a"),
    ('{"a":{"b":{"c":[%s1]},"b":3}}', "duplicate_key", "/a/b"),
    ('{"a":{"b":{"c":[%s1],"d":1}},"e":[%s{"b":3,"c":', "invalid_json", "/e/1600/c"),
    ('[[%s1],[%s1,]]', "invalid_json", "/1/1601"),
    ("[%s1]]", "invalid_json", ""),
    ('{"a":[%s],"b":1}', "invalid_json", "/a/1600"),
    ("[[%s1],}", "invalid_json", "/1"),
    ("[%s1],[%s1]", "invalid_json", ""),
    (f"[%s{'[' * 40}", "too_deep", "/1600" + "/0" * 31),
    ('[%s"\\ud800"]', "invalid_unicode", "/1600"),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "code", "place"), PLACES)
def test_the_place_of_a_mistake_behind_long_text(shape: str, code: str, place: str) -> None:
    text = shape.replace("%s", ITEMS)
    result = told(text, 32)
    assert result is not None
    assert (result[0], result[2]) == (code, place)
