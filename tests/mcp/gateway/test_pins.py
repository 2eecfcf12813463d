"""Pins: a change of anything that models, people or policy go by is found; a lock that was edited is refused."""

import copy
import json
import random
from pathlib import Path
from typing import Any

import pytest
from tests.mcp.gateway.conftest import LOOK, NOTE

from handrail.authoring.mcp.lock import LockFile, PinnedServer, pin_of, pinned_form, read_lock, write_lock
from handrail.authoring.mcp.server_config import upstream_config
from handrail.contract.errors import ConfigError
from handrail.mcp.gateway.pinning import review
from handrail.mcp.gateway.upstream import UpstreamDescription

RICH: dict[str, Any] = {
    "name": "edit_file",
    "title": "Edit file",
    "description": "Make line-based edits to a text file. Each edit replaces exact lines with new ones.",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {
            "path": {"type": "string", "minLength": 1},
            "edits": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "oldText": {"type": "string", "description": "Text to search for."},
                        "newText": {"type": "string", "description": "Text to replace it with."},
                    },
                    "required": ["oldText", "newText"],
                },
            },
            "dryRun": {"type": "boolean", "default": False},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "format": {"enum": ["diff", "json"]},
        },
        "required": ["path", "edits"],
        "additionalProperties": False,
    },
    "outputSchema": {"type": "object", "properties": {"content": {"type": "string"}}, "required": ["content"]},
    "annotations": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": False},
    "execution": {"taskSupport": "forbidden"},
}
HIDDEN = "\u200b\u202e\u2066\u00ad\u034f\U000e0041\x07"


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if path else []
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        found += places(inner, (*path, key))
    return found


