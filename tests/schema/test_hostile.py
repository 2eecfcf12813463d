"""Hostile schemas and arguments through parse, validate, explain, canonical form, redaction and preview.

Whatever they are: no exception that is not ours, no more work than the bounds allow, the validator's verdict and no other,
and no secret in anything that is written down.
"""

from __future__ import annotations

from time import thread_time
from types import SimpleNamespace
from typing import Any

import jsonschema_rs
import orjson
import pytest
from tests.conftest import RecordFigures
from tests.schema.hostile import SECRET, Generator
from tests.schema.work import calls_of

from handrail.contract.errors import JsonError, SchemaError
from handrail.contract.hidden_characters import escaped
from handrail.observe import redaction
from handrail.observe.redaction import compile_redactor
from handrail.runtime.confirmation import render
from handrail.schema.explain import Exhausted, Explainer, Steps
from handrail.schema.strict_json import canonical, parse_arguments
from handrail.schema.subschemas import LocalRefs
from handrail.schema.validator import MAX_EXPLANATION, compile_schema

PER_SCHEMA = 100
# From time to time the interpreter counts what is really done, which makes them slow.
COUNTED = 100
# A check by the engine is one call, so these are the work of our own: the guard before it, at most six calls for a step of
# explaining and four for one of redacting. The most that were seen are 64,000, and 5.1 and 2.8 calls.
MAX_GUARD_CALLS = 80_000
MAX_CALLS = 6 * MAX_EXPLANATION
MAX_REDACTION_CALLS = 4 * redaction.MAX_STEPS
MAX_PREVIEW_CALLS = 5_000
UNCHECKED = ("size", "json")
SLOW = 10.0


class Tool:
    """A schema, compiled by us and by the library itself."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self.schema = schema
        self.compiled = compile_schema(schema).hiding(["pin"])
        self.library = jsonschema_rs.Draft202012Validator(
            schema, validate_formats=True, pattern_options=jsonschema_rs.RegexOptions()
        )
        self.redact = compile_redactor(schema, ["pin"])
        self.refs = LocalRefs(schema)
        self.definition: Any = SimpleNamespace(
            tool_id="pay", parameters=schema, preview="Pay {a} {a|short} {b|count} {c|date}"
        )

    def handle(self, args: dict[str, Any]) -> None:
        """What a call does with its arguments, once."""
        self.compiled.validate(args)
        canonical(args)
        assert self.redact is not None
        render(self.definition, args, None, self.redact(args))

    def judge(self, args: dict[str, Any]) -> None:
        explanation = self.compiled.explain(args)
        valid = not explanation.violations
        assert explanation.steps <= MAX_EXPLANATION
        assert self.compiled.is_valid(args) == valid
        if explanation.violations and explanation.violations[0].keyword in UNCHECKED:
            return
        assert self.library.is_valid(args) == valid, "the verdict is the library's"
        if explanation.complete and not valid:
            assert explanation.violations[0].keyword != "schema", "what is refused can be explained"
        if valid:
            self.compiled.validate(args)
            explainer = Explainer(self.refs, Steps())
            assert explainer.explain(self.schema, args) == [], "what is accepted has no problem"
        told = "".join(violation.pointer + violation.message for violation in explanation.violations)
        assert SECRET not in told
        assert all(violation.message[-1] in ".?" for violation in explanation.violations)
        assert len(explanation.violations) <= 52

    def write(self, args: dict[str, Any]) -> None:
        text = canonical(args)
        assert canonical(orjson.loads(text)) == text
        assert self.redact is not None
        steps = Steps(redaction.MAX_STEPS)
        masked = self.redact.redact(args, steps)
        assert steps.taken <= redaction.MAX_STEPS
        assert SECRET not in orjson.dumps(masked).decode()
        preview = render(self.definition, args, None, masked)
        assert SECRET not in preview
        assert escaped(preview, "\n") == preview
        assert len(preview) < 4_000 + 4_000 * len(args)

    def count(self, args: dict[str, Any]) -> tuple[int, int]:
        """The work that is done, by the interpreter's count, whatever our own counters say: explaining, redacting."""
        guarding = calls_of(lambda: self.compiled.is_valid(args))
        assert guarding <= MAX_GUARD_CALLS
        explaining = calls_of(lambda: self.compiled.explain(args)) - guarding
        assert explaining <= MAX_CALLS
        redact = self.redact
        assert redact is not None
        redacting = calls_of(lambda: redact(args))
        assert redacting <= MAX_REDACTION_CALLS
        masked = redact(args)
        assert calls_of(lambda: render(self.definition, args, None, masked)) <= MAX_PREVIEW_CALLS
        return explaining, redacting


def run(seed: int, cases: int) -> str:
    """Play a number of cases; the slowest in milliseconds of processor time, which one, and the most calls that were counted."""
    generator = Generator(seed)
    slowest, which = 0.0, ""
    explaining = redacting = 0
    done = 0
    while done < cases:
        schema = generator.parameters()
        try:
            tool = Tool(schema)
        except SchemaError:
            done += 1  # refused, in a sentence of ours
            continue
        for _ in range(min(PER_SCHEMA, cases - done)):
            done += 1
            raw = generator.raw(generator.arguments(schema))
            started = thread_time()
            try:
                args = parse_arguments(raw)
            except JsonError:
                continue
            try:
                tool.handle(args)
                took = (thread_time() - started) * 1000
                for _ in range(2 if took > slowest else 0):  # a busy machine slows down one and spares the next
                    started = thread_time()
                    tool.handle(parse_arguments(raw))
                    took = min(took, (thread_time() - started) * 1000)
                tool.judge(args)
                tool.write(args)
                if done % COUNTED == 0 or took > SLOW:
                    counted = tool.count(args)
                    explaining, redacting = max(explaining, counted[0]), max(redacting, counted[1])
            except (AssertionError, Exhausted):
                print(f"\nseed {seed}, case {done}\nschema = {schema!r}\nargs = {args!r}"[:20_000])
                raise
            if took > slowest:
                slowest, which = took, f"case {done} of seed {seed}"
    return f" slowest {slowest:.1f} ms ({which}); at most {explaining} calls of explaining, {redacting} of redacting"


@pytest.mark.parametrize("seed", range(4))
def test_hostile_arguments_stay_within_the_bounds(seed: int, record_figures: RecordFigures) -> None:
    record_figures(run(seed, 5_000))


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1_000, 1_040))
def test_two_million_hostile_arguments_stay_within_the_bounds(seed: int, record_figures: RecordFigures) -> None:
    record_figures(run(seed, 50_000))
