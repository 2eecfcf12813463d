"""Every lint rule speaks where it should, names file, place and cure, and is silent about what is right."""

import json
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from handrail.authoring.source import MAX_FILE_BYTES
from handrail.build.rules import all_rules
from handrail.contract.fields import FIELDS

REQUIRED = [field.name for field in FIELDS if field.required]


class Case(NamedTuple):
    """A change to a tool that was right, and what the rule says then: `file` is relative to the tool's folder."""

    rule: str
    spoil: Any
    file: str
    place: str
    says: str
    category: str = "retrieval"


def fields(**values: Any) -> Any:
    return lambda workshop, folder: workshop.edit(folder, **values)


def parameters(**keywords: Any) -> Any:
    return lambda workshop, folder: workshop.change(folder, lambda schema: schema["parameters"].update(keywords))


def argument(name: str, schema: Any) -> Any:
    def spoil(workshop: Any, folder: Path) -> None:
        workshop.change(folder, lambda document: document["parameters"]["properties"].update({name: schema}))

    return spoil


def written(name: str, content: str | bytes) -> Any:
    data = content.encode() if isinstance(content, str) else content
    return lambda workshop, folder: (folder / name).write_bytes(data)


def without(name: str) -> Any:
    return lambda workshop, folder: (folder / name).unlink()


def both(*changes: Any) -> Any:
    def spoil(workshop: Any, folder: Path) -> None:
        for change in changes:
            change(workshop, folder)

    return spoil


def always_offered(count: int) -> Any:
    def spoil(workshop: Any, folder: Path) -> None:
        for number in range(1, count):
            workshop.edit(workshop.new(f"lookup_{number}"), alwaysOffer=True)
        workshop.edit(folder, alwaysOffer=True)

    return spoil


def renamed(name: str) -> Any:
    def spoil(workshop: Any, folder: Path) -> None:
        workshop.edit(folder, toolId=name.partition("@")[0].replace("-", "_"))
        folder.rename(folder.with_name(name))

    return spoil


def linked_file(workshop: Any, folder: Path) -> None:
    real = workshop.root / "elsewhere.py"
    (folder / "handler.py").rename(real)
    (folder / "handler.py").symlink_to(real)


def linked_folder(workshop: Any, folder: Path) -> None:
    folder.rename(workshop.root / "elsewhere")
    folder.symlink_to(workshop.root / "elsewhere")


def guide(examples: str, summary: str = "Looks a record up.") -> Any:
    return written("guide.md", f"# A tool\n\n{summary}\n\n## Examples\n\n{examples}")


def other_version(name: str, version: str) -> Any:
    """A copy of the tool's folder that holds another version of it."""

    def spoil(workshop: Any, folder: Path) -> None:
        made = shutil.copytree(folder, folder.parent / name)
        workshop.edit(made, version=version)

    return spoil


def second(name: str) -> Any:
    """A further tool in the folder `name`, with the same toolId as the first."""

    def spoil(workshop: Any, folder: Path) -> None:
        (workshop.tools / name).mkdir()
        for path in folder.iterdir():
            (workshop.tools / name / path.name).write_bytes(path.read_bytes())

    return spoil


