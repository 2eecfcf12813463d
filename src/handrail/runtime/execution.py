"""Step 15: the handler runs, with its context, its deadline and, where policy and tool allow it, a second try."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType, ToolError
from handrail.contract.ports import Clock
from handrail.runtime.attempt import Attempt
from handrail.runtime.context import Context
from handrail.runtime.outcome import BadResult, checked_result, failure_of, without_retry
from handrail.runtime.runner import DeadlinePassed, NotStarted, Runner, Started

_MAX_BACKOFF_SECONDS = 0.2


class Execution:
    """Runs the handlers of one runtime, and turns whatever they do into an envelope."""

    __slots__ = ("_capabilities", "_clock", "_log", "_runner", "jitter")

    def __init__(
        self,
        runner: Runner,
        capabilities: Mapping[str, Any],
        clock: Clock,
        jitter: Callable[[], float],
        log: logging.Logger,
    ) -> None:
        self._runner = runner
        self._capabilities = capabilities
        self._clock = clock
        self.jitter = jitter
        self._log = log

    def context(self, attempt: Attempt, idempotency_key: str | None = None) -> Context:
        """What the handler is given. For a writing call the idempotency key is that of the ledger."""
        return Context(attempt, self._capabilities, idempotency_key or attempt.key)

    def start(self, attempt: Attempt, context: Context) -> Started:
        """What came of the handler's first step."""
        return self._runner.start(attempt, context)

    async def call_hook(self, hook: Callable[..., Any], args: Any, attempt: Attempt, seconds: float) -> Any:
        """What a tool's `preview` or `reconcile` returns; `TimeoutError` after this time."""
        return await self._runner.call_hook(hook, args, self.context(attempt), seconds)

    async def run(self, attempt: Attempt, context: Context, first: Started | None = None) -> tuple[ToolResponse, bytes]:
        """The handler's envelope and its data as JSON. `first` is what `start` gave, where that was done already."""
        retries = attempt.session.limits.retries if attempt.plan.definition.idempotent else 0
        attempts = 1
        while True:
            response, raw = await self._run_once(attempt, first or self._runner.start(attempt, context))
            error = response.error
            if error is None or attempts > retries or error.type is not ErrorType.TRANSIENT or not error.retryable:
                break
            await self._clock.sleep(self.jitter() * _MAX_BACKOFF_SECONDS)
            attempts += 1
            first = attempt.intents = None
        if attempts > 1:
            response = response.with_meta(attempts=attempts)
        if attempt.intents and response.ok:
            response = response._replace(intents=(*response.intents, *attempt.intents))
        return response, raw

    async def _run_once(self, attempt: Attempt, started: Started) -> tuple[ToolResponse, bytes]:
        plan = attempt.plan
        done, returned = started
        try:
            response, raw = checked_result(returned if done else await returned, plan.tool)
            if response.error is not None and attempt.session.mode == "voice":
                response = response._replace(error=without_retry(response.error))
            return response, raw
        except DeadlinePassed as error:
            return self._too_late(attempt, started=not isinstance(error, NotStarted)), b""
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if not attempt.interrupted or task is None:
                raise
            task.uncancel()
            message = f'"{plan.tool_id}" was cancelled because the user interrupted.'
            return ToolResponse(False, None, ToolFailure(ErrorType.CANCELLED, message, True)), b""
        except Exception as error:  # noqa: BLE001  # an author's code may raise anything
            return self._failed(attempt, error), b""

    def _too_late(self, attempt: Attempt, *, started: bool) -> ToolResponse:
        plan = attempt.plan
        message = f'"{plan.tool_id}" did not finish within {plan.timeout * 1000:g} ms.'
        if not started:
            message = f'"{plan.tool_id}" could not be started within {plan.timeout * 1000:g} ms: all workers are busy.'
            self._log.warning("%s", message)
        unsafe = plan.effects == "unsafe" and started
        if attempt.write is not None:
            attempt.write.uncertain = unsafe
        return ToolResponse(False, None, ToolFailure(ErrorType.TIMEOUT, message, not unsafe, unsafe))

    def _failed(self, attempt: Attempt, error: Exception) -> ToolResponse:
        failure = failure_of(error, attempt.plan.definition, voice=attempt.session.mode == "voice")
        if not isinstance(error, ToolError):
            if attempt.write is not None:
                attempt.write.uncertain = not isinstance(error, BadResult)
            self._log.error("The handler of %s failed", attempt.plan.tool_id, exc_info=error)
        # A result that cannot be used is not a failed effect: the ledger keeps that it happened.
        meta = {"resultUnavailable": True} if isinstance(error, BadResult) else {}
        return ToolResponse(False, None, failure, (), meta)