def mutate(definition: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """The definition with one small change at one place."""
    made = copy.deepcopy(definition)
    path = chance.choice([one for one in places(made) if one != ("name",)])
    holder: Any = made
    for key in path[:-1]:
        holder = holder[key]
    old = holder[path[-1]]
    how = chance.randrange(6)
    if how == 0:
        del holder[path[-1]]
    elif how == 1 and isinstance(holder, dict):
        holder[path[-1] + chance.choice("xX_")] = holder.pop(path[-1])
    elif isinstance(old, str):
        at = chance.randrange(len(old) + 1)
        holder[path[-1]] = old[:at] + chance.choice("aZ .<" + HIDDEN) + old[at:]
    elif isinstance(old, bool):
        holder[path[-1]] = not old
    elif isinstance(old, int):
        holder[path[-1]] = old + chance.choice((-1, 1, 1_000, 0.5))
    elif isinstance(old, list):
        old.append(chance.choice(["x", None, {}]))
    elif isinstance(old, dict):
        old[chance.choice(["x-note", "description", "pattern"])] = chance.choice(["x", None, ["y"]])
    return made


@pytest.mark.parametrize("definition", [NOTE, LOOK, RICH], ids=lambda one: one["name"])
def test_every_one_of_ten_thousand_mutations_of_pinned_definitions_is_found(definition: dict[str, Any]) -> None:
    chance = random.Random(20261118)
    config = upstream_config("s", {"command": ["x"]})
    name, pin = definition["name"], pin_of(definition)
    old = PinnedServer(tools={name: pinned_form(definition)})
    tried = missed = 0
    while tried < 10_000 // 3 + 1:
        changed = mutate(definition, chance)
        if json.dumps(changed, sort_keys=True) == json.dumps(definition, sort_keys=True):
            continue
        tried += 1
        missed += pin_of(changed) == pin
        if tried % 50 == 0:  # what a person is shown, of some of them
            offer = UpstreamDescription(definitions={name: changed}, pins={}, identity={})
            (change,) = review(config, old, offer).changes
            assert change.kind == "refused" or change.differences, changed
    assert missed == 0


def test_an_order_of_members_is_no_change() -> None:
    assert pin_of(dict(reversed(RICH.items()))) == pin_of(RICH)


def test_icons_and_meta_are_no_part_of_a_pin() -> None:
    assert pin_of({**RICH, "icons": [{"src": "x"}], "_meta": {"a": 1}}) == pin_of(RICH)


@pytest.fixture
def locked(tmp_path: Path) -> Path:
    servers = {
        "box": PinnedServer(tools={"note": NOTE, "edit_file": RICH}),
        "other": PinnedServer(tools={"look": LOOK}),
    }
    write_lock(tmp_path, LockFile(servers=servers))
    assert read_lock(tmp_path).servers["box"].tools["note"] == NOTE
    return tmp_path


@pytest.mark.parametrize(
    ("edit", "sentence"),
    [
        (lambda text: text[:-20], "is not JSON"),
        (lambda text: "", "is not JSON"),
        (lambda text: "[]", "is not a lock file"),
        (lambda text: '{"format": 1}', 'lacks "servers"'),
        (lambda text: '{"format": 99, "servers": {}}', "newer than this Handrail"),
    ],
)
def test_a_lock_that_is_none_is_refused_in_one_sentence(locked: Path, edit: Any, sentence: str) -> None:
    path = locked / "handrail.lock"
    edited = edit(path.read_text(encoding="utf-8"))
    path.write_text(edited, encoding="utf-8")
    with pytest.raises(ConfigError, match=sentence) as told:
        read_lock(locked)
    assert "\n" not in str(told.value)
    assert path.read_text(encoding="utf-8") == edited


def replaced(entry: Any) -> Any:
    """The lock with another entry for the server `box`."""

    def edit(text: str) -> str:
        document = json.loads(text)
        return json.dumps({**document, "servers": {**document["servers"], "box": entry}})

    return edit


EDITS: list[tuple[Any, str]] = [
    (lambda text: text.replace("Write a note.", "Write a note!"), "edited by hand"),
    (lambda text: text.replace("sha256:", "sha256:0", 1), "edited by hand"),
    (lambda text: text.replace('"note": {', '"memo": {', 1), "edited by hand"),
    (lambda text: text.replace('"destructiveHint": true', '"destructiveHint": false'), "edited by hand"),
    (lambda text: text.replace('"title": "Edit file"', '"title": "Edit file", "icons": []'), "edited by hand"),
    (replaced({"tools": {"x": 1}, "refused": {}, "server": {}}), "edited by hand"),
    (
        replaced({"tools": {"x": {"definition": {"name": "x", "title": {}}}}, "refused": {}, "server": {}}),
        "edited by hand",
    ),
    (replaced(5), "no whole entry"),
    (replaced({"tools": {}, "refused": {"x": 5}, "server": {}}), "no whole entry"),
    (replaced({"tools": {}, "refused": [], "server": {}}), "no whole entry"),
]


@pytest.mark.parametrize(("edit", "sentence"), EDITS)
def test_an_entry_that_was_edited_is_told_in_one_sentence_and_the_others_hold(
    locked: Path, edit: Any, sentence: str
) -> None:
    path = locked / "handrail.lock"
    path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")
    lock = read_lock(locked)
    assert set(lock.servers) == {"other"}
    assert lock.servers["other"].tools["look"] == LOOK
    with pytest.raises(ConfigError, match=sentence) as told:
        lock.pins_of("box")
    assert "\n" not in str(told.value)
    assert "`handrail mcp update box`" in str(told.value)


@pytest.mark.parametrize(("edit", "_"), EDITS)
def test_to_pin_another_server_makes_no_edit_good(locked: Path, edit: Any, _: str) -> None:
    path = locked / "handrail.lock"
    path.write_text(edit(path.read_text(encoding="utf-8")), encoding="utf-8")
    before = json.loads(path.read_text(encoding="utf-8"))["servers"]
    write_lock(locked, read_lock(locked).taking({"third": PinnedServer(tools={"note": NOTE})}))
    after = json.loads(path.read_text(encoding="utf-8"))["servers"]
    assert after.keys() == {"box", "other", "third"}
    assert after["box"] == before["box"]
    assert set(read_lock(locked).broken) == {"box"}