SPEAKING = [
    Case(
        "action-unconfirmed",
        fields(requiresConfirmation=False),
        "schema.json",
        "/requiresConfirmation",
        "without asking a person",
        "action",
    ),
    Case("clamp", fields(clamp={"voice": {"top_k": 3}}), "schema.json", "/clamp/voice/top_k", "not an argument"),
    Case("clamp", fields(clamp={"voice": {"id": 3}}), "schema.json", "/clamp/voice/id", "not a number"),
    Case("clamp", fields(clamp={"voice": {"id": ["a"]}}), "schema.json", "/clamp/voice/id", "no enumeration"),
    Case(
        "clamp",
        both(argument("n", {"type": "integer", "minimum": 5}), fields(clamp={"text": {"n": 3}})),
        "schema.json",
        "/clamp/text/n",
        "below its minimum of 5",
    ),
    Case(
        "clamp",
        both(argument("n", {"enum": ["a", "b"]}), fields(clamp={"text": {"n": ["a", "c"]}})),
        "schema.json",
        "/clamp/text/n",
        "'c', which it cannot hold",
    ),
    Case(
        "condition", fields(availability={"condition": "mode =="}), "schema.json", "/availability/condition", "not CEL"
    ),
    Case(
        "condition",
        fields(availability={"condition": 'args.id == "x"'}),
        "schema.json",
        "/availability/condition",
        'uses "args"',
    ),
    Case(
        "condition",
        fields(availability={"condition": "user.isAuthentificated"}),
        "schema.json",
        "/availability/condition",
        'asks for "user.isAuthentificated"',
    ),
    Case(
        "condition",
        fields(confirmation={"when": "size(args.ids) > 5"}),
        "schema.json",
        "/confirmation/when",
        'asks for "args.ids"',
    ),
    Case("condition", fields(confirmation={"when": "total > 5"}), "schema.json", "/confirmation/when", 'uses "total"'),
    Case(
        "costly-schema",
        argument("n", {"type": "array", "items": {"anyOf": [{"const": i} for i in range(100)]}}),
        "schema.json",
        "/parameters/properties/n",
        "10 wrong values are not explained in full",
    ),
    Case(
        "costly-schema",
        argument("n", {"anyOf": [{"const": i} for i in range(700)]}),
        "schema.json",
        "/parameters/properties/n",
        "One wrong value is not explained in full",
    ),
    Case(
        "costly-schema",
        argument("n", {"type": "array", "contains": {"type": "array", "items": {"$ref": "#/properties/n"}}}),
        "schema.json",
        "/parameters/properties/n/contains",
        "Lists within lists are searched",
    ),
    Case(
        "costly-schema",
        both(*(argument(f"n{i}", {"type": "string", "pattern": f"^a{{1,6000}}{i}$"}) for i in range(4))),
        "schema.json",
        "/parameters/properties/n3/pattern",
        "very large when their repetitions are written out",
    ),
    Case("dedupe-fields", fields(dedupeFields=["id", "order"]), "schema.json", "/dedupeFields/1", '"order" is not'),
    Case(
        "default-value",
        argument("n", {"type": "integer", "maximum": 5, "default": 9}),
        "schema.json",
        "/parameters/properties/n/default",
        "not valid against its own schema",
    ),
    Case(
        "always-offer", always_offered(13), "schema.json", "/alwaysOffer", "13 tools are always offered, more than 12"
    ),
    Case("duplicate-tool", second("lookup_order"), "schema.json", "/toolId", '"lookup_order" is also the toolId of'),
    Case("extra-file", written("notes.txt", "x"), "notes.txt", "", "not covered by its hash"),
    Case("extra-file", lambda workshop, folder: (folder / "lib").mkdir(), "lib", "", "not part of a tool"),
    Case("field-value", fields(category="lookup"), "schema.json", "/category", '"retrieval", "action" or "utility"'),
    Case("field-value", fields(allowedModes=[]), "schema.json", "/allowedModes", "must not be empty"),
    Case("field-value", fields(allowedModes=["text", "sms"]), "schema.json", "/allowedModes/1", '"sms" is not'),
    Case("field-value", fields(latencyBudgetMs=0), "schema.json", "/latencyBudgetMs", "greater than 0"),
    Case("field-value", fields(version="1.0"), "schema.json", "/version", "semantic version"),
    Case("field-value", written("schema.json", "[]"), "schema.json", "", "one JSON object"),
    Case("file-size", written("table.py", b"#" * (MAX_FILE_BYTES + 1)), "table.py", "", "larger than 1024 KiB"),
    Case("folder-name", renamed("lookup-order@2"), "schema.json", "/version", 'the folder "lookup-order@2" says "2"'),
    Case("folder-name", renamed("lookup-order@"), "schema.json", "/version", 'says ""'),
    Case("folder-name", fields(toolId="lookup"), "schema.json", "/toolId", 'the folder "lookup-order" asks for'),
    Case("guide-examples", guide('```json\n{"id": 7}\n```\n'), "guide.md", "line 8", "not valid as arguments"),
    Case("guide-examples", guide("```json\n{id: 7}\n```\n"), "guide.md", "line 8", "not valid as arguments"),
    Case("guide-examples", guide('Response:\n```json\n{"no": 1}\n```'), "guide.md", "line 9", "not valid as response"),
    Case("guide-examples", guide('```json response\n{"no": 1}\n```'), "guide.md", "line 8", "not valid as response"),
    Case(
        "guide-examples",
        guide('```json response\n{"ok": false, "error": {"type": "OOPS", "message": ""}}\n```'),
        "guide.md",
        "line 8",
        "'OOPS' is not an error type",
    ),
    Case("guide-examples", guide('```json\n{"id": 7}\n'), "guide.md", "line 8", "not valid as arguments"),
    Case("guide-examples", guide('- so:\n\n    ```json\n    {"id": 7}\n    ```'), "guide.md", "line 10", "arguments"),
    Case("guide-summary", written("guide.md", "# Only\n\n## Headings\n"), "guide.md", "", "has no summary"),
    Case("guide-summary", written("guide.md", "\n"), "guide.md", "", "has no summary"),
    Case("guide-summary", guide("", "x" * 251), "guide.md", "line 3", "has 251 characters; it may have 250"),
    Case("handler-execute", written("handler.py", "x = 1\n"), "handler.py", "", "no function `execute`"),
    Case(
        "handler-execute", written("handler.py", "\ndef execute(args): ...\n"), "handler.py", "line 2", "two arguments"
    ),
    Case(
        "handler-execute", written("handler.py", "def execute(a, b, c): ...\n"), "handler.py", "line 1", "two arguments"
    ),
    Case(
        "handler-execute",
        written("handler.py", "def execute(a, b, *, c): ..."),
        "handler.py",
        "line 1",
        "two arguments",
    ),
    Case(
        "handler-execute",
        written("handler.py", "def execute(a, b): ...\ndef preview(): ..."),
        "handler.py",
        "line 2",
        "`preview` must take two",
    ),
    Case(
        "undefined-name",
        written("handler.py", "async def execute(args, ctx):\n    raise ToolError('x')\n"),
        "handler.py",
        "line 2",
        '"ToolError" is used and defined nowhere',
    ),
    Case(
        "missing-module",
        written("handler.py", "import stripes_and_stars\n\n\nasync def execute(args, ctx):\n    return None\n"),
        "handler.py",
        "line 1",
        '"stripes_and_stars" is imported and not installed here',
    ),
    Case(
        "handler-import",
        both(written("words.py", ""), written("handler.py", "import words\ndef execute(a, b): ...")),
        "handler.py",
        "line 1",
        "imported by its bare name",
    ),
    Case(
        "handler-import",
        written("handler.py", "from .words import x\ndef execute(a, b): ..."),
        "handler.py",
        "line 1",
        'no "words.py" beside',
    ),
    Case(
        "handler-import",
        written("handler.py", "from . import words\ndef execute(a, b): ..."),
        "handler.py",
        "line 1",
        'no "words.py" beside',
    ),
    Case(
        "handler-import",
        written("handler.py", "def execute(a, b):\n    from ..other import x"),
        "handler.py",
        "line 2",
        "cannot leave",
    ),
    Case("handler-syntax", written("handler.py", "def execute(a, b:\n"), "handler.py", "line 1", "is not Python"),
    Case("handler-syntax", written("words.py", "x = (\n"), "words.py", "line 1", "words.py is not Python"),
    Case("handler-syntax", written("words.py", "return 1\n"), "words.py", "line 1", "'return' outside function"),
    Case(
        "json-schema", argument("x", {"type": "text"}), "schema.json", "/parameters/properties/x/type", "cannot be used"
    ),
    Case(
        "json-schema",
        argument("x", {"type": "string", "format": "phone"}),
        "schema.json",
        "/parameters/properties/x/format",
        "phone",
    ),
    Case(
        "json-schema",
        argument("x", {"$ref": "https://example.com/x.json"}),
        "schema.json",
        "/parameters/properties/x/$ref",
        "cannot be used",
    ),
    Case("json-schema", fields(outputSchema={"type": "thing"}), "schema.json", "/outputSchema/type", "cannot be used"),
    Case("json-syntax", written("schema.json", '{"toolId": }'), "schema.json", "/toolId", "line 1, column 12"),
    Case("json-syntax", written("schema.json", '{"a": 1, "a": 2}'), "schema.json", "/a", "occurs twice"),
    Case("json-syntax", written("schema.json", ""), "schema.json", "", "empty"),
    Case("json-syntax", written("schema.json", '{"a": "\\ud800"}'), "schema.json", "/a", "surrogate"),
    Case("link", linked_file, "handler.py", "", "is a link to somewhere else"),
    Case("link", linked_folder, ".", "", 'The folder "lookup-order" is a link'),
    Case("missing-file", without("schema.json"), "schema.json", "", "has no schema.json"),
    Case("missing-file", without("guide.md"), "guide.md", "", "has no guide.md"),
    Case("missing-file", without("handler.py"), "handler.py", "", "has no handler.py"),
    Case("on-interrupt", fields(onInterrupt="finish"), "schema.json", "/onInterrupt", "always finished", "action"),
    Case(
        "required-argument", parameters(required=["idd"]), "schema.json", "/parameters/required/0", "would be refused"
    ),
    Case(
        "schema-keyword",
        argument("x", {"type": "string", "minLenght": 3}),
        "schema.json",
        "/parameters/properties/x/minLenght",
        "checks nothing",
    ),
    Case("parameters-object", parameters(additionalProperties=True), "schema.json", "/parameters", "made-up arguments"),
    Case(
        "parameters-object",
        fields(parameters={"additionalProperties": False}),
        "schema.json",
        "/parameters",
        '"type": "object"',
    ),
    Case(
        "parameters-object", fields(parameters={"type": "object"}), "schema.json", "/parameters", "additionalProperties"
    ),
    Case("preview", fields(preview="Set {order}."), "schema.json", "/preview", '"{order}" names no argument', "action"),
    Case("preview", fields(preview="{id|upper}"), "schema.json", "/preview", '"upper" is not a filter', "action"),
    Case("preview", fields(preview="Set {id."), "schema.json", "/preview", "brace without its partner", "action"),
    Case(
        "provider-loss",
        parameters(oneOf=[{"required": ["id"]}, {"required": ["no"]}]),
        "schema.json",
        "/parameters/oneOf",
        'The format of "openai-chat" cannot express "oneOf"',
    ),
    *(Case("required-field", fields(**{name: ...}), "schema.json", "", f'"{name}" is missing') for name in REQUIRED),
    Case("reserved-name", renamed("call-tool"), "schema.json", "/toolId", "keeps for itself"),
    Case("reserved-name", renamed("get-tool-guide"), "schema.json", "/toolId", "keeps for itself"),
    Case("retrieval-pure", fields(sideEffects="writes"), "schema.json", "/sideEffects", "cannot write"),
    Case("retrieval-pure", fields(idempotent=False), "schema.json", "/idempotent", "must be idempotent"),
    Case("unknown-field", fields(timeoutms=5), "schema.json", "/timeoutms", 'no field "timeoutms"'),
    Case("unknown-field", fields(noSchemaMode="confirm"), "schema.json", "/noSchemaMode", 'no field "noSchemaMode"'),
    Case("utf8", written("guide.md", b"Caf\xe9\n"), "guide.md", "", "byte 3 cannot be read"),
    Case("utf8", written("schema.json", b'{"a": "\xff"}'), "schema.json", "", "byte 7 cannot be read"),
    Case("utf8", written("handler.py", b"# \xff\n"), "handler.py", "", "byte 2 cannot be read"),
    Case(
        "utility-writes",
        fields(sideEffects="writes"),
        "schema.json",
        "/sideEffects",
        "an action in disguise",
        "utility",
    ),
    Case(
        "voice-latency",
        fields(latencyBudgetMs=1501),
        "schema.json",
        "/latencyBudgetMs",
        "longer than a whole voice turn",
    ),
    Case(
        "role",
        fields(permissions={"roles": ["manager", "cleark"]}),
        "schema.json",
        "/permissions/roles/1",
        'There is no role "cleark".',
    ),
    Case("waiver", fields(waivers={"no-such-rule": "x"}), "schema.json", "/waivers/no-such-rule", "no rule"),
    Case("waiver", fields(waivers={"utf8": "because"}), "schema.json", "/waivers/utf8", "cannot be waived"),
]

