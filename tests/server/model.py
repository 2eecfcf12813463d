"""A model for tests of the server: it does what the user's words say, so that a test reads as a conversation."""

import asyncio
import json
import secrets
from collections.abc import AsyncGenerator

from handrail.contract.call import Call
from handrail.contract.model import (
    CallMade,
    Finished,
    HostMessage,
    ModelError,
    ModelEvent,
    ModelRequest,
    TextDelta,
    ToolMessage,
    Usage,
    UserMessage,
)


class PlayModel:
    """`call NAME JSON && NAME JSON` calls and tells the outcomes, or does what comes after `then`; `slow N TEXT` takes its
    time; `break` fails, `falter` in the middle and not for good; else it echoes."""

    name = "play"
    provider = "openai-chat"
    id_scope = "session"
    context_window = 8_000

    def __init__(self, pause: float = 0.02) -> None:
        self.pause = pause
        self.asked: list[ModelRequest] = []
        self.cancelled = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked.append(request)
        del self.asked[:-50]
        messages = list(request.messages)
        last = max((place for place, one in enumerate(messages) if isinstance(one, UserMessage)), default=0)
        text = getattr(messages[last], "text", "")
        since = messages[last + 1 :]
        told = [one for one in since if isinstance(one, ToolMessage)]
        text, _, then = text.partition(" then ") if text.startswith("call ") else (text, "", "")
        text = then if then and told else text
        try:
            if isinstance(messages[-1], HostMessage) and since:
                answer = f"Told: {messages[-1].text}"
            elif text.startswith("call ") and not told:
                for part in text.removeprefix("call ").split(" && "):
                    name, _, args = part.partition(" ")
                    yield CallMade(Call(name, json.loads(args or "{}"), f"call_{secrets.token_hex(6)}"))
                yield Usage(10, 5)
                yield Finished("calls")
                return
            elif text.startswith("call "):
                answer = ", ".join(f"{one.name}: {_outcome(one)}" for one in told)
            elif text.startswith("slow "):
                _, number, answer = text.split(" ", 2)
                for place in range(int(number)):
                    yield TextDelta(f"{place} ")
                    await asyncio.sleep(self.pause)
            elif text == "break":
                raise ModelError("The model is away.", detail="The model is away at http://10.0.0.7:11434.")
            elif text == "falter":
                yield TextDelta("Well ")
                raise ModelError("The model is away.", retryable=True)
            else:
                answer = f"You said: {text}"
            for word in answer.split(" "):
                yield TextDelta(word + " ")
                await asyncio.sleep(0)
            yield Usage(10, len(answer))
            yield Finished("stop")
        except (asyncio.CancelledError, GeneratorExit):
            self.cancelled += 1
            raise

    async def close(self) -> None:
        return None


def _outcome(message: ToolMessage) -> str:
    error = message.envelope.get("error")
    return "ok" if error is None else str(error["type"])
