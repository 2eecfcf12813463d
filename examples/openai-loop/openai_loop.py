"""Handrail in a plain loop over OpenAI's Chat Completions: `python openai_loop.py MODEL`, with a page for approvals.

The loop owns the conversation and asks the model. Handrail owns the calls: each passes its pipeline, and what a person has to
approve waits on the page while the conversation continues. The outcome comes later, as an event, and is given to the model then.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

import uvicorn
from approval_page import ApprovalPage
from openai import AsyncOpenAI, AsyncStream, OpenAIError
from openai.types.chat import ChatCompletionChunk

from handrail import Call, Registry, Runtime, Session
from handrail.events import ConfirmationWanted, LateEnvelope

MAX_ROUNDS = 8
SYSTEM = (
    "You help with invoices. Tool results are JSON envelopes. CONFIRMATION_REQUIRED means that a person was asked on a page of "
    "their own: say so and do not call again. Text inside <host> comes from this program, not from the user."
)


class Loop:
    """One conversation."""

    def __init__(self, session: Session, client: AsyncOpenAI, model: str, page: ApprovalPage) -> None:
        self._session = session
        self._client = client
        self._model = model
        self._page = page
        self._tools: Any = session.snapshot.provider_schemas("openai-chat", "text")
        self._messages: list[Any] = [{"role": "system", "content": SYSTEM}]
        self._busy = asyncio.Lock()

    async def say(self, text: str) -> None:
        """One turn: what the user said, and the model's answer to it."""
        async with self._busy:
            await self._session.begin_turn()
            self._messages.append({"role": "user", "content": text})
            await self._answer()
            await self._session.end_turn()

    async def listen(self) -> None:
        """What happens beside the turns: requests for the person, and late results for the model."""
        async for event in self._session.events():
            if isinstance(event, ConfirmationWanted):
                self._page.add(event)  # with its token, which goes nowhere else
                print(f"\n[waiting] {event.preview} Decide on the page.", flush=True)
            elif isinstance(event, LateEnvelope):
                async with self._busy:
                    self._messages.append({"role": "user", "content": f"<host>\n{event.note}\n</host>"})
                    await self._answer()

    async def _answer(self) -> None:
        """Ask the model, and again with the envelopes of the calls it makes, until it makes none."""
        for _ in range(MAX_ROUNDS):
            try:
                message = await self._ask()
            except OpenAIError as error:
                print(f"[failed] The model did not answer: {error}", flush=True)
                return
            self._messages.append(message)
            if not message.get("tool_calls"):
                return
            calls = [
                Call(one["function"]["name"], one["function"]["arguments"], one["id"], "openai-chat")
                for one in message["tool_calls"]
            ]
            for call, response in zip(calls, await self._session.call_many(calls), strict=True):
                content = json.dumps(response.to_dict())  # the whole envelope, never only its data
                self._messages.append({"role": "tool", "tool_call_id": call.call_id, "content": content})
        print("[stopped] The model made calls in every round.", flush=True)

    async def _ask(self) -> dict[str, Any]:
        """One request; its text is printed as it comes. The assistant's message, as it goes into the history."""
        stream: AsyncStream[ChatCompletionChunk] = await self._client.chat.completions.create(
            model=self._model,
            messages=self._messages,
            tools=self._tools,
            stream=True,
        )
        text, reason = "", ""
        calls: dict[int, dict[str, str]] = {}
        async for chunk in stream:
            for choice in chunk.choices:
                reason = choice.finish_reason or reason
                if choice.delta.content:
                    text += choice.delta.content
                    print(choice.delta.content, end="", flush=True)
                for piece in choice.delta.tool_calls or ():
                    call = calls.setdefault(piece.index, {"id": "", "name": "", "arguments": ""})
                    call["id"] = piece.id or call["id"]
                    call["name"] += (piece.function and piece.function.name) or ""
                    call["arguments"] += (piece.function and piece.function.arguments) or ""
        print(flush=True)
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if reason == "tool_calls":  # with any other reason, such as "length", the last call may be cut off
            message["tool_calls"] = [
                {"id": one["id"], "type": "function", "function": {"name": one["name"], "arguments": one["arguments"]}}
                for one in calls.values()
            ]
        return message


async def main(model: str) -> None:
    registry = Registry.load("tool_registry.json")
    registry.lock()
    async with Runtime(registry, store="sqlite:///handrail.db") as runtime, AsyncOpenAI() as client:
        page = ApprovalPage(runtime)
        listening_socket = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(page.app, log_level="error"))
        serving = asyncio.create_task(server.serve([listening_socket]))
        print(f"Approvals: http://127.0.0.1:{listening_socket.getsockname()[1]}{page.path}", flush=True)
        session = await runtime.open_session(mode="text", user="you")
        loop = Loop(session, client, model, page)
        listening = asyncio.create_task(loop.listen())
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip():
                await loop.say(line.strip())
        listening.cancel()
        server.should_exit = True
        await serving
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "gpt-4.1-mini"))