# Close to what the rule objects to, and right.
USES_ALL = """\
from __future__ import annotations

import json as j
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal
try:
    import speedups_that_nobody_has as speed
except ImportError:
    speed = None

LIMIT = 3
_seen: dict[str, int] = {}


class Counter:
    total = LIMIT

    def add(self, amount: Decimal) -> int:
        global grown
        grown = True
        return self.total + len([total for total in range(LIMIT)])


async def execute(args, ctx):
    try:
        rows = {key: value for key, value in args.items() if (size := len(key)) < LIMIT}
    except ValueError as error:
        return {"ok": False, "error": str(error), "where": __file__}
    finish = lambda row: (row, size)
    with open(__file__) as handle:
        _seen[handle.name] = grown
    match rows:
        case {"a": first, **rest}:
            return j.dumps([first, rest])
        case _:
            return [finish(row) for row in rows] + [Counter().add(0), speed]
"""

SILENT = [
    Case("missing-module", written("handler.py", USES_ALL), "", "", ""),
    Case("undefined-name", written("handler.py", USES_ALL), "", "", ""),
    Case(
        "undefined-name",
        written("handler.py", "from os.path import *\n\n\nasync def execute(args, ctx):\n    return join('a')\n"),
        "",
        "",
        "",
    ),
    Case("action-unconfirmed", fields(requiresConfirmation=False, confirmation={"when": "true"}), "", "", "", "action"),
    Case(
        "clamp",
        both(argument("n", {"type": "integer", "minimum": 1}), fields(clamp={"voice": {"n": 3}})),
        "",
        "",
        "",
    ),
    Case("clamp", both(argument("n", {"type": ["integer", "null"]}), fields(clamp={"voice": {"n": 3}})), "", "", ""),
    Case(
        "clamp",
        both(argument("n", {"type": "array", "items": {"enum": ["a", "b"]}}), fields(clamp={"voice": {"n": ["a"]}})),
        "",
        "",
        "",
    ),
    Case("condition", fields(availability={"condition": 'mode == "text" && user.id != ""'}), "", "", ""),
    Case("role", fields(permissions={"roles": ["manager", "clerk"]}), "", "", ""),
    Case("condition", fields(availability={"condition": "user.isAuthenticated && user.signedIn"}), "", "", ""),
    Case("condition", fields(availability={"condition": '"a" in user["roles"] && session.anything'}), "", "", ""),
    Case("condition", fields(availability={"condition": "session.l.exists(user, user.name == 'x')"}), "", "", ""),
    Case("condition", fields(confirmation={"when": "size(args.id) > 5"}), "", "", ""),
    Case("costly-schema", argument("n", {"enum": list(range(300)), "pattern": "^[a-z]{1,80}$"}), "", "", ""),
    Case("costly-schema", argument("n", {"anyOf": [{"const": i} for i in range(300)]}), "", "", ""),
    Case("costly-schema", argument("n", {"type": "string", "pattern": "^((a{1,50}){1,40}){1,4}$"}), "", "", ""),
    Case("costly-schema", argument("n", {"type": "array", "contains": {"type": "string"}}), "", "", ""),
    Case("costly-schema", argument("n", {"type": "array", "items": {"$ref": "#/properties/n"}}), "", "", ""),
    Case("condition", fields(confirmation={"when": 'args.id.exists(x, x == "a")'}), "", "", ""),
    Case("dedupe-fields", fields(dedupeFields=["id"]), "", "", ""),
    Case("default-value", argument("n", {"type": "integer", "maximum": 5, "default": 5}), "", "", ""),
    Case("always-offer", always_offered(12), "", "", ""),
    Case("duplicate-tool", lambda workshop, folder: workshop.new("lookup_customer"), "", "", ""),
    Case("extra-file", written("words.py", "x = 1\n"), "", "", ""),
    Case("extra-file", lambda workshop, folder: (folder / "__pycache__").mkdir(), "", "", ""),
    Case("field-value", fields(version="1.0.0-rc.1+build.7", latencyBudgetMs=1, allowedModes=["voice"]), "", "", ""),
    Case("file-size", written("table.py", b"#" * MAX_FILE_BYTES), "", "", ""),
    Case("folder-name", renamed("lookup_order"), "", "", ""),
    Case("folder-name", renamed("lookup-order@1.0"), "", "", ""),
    Case("folder-name", other_version("lookup-order-new", "9.0.0"), "", "", ""),
    Case("duplicate-tool", other_version("lookup-order-new", "9.0.0"), "", "", ""),
    Case("duplicate-tool", other_version("lookup-order@9", "9.0.0"), "", "", ""),
    Case("guide-examples", guide('```json\n{"id": "7"}\n```\n```python\n{no json}\n```'), "", "", ""),
    Case("guide-examples", guide('```json\n{"id": "7"}\n```\n## Not examples\n```json\n{"id": 7}\n```'), "", "", ""),
    Case("guide-examples", guide('**Response:**\n\n```json\n{"record": {}}\n```'), "", "", ""),
    Case("guide-examples", guide('Response:\n```json\n{"ok": true, "data": {"record": {}}}\n```'), "", "", ""),
    Case(
        "guide-examples",
        guide('```json response\n{"ok": false, "error": {"type": "NOT_FOUND", "message": "none"}}\n```'),
        "",
        "",
        "",
    ),
    Case("guide-summary", guide("", "x" * 250), "", "", ""),
    Case("handler-execute", written("handler.py", "def execute(args, ctx, more=None): ...\n"), "", "", ""),
    Case("handler-execute", written("handler.py", "async def execute(*both): ...\n"), "", "", ""),
    Case(
        "handler-import",
        both(
            written("words.py", "from . import letters\nimport json\n"),
            written("letters.py", ""),
            written("handler.py", "from .words import json\nfrom . import letters\ndef execute(a, b): ..."),
        ),
        "",
        "",
        "",
    ),
    Case("handler-syntax", written("handler.py", 'X = "\\d"\ndef execute(args, ctx): ...\n'), "", "", ""),
    Case("json-schema", argument("x", {"type": "string", "format": "date-time", "pattern": "^[a-z]+$"}), "", "", ""),
    Case(
        "json-schema",
        parameters(**{"$defs": {"x": {"type": "object", "properties": {"y": {"$ref": "#"}}}}}),
        "",
        "",
        "",
    ),
    Case("json-syntax", lambda workshop, folder: workshop.edit(folder, description="Ünïcödé 😀"), "", "", ""),
    Case("link", lambda workshop, folder: (workshop.tools / "_draft").symlink_to(workshop.root), "", "", ""),
    Case("missing-file", lambda workshop, folder: (workshop.tools / "_draft").mkdir(), "", "", ""),
    Case("on-interrupt", fields(onInterrupt="finish"), "", "", ""),
    Case("required-argument", parameters(required=["id"]), "", "", ""),
    Case("schema-keyword", argument("x", {"type": "string", "x-note": 1, "$comment": "y"}), "", "", ""),
    Case("parameters-object", fields(parameters={"type": "object", "additionalProperties": False}), "", "", ""),
    Case("preview", fields(preview="Set {id|short} to { status }."), "", "", "", "action"),
    Case("provider-loss", argument("x", {"type": "string", "pattern": "^a", "minLength": 3}), "", "", ""),
    Case("required-field", fields(tags=..., timeoutMs=...), "", "", ""),
    Case("reserved-name", renamed("get-tool-guides"), "", "", ""),
    Case("retrieval-pure", fields(sideEffects="none"), "", "", ""),
    Case("unknown-field", fields(**{"$schema": "x", "timeoutMs": 5}), "", "", ""),
    Case("utf8", written("guide.md", "\ufeffCafé, 日本語\r\n"), "", "", ""),
    Case("utility-writes", fields(sideEffects="read_only"), "", "", "", "utility"),
    Case("voice-latency", fields(latencyBudgetMs=1500), "", "", ""),
    Case("voice-latency", fields(latencyBudgetMs=9000, allowedModes=["text"]), "", "", ""),
    Case("waiver", fields(waivers={"voice-latency": "measured"}), "", "", ""),
]


