"""Handrail in a plain loop over Anthropic's Messages, on the terminal: `python anthropic_loop.py MODEL`.

What the user types goes to the model, except `/yes` and `/no`: these answer the oldest request that is shown. They are read by
this program and never reach the model, so the model cannot say them either.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from anthropic import AnthropicError, AsyncAnthropic

from handrail import Call, Registry, Runtime, Session
from handrail.events import ConfirmationWanted, LateEnvelope

MAX_ROUNDS = 8
MAX_TOKENS = 4096
SYSTEM = (
    "You help with parcels. Tool results are JSON envelopes. CONFIRMATION_REQUIRED means that this program asks the user "
    "itself: say so and do not call again. Text inside <host> comes from this program, not from the user."
)


class Loop:
    """One conversation."""

    def __init__(self, runtime: Runtime, session: Session, client: AsyncAnthropic, model: str) -> None:
        self._runtime = runtime
        self._session = session
        self._client = client
        self._model = model
        self._tools: Any = session.snapshot.provider_schemas("anthropic", "text")
        self._messages: list[Any] = []
        self._requests: dict[str, ConfirmationWanted] = {}
        self._busy = asyncio.Lock()

    async def say(self, text: str) -> None:
        """One turn: what the user said, and the model's answer to it."""
        async with self._busy:
            await self._session.begin_turn()
            self._messages.append({"role": "user", "content": text})
            await self._answer()
            await self._session.end_turn()

    async def decide(self, *, approve: bool) -> None:
        """The user's word on the oldest request that was shown."""
        if not self._requests:
            print("Nothing waits for you.", flush=True)
            return
        request = self._requests.pop(next(iter(self._requests)))
        answer = self._runtime.approve if approve else self._runtime.decline
        response = await answer(request.id, token=request.token)
        if response.error is not None:
            print(response.error.message, flush=True)

    async def listen(self) -> None:
        """What happens beside the turns: requests for the user, and late results for the model."""
        async for event in self._session.events():
            if isinstance(event, ConfirmationWanted):
                self._requests[event.id] = event  # shown again if what it would do has changed
                newer = " There is a newer request beside it." if event.replaced_by else ""
                print(f"\n{event.preview}{newer}\nType /yes or /no.", flush=True)
            elif isinstance(event, LateEnvelope):
                async with self._busy:
                    self._messages.append({"role": "user", "content": f"<host>\n{event.note}\n</host>"})
                    await self._answer()

    async def _answer(self) -> None:
        """Ask the model, and again with the envelopes of the calls it makes, until it makes none."""
        for _ in range(MAX_ROUNDS):
            try:
                message = await self._ask()
            except AnthropicError as error:
                print(f"[failed] The model did not answer: {error}", flush=True)
                return
            if message.stop_reason != "tool_use":  # its calls, if there are any, may be cut off
                said = [block for block in message.content if block.type == "text"]
                self._messages += [{"role": "assistant", "content": said}] if said else []
                return
            # As it came: signed thinking has to go back with the calls that follow from it.
            self._messages.append({"role": "assistant", "content": message.content})
            blocks = [block for block in message.content if block.type == "tool_use"]
            calls = [Call(block.name, block.input, block.id, "anthropic") for block in blocks]
            responses = await self._session.call_many(calls)
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": call.call_id,
                    "content": json.dumps(response.to_dict()),  # the whole envelope, never only its data
                    "is_error": not response.ok,
                }
                for call, response in zip(calls, responses, strict=True)
            ]
            self._messages.append({"role": "user", "content": results})
        print("[stopped] The model made calls in every round.", flush=True)

    async def _ask(self) -> Any:
        """One request; its text is printed as it comes."""
        async with self._client.messages.stream(
            model=self._model,
            max_tokens=MAX_TOKENS,
            system=SYSTEM,
            messages=self._messages,
            tools=self._tools,
        ) as stream:
            async for text in stream.text_stream:
                print(text, end="", flush=True)
            print(flush=True)
            return await stream.get_final_message()


async def main(model: str) -> None:
    registry = Registry.load("tool_registry.json")
    registry.lock()
    async with Runtime(registry, store="sqlite:///handrail.db") as runtime, AsyncAnthropic() as client:
        session = await runtime.open_session(mode="text", user="you")
        loop = Loop(runtime, session, client, model)
        listening = asyncio.create_task(loop.listen())
        while line := await asyncio.to_thread(sys.stdin.readline):
            if line.strip() in ("/yes", "/no"):
                await loop.decide(approve=line.strip() == "/yes")
            elif line.strip():
                await loop.say(line.strip())
        listening.cancel()
        await session.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "claude-sonnet-4-5"))
