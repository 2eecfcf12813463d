"""Settling an unknown outcome by the tool's own `reconcile(args, ctx)`: it looks at the service and says what happened."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import orjson

from handrail.contract.call import Call
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import UsageError
from handrail.contract.store import LedgerRow, LedgerState
from handrail.runtime.call_attempt import Attempt
from handrail.runtime.context import Context
from handrail.runtime.execution import ResultRules, checked_result, settled_result

if TYPE_CHECKING:
    from handrail.runtime.core import RuntimeCore


async def reconcile(core: RuntimeCore, row: LedgerRow) -> LedgerRow:
    """The row as it then is. A tool that still does not know (`None`) leaves it unknown; nothing is ever run again."""
    tool = core.registry.snapshot().get(row.tool)
    if tool is None or tool.handler.reconcile is None:
        raise UsageError(f'"{row.tool}" has no `reconcile`; settle the call by hand with `--as`.')
    session = await core.detached_session(row.session_id)
    if session is None:
        raise UsageError(
            f"The session of the call {row.key[:12]} is no longer kept; settle the call by hand with `--as`."
        )
    plan = session.plans[row.tool]
    assert plan is not None
    attempt = Attempt(session, Call(name=row.tool), plan, session.enter_turn(row.turn, perf_counter()), perf_counter())
    attempt.args = orjson.loads(row.args)
    elapsed = (await core.store.now() - row.created_at) / 1000
    context = Context(attempt, core.execution.capabilities, row.key, since_deadline=elapsed - plan.timeout)
    returned = await core.runner.call_hook(tool.handler.reconcile, attempt.args, context, plan.timeout)
    if returned is None:
        return row
    response, _ = settled_result(*checked_result(returned, ResultRules.of(tool)), attempt)
    answer = ToolResponse(
        response.ok, response.data, response.error, response.intents, {**response.meta, "toolId": row.tool}
    )
    state = LedgerState.SUCCEEDED if answer.ok else LedgerState.FAILED
    settled = await core.store.settle(row.key, state=state, envelope=orjson.dumps(answer.to_dict()).decode())
    core.audit.emit("settled", {"ledgerKey": row.key, "toolId": row.tool, "ok": answer.ok, "by": "reconcile"})
    return settled or row