def named(case: Case) -> str:
    return f"{case.rule}: {case.says}" if case.says else case.rule


@pytest.mark.parametrize("case", SPEAKING, ids=named)
def test_a_rule_names_what_is_wrong_where_and_how_to_mend_it(workshop, case):
    folder = workshop.new(category=case.category)
    case.spoil(workshop, folder)

    said = [finding for finding in workshop.findings() if finding.rule == case.rule]

    matching = [finding for finding in said if case.says in finding.message and finding.place == case.place]
    assert matching, said
    finding = matching[0]
    assert Path(finding.file).name == case.file or finding.file.endswith(f"/{case.file}")
    assert finding.message.endswith((".", "?")), finding.message
    assert finding.fix.strip(), finding
    assert finding.severity == next(rule.severity for rule in all_rules() if rule.name == case.rule)


@pytest.mark.parametrize("case", SILENT, ids=named)
def test_a_rule_is_silent_about_what_is_right(workshop, case):
    folder = workshop.new(category=case.category)
    case.spoil(workshop, folder)

    assert [str(finding) for finding in workshop.findings() if finding.rule == case.rule] == []


@pytest.mark.parametrize("category", ["retrieval", "action", "utility"])
def test_nothing_is_said_about_a_new_tool(workshop, category):
    workshop.new(category=category)

    assert workshop.findings() == []


