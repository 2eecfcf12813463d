"""The operator's part: audit, ledger, policy, switches, metrics, statistics, forgetting a user. Only for operators' keys."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import orjson
from starlette.responses import Response
from starlette.types import ASGIApp

from handrail.authoring.source import UPSTREAM_CAPABILITY
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, UsageError
from handrail.contract.store import LedgerRow, LedgerState
from handrail.observe.exposition import CONTENT_TYPE
from handrail.observe.metrics import Metrics
from handrail.observe.usage_report import WAYS, first_day, reports
from handrail.server.api import audit_reader as auditing
from handrail.server.api.http import (
    ApiRequest,
    EventStream,
    HttpProblem,
    answer,
    number_in,
    operators_only,
    read_object,
    text_of,
)
from handrail.server.host.forgetting import NotAllForgotten

_MAX_LINES = 1_000
_MAX_ROWS = 500
_MAX_NOTE = 1_000


@operators_only
async def audit(request: ApiRequest) -> Response:
    context, query = request.context, request.query_params
    wanted = {name: query.get(name) or None for name in ("session", "call", "tool")}
    limit = number_in(request, "limit", 100, maximum=_MAX_LINES)
    async with context.reading:
        lines = await auditing.newest(context.runtime, context.audit, limit=limit, **wanted)
    return answer({"events": lines})


@operators_only
async def audit_stream(request: ApiRequest) -> ASGIApp:
    context = request.context
    place = context.take_stream(request.key)
    return EventStream(auditing.audit_frames(context.runtime, context.audit, context.options), place=place)


@operators_only
async def audit_why(request: ApiRequest) -> Response:
    context = request.context
    async with context.reading:
        found = await auditing.why(context.runtime, context.audit, str(request.path_params["call"]))
    return answer({"found": found.found, "sentence": found.sentence}, 200 if found.found else 404)


@operators_only
async def ledger(request: ApiRequest) -> Response:
    wanted = request.query_params.get("state") or None
    try:
        state = LedgerState(wanted) if wanted is not None else None
    except ValueError:
        raise HttpProblem(400, f'"state" must be one of {", ".join(LedgerState)}.') from None
    limit = number_in(request, "limit", 100, maximum=_MAX_ROWS)
    rows = await request.context.runtime.store.ledger_rows(state=state, limit=limit)
    return answer({"rows": [_row(row) for row in rows]})


@operators_only
async def settle(request: ApiRequest) -> Response:
    """A person has found out what became of a call whose outcome was not known."""
    context, key = request.context, str(request.path_params["key"])
    body = await read_object(request, context.options, ("state", "note"))
    if body.get("state") not in ("succeeded", "failed"):
        raise HttpProblem(400, '"state" must be "succeeded" or "failed".')
    state = LedgerState(body["state"])
    store = context.runtime.store
    row = await store.ledger_row(key)
    if row is None:
        raise HttpProblem(404, "The ledger has no such call.")
    meta = {
        "toolId": row.tool,
        "settledBy": request.key.traceless_name,
        "note": text_of(body, "note", maximum=_MAX_NOTE),
    }
    if state is LedgerState.SUCCEEDED:
        outcome = ToolResponse.success(None, meta=meta)
    else:
        outcome = ToolResponse.failure(ErrorType.PERMANENT, f'"{row.tool}" did not take effect.', meta=meta)
    settled = await store.settle(key, state=state, envelope=orjson.dumps(outcome.to_dict()).decode())
    if settled is None:
        raise HttpProblem(409, f"The call is {row.state.value}; only an unknown outcome can be settled.")
    context.runtime.audit.emit(
        "settled", {"ledgerKey": key, "ok": outcome.ok, "by": request.key.traceless_name, **meta}
    )
    return answer(_row(settled))


@operators_only
async def switch(request: ApiRequest) -> Response:
    """Switch a tool off with a reason, or on with null: everywhere, within a second."""
    context, tool = request.context, str(request.path_params["tool"])
    body = await read_object(request, context.options, ("off",))
    if "off" not in body or not (body["off"] is None or isinstance(body["off"], str)):
        raise HttpProblem(400, '"off" must be the reason why the tool is switched off, or null to switch it on.')
    reason = text_of(body, "off", maximum=200, required=True) if body["off"] is not None else None
    runtime = context.runtime
    try:
        runtime.registry.snapshot().tool(tool)
    except UsageError as error:
        raise HttpProblem(404, str(error)) from None
    await runtime.store.switch(tool, reason)
    # Others hear of it within a second. This process learns it at once, so that what it answers below is so.
    await runtime.housekeeper.learn()
    runtime.audit.emit("switch", {"toolId": tool, "off": reason, "by": request.key.traceless_name, "ok": True})
    return answer({"id": tool, "switchedOff": runtime.switches.get(tool)})


@operators_only
async def policy(request: ApiRequest) -> Response:
    rules = asdict(request.context.runtime.policy)
    rules["observe"] = sorted(rules["observe"])
    return answer(rules)


@operators_only
async def mcp_servers(request: ApiRequest) -> Response:
    """The MCP servers behind the gateway: state, pins, and what changed since they were taken."""
    gateway = request.context.runtime.services.opened.get(UPSTREAM_CAPABILITY)
    return answer({"servers": [] if gateway is None else await gateway.report()})


@operators_only
async def forget_user(request: ApiRequest) -> Response:
    context = request.context
    if context.forget is None:
        raise HttpProblem(503, "This server cannot delete a user's data.")
    tenant = request.query_params.get("tenant", "")
    try:
        return answer(await context.forget(tenant, str(request.path_params["user"])))
    except NotAllForgotten as error:
        raise HttpProblem(503, str(error), retry_after=5) from None


@operators_only
async def metrics(request: ApiRequest) -> Response:
    context = request.context
    found, voice = context.runtime.metrics, context.voice
    assert isinstance(found, Metrics)
    if "application/json" in request.headers.get("accept", ""):
        rest = {"voice": voice.metrics()} if voice is not None else {}
        figures = {"model": {"name": context.models.name, **context.models.to_json()}}
        return answer({**found.to_json(), "connections": context.connections.to_json(), **figures, **rest})
    text = found.to_prometheus() + context.connections.to_prometheus() + context.models.to_prometheus()
    text += voice.to_prometheus() if voice is not None else ""
    return Response(text, media_type=CONTENT_TYPE)


@operators_only
async def stats(request: ApiRequest) -> Response:
    """How tools were used, over all processes; what this one has counted is stored first."""
    query, runtime = request.query_params, request.context.runtime
    by = next((way for way in WAYS if way == query.get("by", "tool")), None)
    if by is None:
        raise HttpProblem(400, f'"by" must be one of {", ".join(WAYS)}.')
    try:
        since = first_day(query.get("since", "7d"), datetime.fromtimestamp(runtime.now(), UTC).date())
    except UsageError as error:
        raise HttpProblem(400, str(error)) from None
    if runtime.usage is not None:
        await runtime.usage.store(runtime.store.usage)
    rows = await runtime.store.usage.rows(since=since, tool=query.get("tool") or None)
    found = await asyncio.to_thread(reports, rows, by)  # months of many tools take a while
    return answer({"since": since, "by": by, "rows": found})


def _row(row: LedgerRow) -> dict[str, Any]:
    return {
        "key": row.key,
        "state": row.state.value,
        "tool": row.tool,
        "sessionId": row.session_id,
        "turn": row.turn,
        "user": row.user,
        "args": orjson.loads(row.args),
        "createdAt": row.created_at,
        "finishedAt": row.finished_at,
        "envelope": orjson.loads(row.envelope) if row.envelope else None,
    }
