"""From what a handler gave back, or raised, to an envelope. If the effect happened it stands, whatever the result looks like."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import accumulate
from typing import Any

import orjson

from handrail.authoring.json_values import to_json
from handrail.contract.definition import ToolDefinition
from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, ToolError
from handrail.registry.snapshot import LoadedTool

MAX_RESULT_BYTES = 1024 * 1024
_LEAST = 4
"""The bytes of `null`, for which there is always room."""


class BadResult(Exception):
    """The handler's result cannot be used; the text is for the log, never for the model."""


def checked_result(returned: Any, tool: LoadedTool) -> tuple[ToolResponse, bytes]:
    """The envelope for what a handler returned, and its data as JSON; `BadResult` if it cannot be used."""
    encode = tool.handler.encode
    if encode is not None:
        returned = _encoded(returned, encode)
    if type(returned) is dict and len(returned) == 2 and returned.get("ok") is True and "data" in returned:
        response = ToolResponse(True, returned["data"])  # what nearly every handler returns
    else:
        response = _response(returned, tool)
        _check_rest(response)
        if not response.ok:
            return response, b""
    data = response.data
    try:
        raw = _as_json(data)
    except BadResult:
        if tool.handler.kind == "directory" or encode is not None:
            raise
        # Its annotation does not say what is in the data; only now is it worth looking at every value.
        response = ToolResponse(True, data := _encoded(data, to_json), None, response.intents, response.meta)
        raw = _as_json(data)
    limit = tool.definition.max_output_bytes
    if limit is not None and len(raw) > limit:
        data = _cut(orjson.loads(raw), limit)
        cut = ToolResponse(True, data, None, response.intents, {**response.meta, "truncated": True})
        return cut, orjson.dumps(data)
    checker = tool.output_validator
    if checker is not None and not checker.is_valid(data):
        first = checker.violations(data)[0]
        raise BadResult(f"its data does not fit outputSchema: {first.pointer} {first.message}")
    return response, raw


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
        raw = orjson.dumps(rest, option=JSON_ONLY)
    except (TypeError, AttributeError, ValueError) as trouble:
        raise BadResult(f"its envelope is not JSON: {trouble}") from trouble
    if b"null" in raw and _has_strange_float(rest):
        raise BadResult("its envelope has a number that JSON does not have")


def is_empty(data: Any) -> bool:
    """Nothing was found: null, `{}`, or an object whose lists are all empty."""
    if data is None or data == {}:
        return True
    if not isinstance(data, dict):
        return False
    has_list = False
    for value in data.values():
        if isinstance(value, list):
            if value:
                return False
            has_list = True
    return has_list


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
            failure = ToolFailure(error.type, str(error.message), error.retryable, error.partial_side_effects)
        return without_retry(failure) if voice else failure
    if isinstance(error, BadResult):
        message = f'"{definition.tool_id}" gave a result that cannot be used.'
    else:
        message = f'"{definition.tool_id}" failed unexpectedly.'
    return ToolFailure(ErrorType.INTERNAL, message, False, definition.writes)


def _response(returned: Any, tool: LoadedTool) -> ToolResponse:
    if isinstance(returned, ToolResponse):
        return returned
    if isinstance(returned, Mapping) and isinstance(returned.get("ok"), bool):
        try:
            return ToolResponse.from_dict(returned)
        except ValueError as error:
            raise BadResult(str(error)) from error
    if tool.handler.kind == "directory":
        raise BadResult('a handler returns {"ok": true, "data": …} or a ToolResponse')
    return ToolResponse(True, returned)


JSON_ONLY = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME


def _as_json(data: Any) -> bytes:
    try:
        raw = orjson.dumps(data, option=JSON_ONLY)
    except TypeError as error:
        raise BadResult(f"its data is not JSON: {error}") from error
    if b"null" in raw and _has_strange_float(data):
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
        if size <= limit or before <= _LEAST:
            break
        room = before - (size - limit)
        cuttable = isinstance(members[name], (str, list, dict)) and room > _LEAST
        members[name] = _cut(members[name], room) if cuttable else None
        size += _size(members[name]) - before
    while size > limit and members:
        name, value = members.popitem()
        size -= _size(name) + _size(value) + 2
    return members


def _size(data: Any) -> int:
    return len(orjson.dumps(data))