@pytest.mark.parametrize("table", [SPEAKING, SILENT], ids=["speaking", "silent"])
def test_the_tables_here_leave_no_rule_out(table):
    # A file that cannot be read needs more than a change of its content: see the tests of bad input.
    assert {case.rule for case in table} == {rule.name for rule in all_rules()} - {"unreadable-file"}


def test_every_rule_has_a_stable_name_and_promises_one_sentence():
    names = [rule.name for rule in all_rules()]

    assert len(set(names)) == len(names)
    for rule in all_rules():
        assert rule.name == rule.name.lower().replace("_", "-")
        assert rule.check.__module__.endswith("." + rule.name.replace("-", "_"))
        assert rule.promise.endswith(".")


# What the seeds list under "What gets validated" and "Troubleshooting", each with the rule that watches over it.
SEEDS = {
    "all three files exist": ("missing-file", without("handler.py")),
    "schema.json has all required fields": ("required-field", fields(idempotent=...)),
    "parameters is valid JSON Schema": ("json-schema", argument("x", {"minimum": "3"})),
    "formats are supported": ("json-schema", argument("x", {"type": "string", "format": "colour"})),
    "the guide has a summary that can be extracted": ("guide-summary", written("guide.md", "# Title\n")),
    "the summary is under 250 characters": ("guide-summary", written("guide.md", "y" * 300)),
    "toolId matches the directory's name": ("folder-name", fields(toolId="lookup-order")),
    "category is valid": ("field-value", fields(category="search")),
    "allowedModes is a non-empty list": ("field-value", fields(allowedModes=[])),
    "parameters has additionalProperties: false": ("parameters-object", parameters(additionalProperties=...)),
    "retrieval tools are idempotent": ("retrieval-pure", fields(idempotent=False)),
    "retrieval tools do not write": ("retrieval-pure", fields(sideEffects="writes")),
}


