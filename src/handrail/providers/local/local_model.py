"""A `Model` on a file of this machine: the same port, and so the same loop and the same gates as every other model."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from handrail.contract.call import Call, IdScope
from handrail.contract.model import CallMade, Finished, ModelError, ModelEvent, ModelRequest, TextDelta, Usage
from handrail.providers.local.process import EngineProcess
from handrail.providers.local.prompt import messages_for
from handrail.providers.local.tool_call_grammar import AnswerReader, answer_schema

_LOG = logging.getLogger("handrail.model")
_ANSWER_TOKENS = 768
"""An answer that is longer is cut: a model that repeats itself would fill its window."""


class LocalModel:
    """The model in a GGUF file. One that `is_small` is offered only the arguments that a tool needs: it invents the others.
    `instructions` are a project's own words for its prompt."""

    provider = "openai-chat"
    """Whose form the tools are declared in; nobody else sees them."""
    id_scope: IdScope = "message"

    def __init__(
        self, name: str, engine: EngineProcess, *, context: int, is_small: bool = False, instructions: str = ""
    ) -> None:
        self.name = name
        self.engine = engine
        self.context_window: int | None = context
        self._is_small = is_small
        self._instructions = instructions

    async def load(self) -> None:
        """Load the model, which takes seconds; `ModelError` if the file cannot be run."""
        await self.engine.load()

    async def unload(self) -> None:
        """Free the memory once no request runs; the next one loads the model again."""
        await self.engine.unload()

    async def close(self) -> None:
        await self.engine.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        try:
            async with aclosing(self._answered(request)) as events:
                async for event in events:
                    yield event
        except ModelError as error:
            _LOG.warning("The model %s could not answer: %s", self.name, error.detail)
            raise

    async def _answered(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        body, reader = self._body(request), AnswerReader()
        done: dict[str, Any] = {}
        async with aclosing(self.engine.generate(body)) as messages:
            async for message in messages:
                said = reader.feed(message["text"]) if "text" in message else ""
                if said:
                    yield TextDelta(said)
                done = message.get("done", done)
        call = reader.call()
        if call is not None:
            name, args = call
            yield CallMade(Call(name, args, None, self.provider, self.id_scope))
        yield Usage(done.get("input", 0), done.get("output", 0))
        is_cut = done.get("reason") == "length"
        if call is None and not is_cut and not reader.said:
            raise ModelError("The local model wrote nothing that could be read.", retryable=True)
        yield Finished("length" if is_cut else "calls" if call is not None else "stop")

    def _body(self, request: ModelRequest) -> dict[str, Any]:
        assert self.context_window is not None
        max_tokens = min(request.max_output_tokens or _ANSWER_TOKENS, _ANSWER_TOKENS, self.context_window // 2)
        tools = request.tools if request.allow_calls else ()
        schema = answer_schema(tools, only_required=self._is_small)
        return {
            "messages": messages_for(
                request,
                context=self.context_window,
                answer_tokens=max_tokens,
                only_required=self._is_small,
                instructions=self._instructions,
            ),
            "response_format": {"type": "json_object", "schema": schema},
            "max_tokens": max_tokens,
            "temperature": 0,
            "chat_template_kwargs": {"enable_thinking": False},  # the schema leaves no place for thoughts
        }

    # ---------------------------------------------------------------------------------------------- figures
    @property
    def summary(self) -> str:
        """What it costs, in a sentence."""
        found = self.engine.figures
        return (
            f"{self.name} was loaded in {found.load_seconds:.1f} s, holds {_size(found.memory_bytes)} of memory "
            f"and writes {found.tokens_per_second:.1f} tokens a second."
        )

    def figures(self) -> dict[str, Any]:
        found = self.engine.figures
        return {
            "memoryBytes": found.memory_bytes if self.engine.pid is not None else 0,
            "loadSeconds": round(found.load_seconds, 3),
            "tokensPerSecond": round(found.tokens_per_second, 2),
            "outputTokens": found.output_tokens,
            "starts": found.starts,
        }

    def to_prometheus(self) -> str:
        found = self.figures()
        return "".join(
            f"# HELP handrail_local_model_{name} {words}\n"
            f"# TYPE handrail_local_model_{name} {kind}\n"
            f"handrail_local_model_{name} {found[key]}\n"
            for name, key, kind, words in _METRICS
        )


_METRICS = (
    ("memory_bytes", "memoryBytes", "gauge", "Memory that the process of the local model holds."),
    ("load_seconds", "loadSeconds", "gauge", "How long loading the local model took."),
    ("tokens_per_second", "tokensPerSecond", "gauge", "How fast the local model wrote its last answer."),
    ("output_tokens_total", "outputTokens", "counter", "Tokens that the local model has written."),
    ("starts_total", "starts", "counter", "How often the process of the local model was started."),
)


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
