"""A conversation on a terminal: a line, a turn, and the questions that only the person may answer."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from contextlib import aclosing, suppress
from typing import Any

from handrail.agents import AgentEvent, Conversation, TextAgent
from handrail.cli.chat_lines import MAX_TIMES, Lines
from handrail.cli.chat_screen import JsonScreen, Screen
from handrail.cli.terminal_input import DROPPED, MORE_CAME, NOT_ASKED, is_yes
from handrail.contract.errors import ErrorType, UsageError
from handrail.runtime.confirmation import REPLACED_MARK
from handrail.runtime.session import Session
from handrail.standard_runtime import Runtime

_LEAVING = frozenset({"/quit", "/exit", "/q", "quit", "exit"})


class TerminalChat:
    """One session at one terminal. Nothing of it is kept."""

    def __init__(
        self,
        runtime: Runtime,
        agent: TextAgent,
        session: Session,
        screen: Screen,
        lines: Lines,
        *,
        approve_all: bool = False,
    ) -> None:
        self._runtime = runtime
        self._agent = agent
        self._session = session
        self._screen = screen
        self._lines = lines
        self._approve_all = approve_all
        self._conversation = Conversation(time_zone=agent.policy.time_zone)
        self._waiting: dict[str, Mapping[str, Any]] = {}
        """Confirmations that wait for the person, with their tokens."""
        self._closed: set[str] = set()
        self._announced: set[str] = set()
        """Those of them of which was said already that nobody here can be asked."""
        self._turn: asyncio.Task[bool] | None = None
        self._leaving = asyncio.Event()
        self._number = 0

    async def run(self) -> int:
        """Until the input ends or the person leaves. 1 if the last turn ended in an error."""
        loop = asyncio.get_running_loop()
        with suppress(NotImplementedError, ValueError, RuntimeError):  # not on every system, not in every thread
            loop.add_signal_handler(signal.SIGINT, self._interrupted)
        well = True
        try:
            if self._lines.terminal:
                self._screen.note(
                    'Type a message. Ctrl-C cancels an answer; at the prompt it leaves, as "exit" and Ctrl-D do.'
                )
            while (line := await self._next("you> ")) is not None:
                if line.strip() in _LEAVING:
                    break
                if line.strip():
                    well = await self._said(line)
            self._name_what_is_open()
        finally:
            with suppress(NotImplementedError, ValueError, RuntimeError):
                loop.remove_signal_handler(signal.SIGINT)
        return 0 if well else 1

    def _interrupted(self) -> None:
        """Ctrl-C: the turn that runs is cancelled; without one, or once more while it ends, it is time to leave."""
        running = self._turn if self._turn is not None and not self._turn.done() else None
        if running is not None and not running.cancelling():
            running.cancel()
            return
        if self._leaving.is_set():
            os._exit(130)  # a third time: as if killed. What was written down stays, and nothing runs twice
        self._leaving.set()
        if running is not None:
            self._screen.note("(leaving when the call that runs has ended; Ctrl-C once more does not wait)")

    async def _next(self, question: str) -> str | None:
        """The next line; None if there is none, or the person leaves."""
        if self._lines.terminal:
            self._screen.ask(question)
        line = asyncio.ensure_future(self._lines.next())
        leaving = asyncio.ensure_future(self._leaving.wait())
        done, _ = await asyncio.wait({line, leaving}, return_when=asyncio.FIRST_COMPLETED)
        leaving.cancel()
        if line not in done or self._leaving.is_set():
            line.cancel()
            self._screen.note("")
            return None
        return line.result()

    async def _said(self, line: str) -> bool:
        takes_commands = isinstance(self._screen, JsonScreen)
        command = _command(line) if takes_commands else None
        if command is None and takes_commands and line.lstrip().startswith("{"):
            self._screen.note(
                'A line that begins with { is a command, and this one is no JSON; nothing was sent. {"text": …} says it.'
            )
            return False
        if command is not None and not _is_said(command.get("text")):
            return await self._commanded(command)
        self._number += 1
        text = line if command is None else str(command["text"])
        events = self._agent.run(self._session, self._conversation, text, message_id=f"chat-{self._number}")
        well = await self._play(events)
        if not isinstance(self._screen, JsonScreen) or self._approve_all:
            await self._ask_person()
        return well

    async def _play(self, events: AsyncGenerator[AgentEvent, None]) -> bool:
        """Show a turn to its end, or to Ctrl-C."""
        self._turn = asyncio.ensure_future(self._show(events))
        try:
            return await self._turn
        except asyncio.CancelledError:
            if not self._turn.cancelled():
                raise
            self._screen.note("(cancelled)")
            return False
        except UsageError as error:
            self._screen.note(str(error))
            return False
        finally:
            self._turn = None

    async def _show(self, events: AsyncGenerator[AgentEvent, None]) -> bool:
        async with aclosing(events):
            return await self._show_all(events)

    async def _show_all(self, events: AsyncIterable[AgentEvent]) -> bool:
        well = True
        async for event in events:
            if event.type == "confirmation":
                if self._is_old(event.data):
                    continue
                event = self._wants(event.data)
            elif event.type == "confirmation_closed":
                self._waiting.pop(event.data["id"], None)
                self._closed.add(event.data["id"])
            well = well and event.type != "error"
            self._screen.show(event)
        return well

    def _is_old(self, asked: Mapping[str, Any]) -> bool:
        """Whether this was shown before, or is over: the session's events wait for whoever listens next."""
        known = self._waiting.get(asked["id"])
        told = ("preview", "replacedBy")
        return asked["id"] in self._closed or (known is not None and all(known[name] == asked[name] for name in told))

    def _wants(self, asked: Mapping[str, Any]) -> AgentEvent:
        """Keep a request that waits. Shown anew, it has the next number: an answer to what was shown before is none."""
        before = self._waiting.get(asked["id"])
        shown = {**asked, "showing": before["showing"] + 1 if before is not None else 1}
        self._waiting[asked["id"]] = shown
        self._announced.discard(asked["id"])
        return AgentEvent("confirmation", shown)

    async def _ask_person(self) -> None:
        """What waits is put to the person: this is the user's own channel."""
        for asked in list(self._waiting.values()):
            if self._approve_all:
                for _ in range(MAX_TIMES):
                    if not await self._decided(asked, approved=True):
                        break
                    asked = self._waiting[asked["id"]]
            elif self._lines.terminal:
                if not await self._ask(asked):
                    return
            elif asked["id"] not in self._announced:
                self._screen.note(str(asked["preview"]))
                self._screen.note("It waits for a person, and nobody can be asked here.")
                self._announced.add(asked["id"])

    async def _ask(self, asked: Mapping[str, Any]) -> bool:
        """Put one request to the person, anew if its facts change before the answer; False if they leave."""
        while True:
            shown = await self._runtime.show(asked["id"], token=asked["token"])
            if shown is None:
                self._waiting.pop(asked["id"], None)
                self._screen.note(f"The request for {asked['tool']} is closed: it was answered, or its time is over.")
                return True
            if shown["replacedBy"] is not None:
                self._screen.note(REPLACED_MARK)
            self._screen.note(str(shown["preview"]))
            is_quiet, has_dropped = await self._lines.drop_until_quiet()
            if has_dropped:
                self._screen.note(DROPPED)
            if not is_quiet:
                self._screen.note(NOT_ASKED)
                await self._decided(shown, approved=False)
                return True
            answer = await self._next("Run it? [y/N] ")
            if answer is None:
                return False
            if is_yes(answer) and await self._lines.more_follows():
                self._screen.note(MORE_CAME)
                continue
            if not await self._decided(shown, approved=is_yes(answer)):
                return True

    def _name_what_is_open(self) -> None:
        """Said at the end: whoever piped a "y" may believe that they have decided."""
        for asked in self._waiting.values():
            self._screen.note(
                f"Not decided, and not run: {asked['tool']}, request {asked['id']}. It ends with this conversation. "
                "To decide, say it again on a terminal, which asks; or with `--yes`, which approves; or with `--json`, and "
                'answer the request with {"approve": ID} or {"decline": ID} while the input is open.'
            )

    async def _commanded(self, command: Mapping[str, Any]) -> bool:
        for name in ("approve", "decline"):
            asked = self._waiting.get(str(command.get(name)))
            if name not in command or asked is None:
                continue
            if name == "approve" and command.get("showing", 1) != asked["showing"]:
                self._screen.note(
                    f'This request was shown anew, because it has changed; add "showing": {asked["showing"]} to approve that.'
                )
                return False
            await self._decided(asked, approved=name == "approve")
            return True
        self._screen.note(
            'A command is {"text": …} with text that is not blank, or {"approve": ID} or {"decline": ID} with the id of an'
            " open request."
        )
        return False

    async def _decided(self, asked: Mapping[str, Any], *, approved: bool) -> bool:
        """Carry out the answer; whether the person has to be asked anew, because the request is not what was shown any more."""
        if approved:
            via = "--yes" if self._approve_all else "terminal"
            answer = await self._runtime.approve(asked["id"], token=asked["token"], via=via)
        else:
            answer = await self._runtime.decline(asked["id"], token=asked["token"])
        if answer.error is not None and answer.error.type is ErrorType.CONFIRMATION_REQUIRED:
            self._screen.note(answer.error.message)
            shown = await self._runtime.show(asked["id"], token=asked["token"])
            if shown is not None:
                self._screen.show(self._wants(shown))
                return True
        self._waiting.pop(asked["id"], None)
        self._closed.add(asked["id"])
        envelope = answer.to_dict()
        told = {"callId": None, "toolId": asked["tool"], "envelope": envelope, "confirmationId": asked["id"]}
        late = self._agent.late(self._session, self._conversation, told)
        self._turn = asyncio.ensure_future(self._show_late(late))
        with suppress(asyncio.CancelledError):
            await self._turn
        self._turn = None
        return False

    async def _show_late(self, late: Any) -> bool:
        try:
            return await self._show_all(late)
        finally:
            await late.aclose()


def _is_said(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


def _command(line: str) -> dict[str, Any] | None:
    """A line that is a JSON object; None if it is only text."""
    if not line.lstrip().startswith("{"):
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
