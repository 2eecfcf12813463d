"""The voice agent: begins spoken conversations in sessions. One per process; it keeps nothing of a conversation itself."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from handrail.agents.context_watch import ContextWatch
from handrail.agents.conversation import Conversation
from handrail.agents.policy import AgentPolicy
from handrail.agents.prompts import Prompt, Prompts
from handrail.agents.tool_selection import Picker, ToolSelection
from handrail.agents.tool_usage import ToolUsageRanking
from handrail.agents.voice.host_port import Abilities, VoiceError, VoiceListener, VoicePolicy
from handrail.agents.voice.live_tool_selection import LiveToolSelection
from handrail.agents.voice.spoken import Recogniser
from handrail.agents.voice.text_model_adapter import TextModelAdapter
from handrail.agents.voice.voice_session import VoiceSession
from handrail.contract.errors import HandrailError
from handrail.contract.live import LiveConfig, LiveConnection, LiveError, LiveModel
from handrail.contract.model import UserMessage
from handrail.providers.context_windows import context_window
from handrail.runtime.core import RuntimeCore
from handrail.runtime.session import Session

_LOG = logging.getLogger("handrail.agent")


class VoiceAgent:
    """`model` hears and speaks, or is a text model as a `TextModelAdapter`; `picker` chooses among many tools.

    With a `recogniser`, a spoken yes counts only if it hears one too.
    """

    def __init__(
        self,
        runtime: RuntimeCore,
        model: LiveModel,
        *,
        policy: VoicePolicy | None = None,
        agent_policy: AgentPolicy | None = None,
        prompts: Prompts | None = None,
        picker: Picker | None = None,
        recogniser: Recogniser | None = None,
    ) -> None:
        self.runtime = runtime
        self.model = model
        self.policy = policy or VoicePolicy()
        self.recogniser = recogniser
        self.agent_policy = agent_policy or AgentPolicy()
        self.tool_selection = ToolSelection(
            prompts or Prompts.load(guide_tokens=self.agent_policy.guide_tokens),
            self.agent_policy,
            picker,
            ToolUsageRanking(runtime),
        )

    async def begin(
        self,
        session: Session,
        conversation: Conversation,
        listener: VoiceListener,
        *,
        abilities: Abilities | None = None,
    ) -> VoiceSession:
        """The session speaks from here on; `VoiceError` with a sentence if it cannot, and then nothing has changed."""
        _check(session)
        await self._take(conversation)
        # The mode is set first, because the tools and limits that the model is offered depend on it.
        before = session.mode
        try:
            await session.set_mode("voice")
            await conversation.catch_up(session, session.turn.number if session.turn is not None else 0)
            connection, prompt = await self._connect(session, conversation)
            try:
                # A connection of its own: calls that the text model made before must not run beside those of voice.
                if await self.runtime.resume_session(session.id, token=session.token) is not session:
                    raise _taken_over()
            except BaseException:
                await connection.close()
                raise
        except BaseException as error:
            conversation.lock.release()
            if session.is_active and not session.is_taken_over:
                await session.set_mode(before)
            if isinstance(error, HandrailError) and not isinstance(error, VoiceError):
                raise VoiceError(str(error), code="refused", retryable=True) from error
            raise
        session.voice_open = True
        conversation.context = watch = ContextWatch(session.id, self._window(), self.runtime.metrics)
        if not self.model.output_rate:  # a live provider counts by itself; a text model may not
            watch.used(prompt.prompt_tokens + prompt.declaration_tokens + conversation.tokens())
        voice = VoiceSession(
            self.runtime,
            session,
            conversation,
            listener,
            connection,
            model=self.model,
            policy=self.policy,
            max_rounds=self.agent_policy.rounds + self.agent_policy.late_rounds,
            abilities=abilities or Abilities(),
            recogniser=self.recogniser,
            offer=self._offer(session, conversation, connection, prompt),
        )
        voice.start()
        return voice

    async def _take(self, conversation: Conversation) -> None:
        """Nobody else writes into the conversation while it is spoken; an answer that is being written may end first."""
        try:
            async with asyncio.timeout(self.policy.connect_seconds):
                await conversation.lock.acquire()
        except TimeoutError:
            message = "The session is still answering a message; wait for the answer, or cancel it."
            raise VoiceError(message, code="busy", retryable=True) from None

    def _offer(
        self, session: Session, conversation: Conversation, connection: LiveConnection, prompt: Prompt
    ) -> LiveToolSelection:
        async def choose(words: str, kept: Sequence[str]) -> Prompt:
            return (await self._prompt(session, conversation, words, kept))[0]

        return LiveToolSelection(choose, conversation, connection, prompt, can_follow=self.model.changes_tools)

    async def _connect(self, session: Session, conversation: Conversation) -> tuple[LiveConnection, Prompt]:
        asked = [message.text for message in conversation.messages[-12:] if isinstance(message, UserMessage)]
        query = " ".join([*asked[-3:], session.state.get("pendingMessage") or ""]).strip()
        prompt, time_zone = await self._prompt(session, conversation, query)
        self._count(session, prompt)
        facts = {"mode": session.mode, "user": session.user or "", "time_zone": time_zone}
        slow = session.limits.turn_ms
        config = LiveConfig(
            system=prompt.text,
            tools=prompt.declarations,
            # While a tool runs that takes longer than a turn may, a provider that can lets the model speak on.
            background=frozenset(
                tool.tool_id
                for tool in session.snapshot.by_mode["voice"]
                if slow is not None and tool.definition.latency_budget_ms > slow
            ),
            history=tuple(conversation.live_history(self.agent_policy.history_tokens)),
            voice=self.policy.voice or None,
            language=self.policy.language or None,
            facts=facts,
        )
        try:
            async with asyncio.timeout(self.policy.connect_seconds):
                return await self.model.connect(config), prompt
        except TimeoutError:
            message = f"The voice model did not answer within {self.policy.connect_seconds:g} seconds."
            raise VoiceError(message, code="provider", retryable=True) from None
        except LiveError as error:
            raise VoiceError(str(error), code="provider", retryable=error.retryable) from None

    async def _prompt(
        self, session: Session, conversation: Conversation, query: str, kept: Sequence[str] = ()
    ) -> tuple[Prompt, str]:
        """The prompt for what was said, and for what waits to be answered; and the time zone."""
        zone, name = self._zone(conversation)
        now = datetime.fromtimestamp(self.runtime.clock.time(), zone)
        changes = self.model.changes_tools
        prompt = await self.tool_selection.live_prompt(
            session, self.model.provider, query, conversation.offered, now, name, changes_tools=changes, kept=kept
        )
        return prompt, name

    def _window(self) -> Callable[[], int | None]:
        """What gives the model's context window. Only a text model may learn it with its answers."""
        model, configured = self.model, self.agent_policy.context_window
        if isinstance(model, TextModelAdapter) and not configured:
            return lambda: model.context_window
        known = configured or context_window(model.provider, model.name)
        return lambda: known

    def _zone(self, conversation: Conversation) -> tuple[ZoneInfo, str]:
        for name in (conversation.time_zone, self.agent_policy.time_zone):
            try:
                return ZoneInfo(name), name
            except (ZoneInfoNotFoundError, ValueError, OSError):
                continue
        return ZoneInfo("UTC"), "UTC"

    def _count(self, session: Session, prompt: Prompt) -> None:
        tell = getattr(self.runtime.metrics, "context", None)
        if tell is not None:
            tell(prompt.prompt_tokens, prompt.declaration_tokens)
        _LOG.info(
            "Voice in session %s starts with %d tokens of prompt and %d of declarations (%d tools)",
            session.id,
            prompt.prompt_tokens,
            prompt.declaration_tokens,
            len(prompt.declarations),
        )


def _check(session: Session) -> None:
    if not session.is_active:
        raise VoiceError("The session has ended; open a new one.", code="session_ended")
    if session.is_taken_over:
        raise _taken_over()
    left = session.blocked_for()
    if left > 0:
        raise VoiceError(f"This conversation is paused for another {left:.0f} seconds.", code="blocked")


def _taken_over() -> VoiceError:
    return VoiceError("The session continues in another connection.", code="stale", retryable=True)
