"""CEL conditions: the language's own macros work, and a name that is not given is refused when the condition is compiled."""

from typing import Any

import pytest

from handrail.contract.errors import SchemaError
from handrail.schema.condition import compile_condition

NAMES = ("mode", "user", "session", "args")
GIVEN: dict[str, Any] = {
    "mode": "text",
    "user": {"roles": ["clerk", "admin"], "name": "Ana"},
    "session": {},
    "args": {"to": ["a@x.org", "b@y.org"], "limits": {"a": 1}, "grid": [[1, 2], [3]]},
}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ('user.roles.exists(r, r == "admin")', True),
        ('user.roles.exists(r, r == "owner")', False),
        ("args.to.all(address, address.endsWith('.org'))", True),
        ("args.to.exists_one(x, x.startsWith('a'))", True),
        ("args.to.map(x, size(x)).filter(n, n > 3).size() == 2", True),
        ("args.grid.exists(row, row.exists(cell, cell == 3 && row.size() == 1))", True),
        ("args.limits.exists(key, args.limits[key] > 0)", True),
        ("has(user.name) && !has(user.nick)", True),
        ("[1, 2].all(mode, mode > 0)", True),
        ("user.name == \"exists(x, y)\" || user.name == 'Ana'", True),
        ("user.roles\n  .exists( // who may\n    r, r == 'admin')", True),
    ],
)
def test_macros_work(text: str, holds: bool) -> None:
    assert compile_condition(text, NAMES).holds(GIVEN) is holds


def test_macros_inside_of_one_another_are_not_begun_with_lists_that_are_too_long() -> None:
    """With as many numbers as arguments may have, it would hold everybody up for minutes."""
    repeats = compile_condition("args.n.exists(x, args.n.filter(y, y == x).size() > 1)", NAMES)
    assert not repeats.holds({**GIVEN, "args": {"n": list(range(250))}})
    assert repeats.holds({**GIVEN, "args": {"n": [1, 2, 1]}})
    with pytest.raises(SchemaError, match="too long"):
        repeats.holds({**GIVEN, "args": {"n": list(range(30_000))}})
    apart = compile_condition("args.n.map(x, x + 1).exists(y, y == 30000) && args.n.all(x, (x) >= 0)", NAMES)
    assert apart.holds({**GIVEN, "args": {"n": list(range(30_000))}})


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("usr.roles.exists(r, r == 'admin')", "usr"),
        ("user.roles.exists(r, r == 'admin') && r == 'x'", "r"),
        ("r == 'x' || user.roles.exists(r, r == 'admin')", "r"),
        ("x.exists(x, x == 1)", "x"),
        ("user.roles.exists(r, args.to.exists(t, t == owner))", "owner"),
        ("user.roles.exists(r, args.to.exists(t, t == r)) && args.to.all(u, u == t)", "t"),
        ("user.roles.existss(r, r == 'admin')", "r"),
        ("'exists(z, z)' == z", "z"),
        ('r"a\\" == z', "z"),
        ("[1].exists(i, true) ? i : i", "i"),
    ],
)
def test_a_name_that_is_neither_given_nor_bound_is_refused(text: str, name: str) -> None:
    with pytest.raises(SchemaError, match=f'uses "{name}"; it is given mode, user, session, args'):
        compile_condition(text, NAMES)
