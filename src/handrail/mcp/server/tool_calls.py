"""`tools/call` from the request to its result: the governed call, what its handler asks meanwhile, a person's confirmation,
a task.

`run` reads as the way of a call: begin it or continue with one that waits for its client, wait for what comes first, then
answer with that: the result, questions, or a task.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import orjson
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, MISSING_REQUIRED_CLIENT_CAPABILITY

from handrail.contract.documents import Document
from handrail.contract.envelope import ToolResponse
from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.store import StoreUnavailable
from handrail.mcp.server.client_confirmations import QUESTION, ClientConfirmations, held_id
from handrail.mcp.server.governed_calls import CallKey, GovernedCalls, turn_in
from handrail.mcp.server.live_calls import TASKS, LiveCall, RequestContext, abilities, is_modern
from handrail.mcp.server.options import McpOptions, Principal
from handrail.mcp.server.results import Results
from handrail.mcp.server.sealer import Sealer
from handrail.mcp.server.tasks import TERMINAL, Tasks, key_of
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

_KEPT_SECONDS = 300.0
"""How long a call that has ended can still be asked for by a retry with its state."""
_MAX_LIVE = 10_000
_MAX_ANSWERS = 16_384
_ASK_TIMES = 3
_LOOK_SECONDS = 0.5
"""How often a running task is looked at for what came to another process."""


class Written(Protocol):
    """Told when the answer to a request was written to an open connection."""

    def __call__(self, ctx: RequestContext, key: CallKey) -> None: ...


@dataclass(frozen=True, slots=True)
class CallRequest:
    """What a client asks to be called, of whichever method."""

    ctx: RequestContext
    who: Principal
    method: str
    name: str
    args: Any
    responses: Mapping[str, Any]
    state: str | None

    @property
    def binding(self) -> str:
        """What a sealed state belongs to: the same tool with the same arguments."""
        try:
            body = json.dumps(self.args, sort_keys=True)  # which knows numbers of more than 64 bits
        except RecursionError:  # such a call was never made
            raise MCPError(code=INVALID_PARAMS, message="The requestState belongs to another request.") from None
        return f"{self.method}:{self.name}:{sha256(body.encode()).hexdigest()}"


@dataclass(frozen=True, slots=True)
class EndedCall:
    """The call has its envelope."""

    response: ToolResponse
    session_id: str
    blocks: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True)
class InterimResult:
    """The request ends, the call does not: questions to the client, or a task."""

    result: dict[str, Any]


class McpToolCalls:
    """Carries out the calls of all clients."""

    def __init__(self, runtime: RuntimeCore, options: McpOptions, written: Written) -> None:
        store = runtime.store
        self._runtime = runtime
        self._options = options
        self._written = written
        self.governed = GovernedCalls(runtime)
        self.results = Results(store, options)
        self.tasks = Tasks(store, options, runtime.owner)
        self._confirmations = ClientConfirmations(runtime, options)
        self._sealer = Sealer(store, max(options.keep_seconds, 600))
        self._live: dict[str, tuple[LiveCall, CallKey]] = {}
        self._background: set[asyncio.Task[Any]] = set()

    async def run(self, request: CallRequest) -> EndedCall | InterimResult:
        """See the module's docstring."""
        _check_answers(request.responses)
        if request.state is not None:
            # The state comes from the client. It is sealed for this user and these arguments, so that nobody else's call can be
            # continued with it.
            facts = await self._sealer.open(request.who, request.binding, request.state)
            if "hold" in facts:
                return await self._answered(request, facts)
            # Where the process that asked is gone, the call is begun anew under its key, with the answers that were given so
            # far.
            known = self._live.get(facts["call"])
            if known is not None:
                live, key = known
                live.attach(request.ctx)
                live.answer(request.responses)
                return await self._settled(request, live, key, facts.get("answers"))
            return await self._begin(request, {**facts.get("answers", {}), **request.responses})
        return await self._begin(request, request.responses)

    async def _begin(self, request: CallRequest, answers: Mapping[str, Any]) -> EndedCall | InterimResult:
        session = await self.governed.session(request.who)
        self._check_task_support(request)
        turn = turn_in(request.ctx.meta)
        key = await self.governed.key_of(request.who, session, request.name, request.args, turn)
        call_id = f"mcp_{secrets.token_hex(8)}"
        # A call of which nothing can come in between is not worth a task of its own, which costs more than the call.
        if self._is_plain(request, session):
            response = await self.governed.call(request.who, key, request.name, request.args, call_id)
            return await self._ended(request, key, response, call_id)
        live = LiveCall(call_id, request.ctx, answers)
        self._start(request.who, live, key, session, request.name, request.args)
        return await self._settled(request, live, key, answers)

    def _is_plain(self, request: CallRequest, session: Session) -> bool:
        """Whether nothing can come between the call and its answer: then it needs no task of its own."""
        plan = session.plans[request.name]
        if plan is None:
            return True
        meta = request.ctx.meta
        wants_progress = meta is not None and meta.get("progress_token", meta.get("progressToken")) is not None
        return not (wants_progress or "client" in plan.definition.capabilities or "tasks" in abilities(request.ctx))

    def _start(self, who: Principal, live: LiveCall, key: CallKey, session: Session, name: str, args: Any) -> None:
        if session.clients is None:
            session.clients = {}
        clients = session.clients
        clients[live.call_id] = live
        self._live[live.call_id] = (live, key)
        # The oldest is only no longer found by its client; it runs to its end.
        if len(self._live) > _MAX_LIVE:
            del self._live[next(iter(self._live))]
        live.start(self.governed.call(who, key, name, args, live.call_id))
        assert live.task is not None
        loop = asyncio.get_running_loop()

        def ended(_: object) -> None:
            clients.pop(live.call_id, None)
            # A client may come back with answers just after the call has ended, and is to find its outcome.
            if live.is_named:
                loop.call_later(_KEPT_SECONDS, self._live.pop, live.call_id, None)
            else:  # nobody knows it by its id, and it would take the place of one that waits
                self._live.pop(live.call_id, None)

        live.task.add_done_callback(ended)

    async def _settled(
        self, request: CallRequest, live: LiveCall, key: CallKey, answers: Mapping[str, Any] | None
    ) -> EndedCall | InterimResult:
        """Wait for what comes first."""
        as_task = "tasks" in live.can
        assert live.task is not None
        try:
            while not live.is_done:
                # The task first: a call that is one does not hold the request open for its questions.
                if live.deferred and as_task:
                    return await self._made_task(request, live, key)
                if live.questions and is_modern(request.ctx):
                    return await self._asked(request, live, answers)
                await live.changed(self._options.task_seconds if as_task else None)
        except asyncio.CancelledError:
            # The client has gone. What only reads stops; a write that has started is finished and recorded.
            live.task.cancel()
            raise
        await live.detach()
        response = live.task.result()
        if live.missing is not None and response.error is not None and is_modern(request.ctx):
            raise _missing({live.missing: {}}, response.error.message)
        return await self._ended(request, key, response, live.call_id, live.blocks)

    async def _asked(self, request: CallRequest, live: LiveCall, answers: Mapping[str, Any] | None) -> InterimResult:
        live.is_named = True
        await live.detach()
        given = {**(answers or {}), **request.responses}
        # The state travels with the client. Answers that are too many are asked for again.
        if len(orjson.dumps(given)) > _MAX_ANSWERS:
            given = {}
        state = await self._sealer.seal(request.who, request.binding, {"call": live.call_id, "answers": given})
        return InterimResult(
            {"resultType": "input_required", "inputRequests": dict(live.questions), "requestState": state},
        )

    # What a call ends in

    async def _ended(
        self,
        request: CallRequest,
        key: CallKey,
        response: ToolResponse,
        call_id: str,
        blocks: Sequence[Mapping[str, Any]] = (),
    ) -> EndedCall | InterimResult:
        hold_id = held_id(response)
        if hold_id is None:
            self._written(request.ctx, key)
            return EndedCall(response, key.session_id, blocks)
        can = abilities(request.ctx)
        # A client shows the question to a model as easily as to a person; only one that the host trusts is asked.
        if self._confirmations.may_ask(request.who, can):
            return await self._confirm(request, key, response, hold_id)
        self._written(request.ctx, key)
        linked = self._confirmations.with_link(response, hold_id)
        if "tasks" in can and request.method == "tools/call":
            task = await self.tasks.create(request.who, key, request.name, request.args, call_id, hold_id=hold_id)
            assert linked.error is not None
            task = await self.tasks.change(task, message=linked.error.message)
            return InterimResult({"resultType": "task", **self.tasks.described(task, detailed=False)})
        return EndedCall(linked, key.session_id)

    async def _confirm(
        self, request: CallRequest, key: CallKey, response: ToolResponse, hold_id: str
    ) -> EndedCall | InterimResult:
        """Ask the person through their client, which is trusted to be theirs."""
        # Facts may change while the person reads; then what is shown anew has to be answered anew.
        for _ in range(_ASK_TIMES):
            asked = await self._confirmations.question(hold_id)
            if asked is None:
                break
            question, token = asked
            if is_modern(request.ctx):
                facts = {"hold": hold_id, "token": token, **_facts_of(key)}
                state = await self._sealer.seal(request.who, request.binding, facts)
                return InterimResult(
                    {"resultType": "input_required", "inputRequests": {QUESTION: question}, "requestState": state}
                )
            try:
                answer = (await LiveCall("", request.ctx).ask({QUESTION: question}))[QUESTION]
            except ToolError:  # the client took the question and gave no answer: a person finds the link instead
                break
            decided = await self._confirmations.decide(request.who, hold_id, token, answer)
            if decided is None:
                break
            if held_id(decided) is None:
                self._written(request.ctx, key)
                return EndedCall(decided, key.session_id)
            response, hold_id = decided, held_id(decided) or hold_id
        self._written(request.ctx, key)
        return EndedCall(self._confirmations.with_link(response, hold_id), key.session_id)

    async def _answered(self, request: CallRequest, facts: Mapping[str, Any]) -> EndedCall | InterimResult:
        """A retry brings the person's answer to a confirmation."""
        hold_id = facts["hold"]
        key = await self.governed.key_again(facts["input"], facts["session"], facts["document"])
        answer = request.responses.get(QUESTION)
        decided = await self._confirmations.decide(
            request.who, hold_id, facts["token"], answer if isinstance(answer, Mapping) else None
        )
        if decided is None:
            # Not answered: the same call again, whose request is still open.
            response = await self.governed.call(
                request.who, key, request.name, request.args, f"mcp_{secrets.token_hex(8)}"
            )
            again = held_id(response)
            if again is None or isinstance(answer, Mapping):
                self._written(request.ctx, key)
                linked = response if again is None else self._confirmations.with_link(response, again)
                return EndedCall(linked, key.session_id)
            return await self._confirm(request, key, response, again)
        again = held_id(decided)
        if again is not None:
            return await self._confirm(request, key, decided, again)
        self._written(request.ctx, key)
        return EndedCall(decided, key.session_id)

    # Tasks

    def _check_task_support(self, request: CallRequest) -> None:
        if request.name in self._options.task_tools and "tasks" not in abilities(request.ctx):
            said = f'"{request.name}" runs as a task; this client did not declare that it knows tasks.'
            raise _missing({"extensions": {TASKS: {}}}, said)

    async def _made_task(self, request: CallRequest, live: LiveCall, key: CallKey) -> InterimResult:
        live.is_named = True
        task = await self.tasks.create(request.who, key, request.name, request.args, live.call_id)
        self._follow(request.who, task, live)  # also where the client goes away in the next line
        await live.detach()
        self._written(request.ctx, key)
        return InterimResult({"resultType": "task", **self.tasks.described(task, detailed=False)})

    def _follow(self, who: Principal, task: Document, live: LiveCall) -> None:
        """Store the outcome of a task's call when it has one."""

        async def follow() -> None:
            assert live.task is not None
            while not live.task.done():
                # Another process may have taken an answer or a cancellation for it, which only the store can bring here.
                await asyncio.wait([live.task], timeout=_LOOK_SECONDS)
                if not live.task.done():
                    await self._synchronise_task(task.id, live)
            if live.task.cancelled():
                response = ToolResponse.failure(ErrorType.CANCELLED, "The task was cancelled.")
            else:
                response = live.task.result()
            await self._settle_task(who, task, response, live.blocks)

        running = asyncio.get_running_loop().create_task(follow())
        self._background.add(running)
        running.add_done_callback(self._background.discard)

    async def _synchronise_task(self, task_id: str, live: LiveCall) -> None:
        """What came to another process for a call of ours, and what that one has to know to answer its client."""
        try:
            stored = await self.tasks.read(task_id)
            if stored is None or stored.body["status"] in TERMINAL:
                return
            body = stored.body
            answers, is_cancelled = body.get("answers") or {}, body.get("cancel", False)
            questions = {name: one for name, one in live.questions.items() if name not in answers}
            is_changed = bool(answers) or is_cancelled or questions != body.get("questions", {})
            if is_changed and not await self.tasks.publish_questions(stored, questions):
                return  # the next look finds what came meanwhile
            live.answer(answers)
            if is_cancelled:
                await self._interrupt(live)
        except StoreUnavailable as error:
            self._runtime.log.warning("A task could not be looked at in the store: %s", error)

    async def _interrupt(self, live: LiveCall) -> None:
        """What only reads stops; a write that has started is finished and recorded."""
        known = self._live.get(live.call_id)
        session = self._runtime.sessions.get(known[1].session_id) if known is not None else None
        if session is not None:
            await self._runtime.interrupt(session, [live.call_id])

    async def _settle_task(
        self, who: Principal, task: Document, response: ToolResponse, blocks: Sequence[Mapping[str, Any]] = ()
    ) -> Document:
        hold_id = held_id(response)
        if hold_id is not None:
            linked = self._confirmations.with_link(response, hold_id)
            assert linked.error is not None
            return await self.tasks.change(task, hold=hold_id, message=linked.error.message)
        return await self.tasks.settle(
            task, response, await self.results.of(who, response, blocks, session=task.body["session"])
        )

    async def task(
        self, ctx: RequestContext, who: Principal, task_id: str, answers: Mapping[str, Any] | None = None
    ) -> tuple[Document, Mapping[str, Any]]:
        """A task as it is now, and what it asks its client. One whose process is gone is taken over, with these answers."""
        task = await self.tasks.find(who, task_id)
        if task.body["status"] in TERMINAL:
            return task, {}
        if task.body["hold"] is not None:
            outcome = await self._confirmations.outcome(task.body["hold"])
            if outcome is None:
                return task, {}
            await self._confirmations.outcome_delivered(task.body["hold"])
            return await self._settle_task(who, task, outcome), {}
        known = self._live.get(task.body["call"])
        if known is not None:
            return task, dict(known[0].questions)
        if await self.tasks.is_orphaned(task):
            # One process wins; the others show what it has made of it.
            adopted = await self.tasks.adopt(task)
            if adopted is not None:
                return await self._restart(ctx, who, adopted, answers), {}
            task = await self.tasks.find(who, task_id)
        return task, task.body.get("questions", {})

    async def _restart(
        self, ctx: RequestContext, who: Principal, task: Document, answers: Mapping[str, Any] | None
    ) -> Document:
        """The process that carried it out is gone: the same call under its first key."""
        key, body = key_of(task), task.body
        session = await self.governed.session_of(key)
        if session is None:
            gone = "The session of the first call has ended; its outcome is in the audit log."
            return await self._settle_task(who, task, ToolResponse.failure(ErrorType.CONFLICT, gone))
        live = LiveCall(body["call"], ctx, answers)
        live.is_named = True
        await live.detach()  # it is reached by the task alone
        self._start(who, live, key, session, body["tool"], body["args"])
        self._follow(who, task, live)
        return task

    async def update_task(
        self, ctx: RequestContext, who: Principal, task_id: str, responses: Mapping[str, Any]
    ) -> None:
        _check_answers(responses)
        task, _ = await self.task(ctx, who, task_id, responses)
        if task.body["status"] in TERMINAL or task.body["hold"] is not None:
            return  # nothing is asked any more
        known = self._live.get(task.body["call"])
        if known is not None:
            known[0].answer(responses)
        elif not await self.tasks.send_to_owner(task, answers=responses):
            raise _not_left()

    async def cancel_task(self, who: Principal, task_id: str) -> None:
        """What only reads stops; a held call is declined by nobody but a person, and its task ends all the same."""
        task = await self.tasks.find(who, task_id)
        if task.body["status"] in TERMINAL:
            return
        known = self._live.get(task.body["call"])
        if task.body["hold"] is not None:
            await self.tasks.change(task, status="cancelled")
        elif known is not None:
            await self._interrupt(known[0])
        elif await self.tasks.is_orphaned(task):
            said = "Cancelled after its server had ended. Whether it had run by then is in the audit log."
            await self.tasks.change(task, status="cancelled", message=said)
        elif not await self.tasks.send_to_owner(task, cancel=True):
            raise _not_left()

    async def close(self) -> None:
        """What waits for its client is cancelled; a write that has started is finished by the runtime."""
        for live, _ in list(self._live.values()):
            if live.task is not None and not live.task.done():
                live.task.cancel()
                self._background.add(live.task)
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        await self.governed.close()


def _check_answers(answers: Mapping[str, Any]) -> None:
    """They are kept until their call takes them."""
    try:
        orjson.dumps(answers)
    except TypeError:
        message = "An answer has a number of more than 64 bits, or is nested too deep."
        raise MCPError(code=INVALID_PARAMS, message=message) from None


def _not_left() -> MCPError:
    return MCPError(code=INTERNAL_ERROR, message="The task is changed by others at this moment; ask again.")


def _facts_of(key: CallKey) -> dict[str, str | None]:
    """What finds a key again that a client carries."""
    return {
        "input": key.input_id,
        "session": key.session_id,
        "document": key.document.id if key.document is not None else None,
    }


def _missing(capabilities: Mapping[str, Any], message: str) -> MCPError:
    return MCPError(
        code=MISSING_REQUIRED_CLIENT_CAPABILITY, message=message, data={"requiredCapabilities": dict(capabilities)}
    )


def unknown_tool(response: ToolResponse) -> MCPError:
    """The protocol's error for a tool that there is not, at least not for this principal."""
    assert response.error is not None
    return MCPError(code=INVALID_PARAMS, message=response.error.message)
