"""The short way of a plain call: flat arguments, a tool that neither writes nor asks, nothing in the way.

`Pipeline.govern` is the flow, and the one place that says no. What stands here is the same steps for the many calls in
which no step has anything to say, in one function per tool that knows everything about its tool. It looks at each step in
the order of the flow, and before it has changed anything it hands a call with anything unusual about it back, by answering
None; the flow then begins from the start. So it can let a call pass, but never refuse one. A handler that waits, fails or
returns more than data is settled by the flow. `tests/runtime/test_shortcut.py` holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson

from handrail.contract.call import IdScope
from handrail.contract.envelope import ToolResponse
from handrail.runtime.context import PlainContext, PlainFacts
from handrail.runtime.gates import availability, budget, loop, mode, rate
from handrail.runtime.gates import session as session_gate
from handrail.runtime.keys import loop_key
from handrail.runtime.outcome import JSON_ONLY, is_empty
from handrail.runtime.plan import EARLY, LATE, Shortcut, ToolPlan

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore
    from handrail.runtime.session import Session

Fits = Callable[[Any], bool]
Defaults = tuple[tuple[str, str, Any], ...]
"""Name, pointer and value of each default."""
Run = Callable[[PlainFacts], "ToolResponse | Coroutine[Any, Any, ToolResponse]"]

_KNOWN = {session_gate, mode, availability, rate, loop, budget}
"""The gates that are written out below. One that is added later sends every call along the flow, until it is here too."""
_LEAST, _MOST = -(2**53), 2**53
_FEW, _SHORT = 16, 4096
_new: Callable[[type[PlainContext]], PlainContext] = object.__new__
_made = tuple.__new__
_loads, _dumps, _SORTED, _join = orjson.loads, orjson.dumps, orjson.OPT_SORT_KEYS, b"".join


def shortcut_for(plan: ToolPlan, core: RuntimeCore) -> Shortcut | None:
    """The short way of this tool's calls; None where some step always has something to say."""
    unusual = plan.writes or plan.may_ask or plan.unvalidated or plan.rate_limit
    hidden = plan.redact is not None or core.audit.masks
    conditional = plan.definition.availability_condition is not None or plan.definition.no_schema_mode == "refuse"
    if unusual or hidden or conditional or plan.start is None or not plan.is_plain:
        return None
    if plan.tool.handler.encode is not None:  # what it returns is made JSON first
        return None
    simple = getattr(plan.validator, "simple", None)
    check: tuple[Fits, Defaults] | None = simple() if simple is not None else None
    if check is None or not _KNOWN.issuperset((*EARLY, *LATE)):
        return None
    fits, defaults = check
    return _steps_until_run(plan, core, fits, defaults, _run_and_settle(plan, core))


def _steps_until_run(plan: ToolPlan, core: RuntimeCore, fits: Fits, defaults: Defaults, run: Run) -> Shortcut:
    """Steps 2 to 12. Nothing is changed before the last of them."""
    tool_id, retrieval, registry, meaning = plan.tool_id, plan.retrieval, core.registry, plan.meaning
    crowded = core.runner.crowded
    modes = None if len(plan.definition.allowed_modes) == 2 else plan.definition.allowed_modes
    wants_user, most = plan.definition.requires_auth, min(2, plan.policy.identical_calls)

    def shortcut(
        session: Session, raw_args: Any, call_id: Any, provider: str | None, id_scope: IdScope
    ) -> ToolResponse | Coroutine[Any, Any, ToolResponse] | None:
        started = perf_counter()
        # 2. Parse
        if type(raw_args) is dict and len(raw_args) < _FEW:
            args = raw_args.copy()
        elif type(raw_args) is str and len(raw_args) < _SHORT and raw_args[:1] == "{":
            try:
                args = _loads(raw_args)
            except ValueError:
                return None
            if raw_args.count(":") != len(args):  # a key that came twice, or a colon in a text
                return None
        else:
            return None
        for item in args.values():
            kind = type(item)
            if kind is str or (kind is int and _LEAST < item < _MOST) or kind is bool or item is None:
                continue
            return None
        # 3. Replay by id
        if type(call_id) is not str or not call_id.isascii() or not call_id or id_scope != "session":
            return None
        if call_id[0] < ";" and ":" in call_id:  # it may look like one of a connection
            return None
        if provider is not None and (type(provider) is not str or not provider.isascii()):
            return None
        key = "provider:" + call_id
        known = session.calls_by_id
        if key in session.replays or key in known or (known.forgotten is not None and key in known.forgotten):
            return None
        if meaning is not None and provider is not None:
            args = meaning(provider, args)
        # 4. Session, 5. mode, 6. availability
        turn, state = session.turn, session.state
        if turn is None or not state.is_active or session.is_taken_over or session.snapshot is not registry.generation:
            return None
        if (modes is not None and state.mode not in modes) or (wants_user and session.user is None):
            return None
        if tool_id in core.switches or (core.blocks and session.blocked_for()) or (crowded and tool_id in crowded):
            return None
        # 7. Validate
        defaulted: tuple[str, ...] = ()
        try:
            if not fits(args):
                return None
            for name, token, value in defaults:
                if name not in args:
                    args[name] = value
                    defaulted += (token,)
            text = _join((_dumps(args, None, _SORTED), b""))  # `trimmed`, because it is kept
        except (ValueError, TypeError):  # half a surrogate pair, or a key that only looks like a text
            return None
        # 11. Loop, 12. budget
        same = (tool_id, text if text.isascii() else loop_key(text))
        identical, limits = turn.identical, session.limits
        seen = identical.get(same, 0) + 1
        if seen >= most or turn.earlier or tool_id in turn.empties or len(text) > _SHORT:
            return None
        if limits.total_calls is not None and turn.total_used >= limits.total_calls:
            return None
        if retrieval:
            if limits.retrieval_calls is not None and turn.retrieval_used >= limits.retrieval_calls:
                return None
            turn.retrieval_used += 1
        turn.total_used += 1
        identical[same] = seen
        return run((session, plan, turn, call_id, provider, key, started, args, text, defaulted))

    return shortcut


