"""Step 15: the handler runs, with its context, its deadline and, where policy and tool allow it, a second try.

`start` takes the handler's first step. A coroutine that never waits has ended then, and `outcome` makes its envelope at once;
only one that waits pays for a timer, in `runner.py`. If the effect happened it stands, whatever the result looks like.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any, NamedTuple

import orjson

from handrail.authoring.json_values import to_json
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import EnvelopeParts, ToolFailure, ToolResponse
from handrail.contract.errors import CallLost, ErrorType, ToolError
from handrail.contract.frozen import FrozenDict
from handrail.contract.ports import Clock
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.capabilities import struck_out, without_tokens
from handrail.runtime.context import Context
from handrail.runtime.runner import DeadlinePassed, NotStarted, Runner
from handrail.schema.strict_json import trimmed

MAX_RESULT_BYTES = 1024 * 1024
_NULL_BYTES = 4
"""The bytes of `null`, for which there is always room."""
_MAX_BACKOFF_SECONDS = 0.2
_JSON_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME
_NO_META = FrozenDict()
_new, _dumps, _join = tuple.__new__, orjson.dumps, b"".join

Started = tuple[bool, Any]
"""What came of starting a handler: (True, what it returned), or (False, an awaitable of that)."""


class BadResult(Exception):
    """The handler's result cannot be used; the text is for the log, never for the model."""


class Execution:
    """Runs the handlers of one runtime, and turns whatever they do into an envelope."""

    __slots__ = ("_clock", "_log", "_runner", "capabilities", "jitter")

    def __init__(
        self,
        runner: Runner,
        capabilities: Mapping[str, Any],
        clock: Clock,
        jitter: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._runner = runner
        self.capabilities = capabilities
        self._clock = clock
        self.jitter = jitter
        self._log = log

    def start(self, attempt: Attempt, context: Context) -> Started:
        """What came of the handler's first step. Only the awaitable raises: the handler's exception, or `DeadlinePassed`."""
        execute = attempt.plan.start
        try:
            if execute is None:
                return False, self._runner.start(attempt, context)
            # Driven by hand: a coroutine that never waits ends in this `send`, without a task and without a round of the loop.
            coroutine = execute(attempt.args, context)
            waiting = coroutine.send(None)
        except StopIteration as done:
            return True, done.value
        # Not here, so that all failures of a handler take one way: through `run`, which knows retries and the ledger.
        except BaseException as error:  # noqa: BLE001  # whatever it is, it is raised where the outcome is awaited
            return False, self._runner.failed(error)
        return False, self._runner.waits(attempt, coroutine, waiting)

    def outcome(self, attempt: Attempt, returned: Any) -> tuple[EnvelopeParts, bytes] | None:
        """The envelope and the data as JSON of a handler that has returned this; None if it may be tried again."""
        try:
            parts, raw = checked_parts(returned, attempt.plan.results or ResultRules.of(attempt.plan.tool))
        except BadResult as error:
            return self._failed(attempt, error), b""
        # An error of the handler's own may be retried, which only `run` does.
        if parts[2] is not None:
            return None
        if attempt.intents:
            parts = (*parts[:3], (*parts[3], *attempt.intents), parts[4])
        return settled_result(_new(ToolResponse, parts), raw, attempt) if attempt.handed_out else (parts, raw)

    async def call_hook(self, hook: Callable[..., Any], args: Any, attempt: Attempt, seconds: float) -> Any:
        """What a tool's `preview` or `reconcile` returns; `TimeoutError` after this time."""
        found = await self._runner.call_hook(hook, args, Context(attempt, self.capabilities, attempt.key), seconds)
        return without_tokens(found, attempt.handed_out) if attempt.handed_out else found

    async def run(self, attempt: Attempt, context: Context, first: Started | None = None) -> tuple[ToolResponse, bytes]:
        """The handler's envelope and its data as JSON. `first` is what `start` gave, where that was done already."""
        plan = attempt.plan
        retries = attempt.session.limits.retries if plan.definition.idempotent else 0
        attempts = 1
        while True:
            done, returned = first or self.start(attempt, context)
            try:
                rules = plan.results or ResultRules.of(plan.tool)
                parts, raw = checked_parts(returned if done else await returned, rules)
                response = _new(ToolResponse, parts)
                if response.error is not None and attempt.session.mode == "voice":
                    response = response._replace(error=without_retry(response.error))
            except DeadlinePassed as error:
                response, raw = self._too_late(attempt, started=not isinstance(error, NotStarted)), b""
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if not attempt.interrupted or task is None:
                    raise
                # The cancellation was meant for the handler. It is answered with an envelope, and the caller's task lives on.
                task.uncancel()
                message = f'"{plan.tool_id}" was cancelled because the user interrupted.'
                response, raw = ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, True)), b""
            except Exception as error:  # noqa: BLE001  # an author's code may raise anything
                response, raw = self._failed(attempt, error), b""
            failure = response.error
            if (
                failure is None
                or attempts > retries
                or failure.type is not ErrorType.TRANSIENT
                or not failure.retryable
            ):
                break
            # At random, so that calls which failed together do not come back together.
            await self._clock.sleep(self.jitter() * _MAX_BACKOFF_SECONDS)
            attempts += 1
            # What the failed try asked for is not asked for any more.
            first = attempt.intents = None
        if attempts > 1:
            response = response.with_meta(attempts=attempts)
        if attempt.intents and response.ok:
            response = response._replace(intents=(*response.intents, *attempt.intents))
        return settled_result(response, raw, attempt) if attempt.handed_out else (response, raw)

    def _too_late(self, attempt: Attempt, *, started: bool) -> ToolResponse:
        plan = attempt.plan
        message = f'"{plan.tool_id}" did not finish within {plan.timeout * 1000:g} ms.'
        if not started:
            message = f'"{plan.tool_id}" could not be started within {plan.timeout * 1000:g} ms: all workers are busy.'
            self._log.warning("%s", message)
        # What is safe to repeat may be tried again. Of the rest nobody knows whether the effect happened.
        unsafe = plan.effects == "unsafe" and started
        if attempt.write is not None:
            attempt.write.uncertain = unsafe
        return ToolResponse(False, None, ToolFailure(ErrorType.TIMEOUT, message, not unsafe, unsafe))

    def _failed(self, attempt: Attempt, error: Exception) -> ToolResponse:
        failure = failure_of(error, attempt.plan.definition, voice=attempt.session.mode == "voice")
        if not isinstance(error, ToolError):
            if attempt.write is not None:
                attempt.write.uncertain = not isinstance(error, BadResult)
            if isinstance(error, CallLost):
                self._log.error("%s", error)
            elif attempt.handed_out:
                # A client's exception may quote the request that it sent.
                told = struck_out("".join(traceback.format_exception(error)), attempt.handed_out)
                self._log.error("The handler of %s failed\n%s", attempt.plan.tool_id, told.rstrip())
            else:
                self._log.error("The handler of %s failed", attempt.plan.tool_id, exc_info=error)
        # A result that cannot be used is not a failed effect: the ledger keeps that it happened.
        meta = {"resultUnavailable": True} if isinstance(error, BadResult) else {}
        return ToolResponse(False, None, failure, (), meta)