@pytest.mark.parametrize("promise", SEEDS)
def test_everything_that_the_seeds_validate_stops_the_build(workshop, promise):
    rule, spoil = SEEDS[promise]
    folder = workshop.new()
    if promise.startswith("parameters has"):
        workshop.change(folder, lambda schema: schema["parameters"].pop("additionalProperties"))
    else:
        spoil(workshop, folder)

    result = workshop.build()

    assert rule in {finding.rule for finding in result.errors}
    assert result.entries == ()


WARNINGS = [case for case in SPEAKING if case.rule in {r.name for r in all_rules() if r.severity == "warning"}]


@pytest.mark.parametrize("case", WARNINGS, ids=named)
def test_a_waiver_with_a_reason_silences_its_warning_and_no_other(workshop, case):
    folder = workshop.new(category=case.category)
    case.spoil(workshop, folder)
    assert [finding.rule for finding in workshop.findings()] == [case.rule]

    workshop.edit(folder, waivers={case.rule: "It was looked at, and is meant to be so."})

    assert workshop.findings() == []
    others = {rule.name: "x" for rule in all_rules() if rule.severity == "warning" and rule.name != case.rule}
    workshop.edit(folder, waivers=others)
    assert [finding.rule for finding in workshop.findings()] == [case.rule]