def _run_and_settle(plan: ToolPlan, core: RuntimeCore) -> Run:
    """Steps 15 and 16."""
    start, tool_id, stamp, retrieval = plan.start, plan.tool_id, plan.stamp, plan.retrieval
    note_call, note_line, now = core.metrics.note, core.audit.note, core.now
    most_bytes = plan.most_bytes
    output = plan.tool.output_validator if plan.checks_output else None
    assert start is not None

    def run(facts: PlainFacts) -> ToolResponse | Coroutine[Any, Any, ToolResponse]:
        session, _, turn, call_id, provider, key, started, args, text, defaulted = facts
        session.dirty = True
        context = _new(PlainContext)
        context._facts = facts
        try:
            coroutine = start(args, context)
            waiting = coroutine.send(None)
        except StopIteration as done:
            returned = done.value
        except BaseException as error:  # noqa: BLE001  # raised where the outcome is awaited
            return core.pipeline.run_and_settle(context.attempt, context, core.runner.failed(error))
        else:
            return core.pipeline.run_and_settle(
                context.attempt, context, core.runner.waits(context.attempt, coroutine, waiting)
            )
        data, raw, usual = None, b"", False
        if type(returned) is dict and len(returned) == 2:
            try:
                data = returned["data"]
                raw = _join((_dumps(data, None, JSON_ONLY), b""))
                usual = returned["ok"] is True and len(raw) <= most_bytes and raw.find(b"null") < 0
            except (KeyError, TypeError):
                usual = False
        if output is not None:
            usual = usual and output.is_valid(data)
        asked = context._facts is None and context.attempt.intents  # type: ignore[unreachable]  # the handler may have
        if not usual or asked:
            return core.pipeline.run_and_settle(context.attempt, context, (True, returned))
        duration = (perf_counter() - started) * 1_000_000 // 1 / 1000
        session.last_used = started
        limits = session.limits
        meta = plan.meta.copy()
        meta["duration"] = duration
        if defaulted:
            meta["defaulted"] = list(defaulted)
        more: dict[str, Any] | None = None
        if limits.retrieval_calls is not None or limits.total_calls is not None:
            more = {"budget": budget.left(limits, turn)}
        if retrieval:
            for value in data.values() if type(data) is dict else ():
                if type(value) is list and value:
                    break
            else:
                if is_empty(data):
                    turn.empties[tool_id] = turn.empties.get(tool_id, 0) + 1
        # fmt: off
        record = (
            session.id, tool_id, duration, None, len(raw), now(), stamp,
            turn.number, session.connection, session.state.mode, provider, call_id, text, defaulted,
        )
        # fmt: on
        note_call(record)
        note_line(record if session.subject is None else (*record, session.subject))
        if duration > plan.latency_budget_ms or (retrieval and duration > limits.retrieval_ms):
            more = {**(more or {}), "slow": core.trail.warn_latency(context.attempt, duration)}
        if more:
            meta.update(more)
        replays = session.replays
        replays[key] = (plan, text, defaulted, duration, more, raw)
        if len(replays) > replays.most:
            oldest = next(iter(replays))
            if type(replays[oldest]) is tuple:
                del replays[oldest]
            else:
                replays.drop_oldest()
        return _made(ToolResponse, (True, data, None, (), meta))

    return run