def settled_result(response: ToolResponse, raw: bytes, attempt: Attempt) -> tuple[ToolResponse, bytes]:
    """The result as it leaves the call: without the tokens that its handler was given."""
    if not attempt.handed_out:
        return response, raw
    # The whole envelope: a token may stand in a message or a detail as well as in the data.
    clean = ToolResponse.from_dict(without_tokens(response.to_dict(), attempt.handed_out))
    return clean, _as_json(clean.data) if clean.ok else raw


class ResultRules(NamedTuple):
    """What the results of a tool have to be."""

    is_directory: bool
    """Its handler returns envelopes, and nothing else."""
    encode: Callable[[Any], Any] | None
    """Makes JSON data of what it returns."""
    max_bytes: int | None
    """Data beyond it is cut."""
    checked: LoadedTool | None
    """The tool itself, where it has an `outputSchema`."""

    @classmethod
    def of(cls, tool: LoadedTool) -> ResultRules:
        """`RegistryError` if the handler cannot be loaded."""
        handler, definition = tool.handler, tool.definition
        checked = tool if definition.output_schema is not None else None
        return cls(handler.kind == "directory", handler.encode, definition.max_output_bytes, checked)


def checked_result(returned: Any, rules: ResultRules) -> tuple[ToolResponse, bytes]:
    """The envelope for what a handler returned, and its data as JSON; `BadResult` if it cannot be used."""
    parts, raw = checked_parts(returned, rules)
    return _new(ToolResponse, parts), raw


def checked_parts(returned: Any, rules: ResultRules) -> tuple[EnvelopeParts, bytes]:
    """`checked_result` without making an envelope, which is made once the facts about the call are known."""
    is_directory, encode, max_bytes, checked = rules
    if encode is not None:
        returned = _encoded(returned, encode)
    parts: EnvelopeParts
    if type(returned) is dict and len(returned) == 2 and returned.get("ok") is True and "data" in returned:
        data = returned["data"]
        parts = True, data, None, (), _NO_META  # what nearly every handler returns
    else:
        parts = response = _response(returned, is_directory)
        _check_rest(response)
        if not response.ok:
            return response, b""
        data = response.data
    try:
        raw = _as_json(data)
    except BadResult:
        if is_directory or encode is not None:
            raise
        # Its annotation does not say what is in the data; only now is it worth looking at every value.
        data = _encoded(data, to_json)
        parts = True, data, *parts[2:]
        raw = _as_json(data)
    # What was cut may not fit `outputSchema` any more, so it is not checked; the envelope says that it was cut.
    if max_bytes is not None and len(raw) > max_bytes:
        data = _cut(orjson.loads(raw), max_bytes)
        return (True, data, None, parts[3], {**parts[4], "truncated": True}), trimmed(orjson.dumps(data))
    if checked is not None and (checker := checked.output_validator) is not None and not checker.is_valid(data):
        first = checker.violations(data)[0]
        raise BadResult(f"its data does not fit outputSchema: {first.pointer} {first.message}")
    return parts, raw