def test_a_waiver_silences_no_error(workshop):
    folder = workshop.new()
    workshop.edit(folder, toolId="other", waivers={"folder-name": "I like it.", "waiver": "This one, too."})

    found = [(finding.rule, finding.place) for finding in workshop.findings()]

    assert found == [("folder-name", "/toolId"), ("waiver", "/waivers/folder-name"), ("waiver", "/waivers/waiver")]


def test_a_waiver_without_a_reason_is_refused(workshop):
    folder = workshop.new()
    workshop.edit(folder, latencyBudgetMs=9000, waivers={"voice-latency": " "})

    (finding,) = (found for found in workshop.findings() if found.severity == "error")

    assert (finding.rule, finding.place) == ("field-value", "/waivers/voice-latency")
    assert "must be a reason" in finding.message


def test_a_warning_lets_the_build_pass(workshop):
    workshop.edit(workshop.new(), latencyBudgetMs=9000)

    result = workshop.build()

    assert [finding.rule for finding in result.warnings] == ["voice-latency"]
    assert len(result.entries) == 1


def test_the_voice_turn_that_a_tool_may_not_exceed_is_a_setting(workshop):
    workshop.edit(workshop.new(), latencyBudgetMs=2000)

    assert workshop.findings(voice_turn_ms=2000) == []


