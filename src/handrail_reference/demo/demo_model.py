"""The demo model as a model: it is asked, and streams words or calls. The same request always gives the same stream."""

import asyncio
import json
import re
from collections.abc import AsyncGenerator
from hashlib import sha256

from handrail.model import Call, CallMade, Finished, IdScope, ModelEvent, ModelRequest, TextDelta, Usage
from handrail_reference.demo.journeys import next_step
from handrail_reference.demo.view import View


class DemoModel:
    """A model that needs no network and no key."""

    name = "demo"
    provider = "openai-chat"
    id_scope: IdScope = "session"
    context_window: int | None = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        # In a thread: long texts take a while to read, and the event loop must not wait for them.
        step = await asyncio.to_thread(lambda: next_step(View(request)))
        for name, args in step.calls:
            # The same place of the same conversation gives the same id: a repeated turn finds its call again.
            place = json.dumps([len(request.messages), str(request.messages[-1:]), name, args])
            call_id = f"call_{sha256(place.encode()).hexdigest()[:20]}"
            yield CallMade(Call(name, args, call_id, self.provider, self.id_scope))
        for piece in re.findall(r"\S+\s*", step.text):
            yield TextDelta(piece)
        yield Usage(len(str(request)) // 4, len(step.text) // 4)
        yield Finished("calls" if step.calls else "stop", suggestions=tuple(step.suggestions))

    async def close(self) -> None:
        """Nothing is open."""


def open_demo(name: str = "") -> DemoModel:
    """What `model = "demo"` opens."""
    return DemoModel()