def _encoded(returned: Any, encode: Callable[[Any], Any]) -> Any:
    try:
        return encode(returned)
    except Exception as error:  # an author's class may raise anything
        raise BadResult(f"its data cannot be made JSON: {error}") from error


def _check_rest(response: ToolResponse) -> None:
    """What stands beside the data must be JSON too, or nobody could store or send the envelope."""
    error = response.error
    try:
        rest = [dict(response.meta), [intent.to_dict() for intent in response.intents], error and error.to_dict()]
        raw = orjson.dumps(rest, option=_JSON_ONLY)
    except (TypeError, AttributeError, ValueError) as trouble:
        raise BadResult(f"its envelope is not JSON: {trouble}") from trouble
    # orjson writes NaN as null, so that only what has a null in it has to be looked through.
    if b"null" in raw and _has_strange_float(rest):
        raise BadResult("its envelope has a number that JSON does not have")


def without_retry(failure: ToolFailure) -> ToolFailure:
    """In voice there is no time for a second try, so the model must not be told to make one."""
    if failure.type is not ErrorType.TRANSIENT or not failure.retryable:
        return failure
    return replace(failure, retryable=False)


def failure_of(error: BaseException, definition: ToolDefinition, *, voice: bool) -> ToolFailure:
    """What the model is told of an exception. An unexpected one is INTERNAL, and its text stays out of it."""
    if isinstance(error, ToolError):
        failure = ToolFailure.from_error(error)
        try:
            _check_rest(ToolResponse(False, None, failure))
        except BadResult:
            # Its details are no JSON and are left out; what kind of failure it is stays.
            failure = ToolFailure(error.type, str(error.message), error.retryable, error.partial_side_effects)
        return without_retry(failure) if voice else failure
    if isinstance(error, BadResult):
        message = f'"{definition.tool_id}" gave a result that cannot be used.'
    else:
        message = f'"{definition.tool_id}" failed unexpectedly.'
    return ToolFailure(ErrorType.INTERNAL, message, False, definition.writes)


def _response(returned: Any, is_directory: bool) -> ToolResponse:
    if isinstance(returned, ToolResponse):
        return returned
    if isinstance(returned, Mapping) and isinstance(returned.get("ok"), bool):
        try:
            return ToolResponse.from_dict(returned)
        except ValueError as error:
            raise BadResult(str(error)) from error
    if is_directory:
        raise BadResult('a handler returns {"ok": true, "data": …} or a ToolResponse')
    return ToolResponse(True, returned)


def _as_json(data: Any) -> bytes:
    try:
        raw = _join((_dumps(data, None, _JSON_ONLY), b""))  # `trimmed`, as it is kept
    except TypeError as error:
        raise BadResult(f"its data is not JSON: {error}") from error
    # `rfind` takes half the time of `find` here. `in` asks bytes for an index first, and pays for the exception.
    if raw.rfind(b"null") >= 0 and _has_strange_float(data):
        raise BadResult("its data has a number that JSON does not have")
    if len(raw) > MAX_RESULT_BYTES:
        raise BadResult(f"its data is larger than {MAX_RESULT_BYTES // 1024} KiB")
    return raw


def _has_strange_float(data: Any) -> bool:
    """NaN and infinity are written as null; only a look at the values tells them apart."""
    stack = [data]
    while stack:
        value = stack.pop()
        if isinstance(value, float):
            if value - value != 0:
                return True
        elif isinstance(value, dict):
            stack.extend(value.values())
        elif isinstance(value, (list, tuple)):
            stack.extend(value)
    return False


def _cut(data: Any, limit: int) -> Any:
    """As much of the data as fits: text loses its end, a list its last items, an object first of all what is largest."""
    if _size(data) <= limit:
        return data
    if isinstance(data, str):
        kept = bisect_right(range(len(data)), limit, key=lambda length: _size(data[:length]))
        return data[: max(0, kept - 1)]
    if isinstance(data, list):
        sizes = accumulate((_size(item) + 1 for item in data), initial=1)
        return data[: bisect_right(list(sizes), limit) - 1]
    if isinstance(data, dict):
        return _cut_members(data, limit)
    return None


def _cut_members(data: dict[str, Any], limit: int) -> dict[str, Any]:
    members = dict(data)
    size = _size(members)
    for name in sorted(members, key=lambda name: -_size(members[name])):
        before = _size(members[name])
        if size <= limit or before <= _NULL_BYTES:
            break
        # What this member may still take, if all that is too much is taken from it.
        room = before - (size - limit)
        cuttable = isinstance(members[name], (str, list, dict)) and room > _NULL_BYTES
        members[name] = _cut(members[name], room) if cuttable else None
        size += _size(members[name]) - before
    while size > limit and members:
        name, value = members.popitem()
        size -= _size(name) + _size(value) + 2
    return members


def _size(data: Any) -> int:
    return len(orjson.dumps(data))