def test_an_unknown_field_and_a_misspelt_waiver_come_with_the_nearest_name(workshop):
    workshop.edit(workshop.new(), waivers={"voice-latancy": "measured"}, tag=["x"])
    fixes = {finding.rule: finding.fix for finding in workshop.findings()}
    assert fixes["unknown-field"] == 'Did you mean "tags"?'

    workshop.change(workshop.tools / "lookup-order", lambda schema: schema.pop("tag"))
    fixes = {finding.rule: finding.fix for finding in workshop.findings()}
    assert fixes["waiver"] == 'Did you mean "voice-latency"?'


def test_a_handler_is_parsed_and_never_run(workshop, tmp_path):
    folder = workshop.new()
    touched = tmp_path / "ran"
    (folder / "handler.py").write_text(f"open({str(touched)!r}, 'w')\nraise SystemExit\ndef execute(args, ctx): ...\n")

    assert workshop.findings() == []
    assert not touched.exists()


def test_an_example_with_defaults_left_out_is_valid(workshop):
    folder = workshop.new()
    argument("top_k", {"type": "integer", "default": 5})(workshop, folder)

    assert workshop.findings() == []


def test_the_finding_of_a_decorated_tool_names_its_module_and_line(workshop):
    (workshop.root / "decorated_for_findings.py").write_text(
        "from handrail import tool\n\n\n"
        "@tool(category='action', side_effects='writes')\n"
        "def send(to: str):\n"
        '    """Send a parcel."""\n\n\n'
        "@tool(category='action', side_effects='writes', parameters={'type': 'object', 'additionalProperties': False})\n"
        "class Recall:\n"
        '    """Call a parcel back."""\n'
        "    async def run(self, params=None): ...\n"
    )

    found = workshop.findings(modules=("decorated_for_findings",))

    assert [(finding.rule, finding.tool, finding.file, finding.place) for finding in found] == [
        ("action-unconfirmed", "send", "decorated_for_findings.py", "line 4"),
        ("action-unconfirmed", "recall", "decorated_for_findings.py", "line 9"),
    ]


def test_findings_are_data_that_a_program_can_read(workshop):
    folder = workshop.new()
    workshop.edit(folder, version="one")
    os.truncate(folder / "guide.md", 0)

    found = json.loads(json.dumps([finding.to_dict() for finding in workshop.findings()]))

    assert [(entry["rule"], entry["file"], entry["place"]) for entry in found] == [
        ("guide-summary", "lookup-order/guide.md", ""),
        ("field-value", "lookup-order/schema.json", "/version"),
    ]
    assert all(set(entry) >= {"rule", "severity", "tool", "file", "place", "message", "fix"} for entry in found)
