"""Prompts: what a model is told before the conversation, and which tools it is offered. Made of files that a project may
replace, and of the registry.

core → voice behaviour (voice only) → tools of the mode with their summaries → how to work in this mode → guides that fit → now

The text depends on nothing but its arguments, so the same session gives the same bytes; what changes within a conversation,
the time, stands at the end, where it does not spoil a provider's cache of what stands before.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from handrail.agents.conversation import tokens_of, tokens_of_json
from handrail.agents.policy import AgentPolicy
from handrail.contract.definition import Mode, ToolDefinition
from handrail.contract.errors import ConfigError
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.session import Session

GUIDE_TOOL = "get_tool_guide"
FILES = ("core.md", "voice-behavior.md", "loop-text.md", "loop-voice.md")
MAX_BYTES = 256 * 1024
_MAX_WRITTEN = 20
_MAX_COMPOSED = 32
_MAX_IN_LOOP = 50
"""Above this number of tools, choosing is done in a thread: declarations may have to be read and an index be made first."""
_OWN = Path(__file__).parent.parent / "prompts"
Picker: TypeAlias = Callable[[str, Sequence[ToolDefinition], int], Sequence[ToolDefinition]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One section of a prompt."""

    name: str
    text: str

    @property
    def tokens(self) -> int:
        return tokens_of(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a model is given at the start: the system text in its parts, and the declarations of the tools."""

    parts: tuple[Part, ...]
    declarations: Sequence[Mapping[str, Any]]

    text: str
    prompt_tokens: int
    declaration_tokens: int

    def at(self, now: datetime, time_zone: str) -> Prompt:
        """The same with the time at its end."""
        zone = f" ({time_zone})" if time_zone else ""
        moment = f"It is {now:%A}, {now.day} {now:%B %Y}, {now:%H:%M}{zone}, {now.isoformat(timespec='minutes')}."
        part = Part(name="now", text=f"# Now\n\n{moment}")
        text = f"{self.text}\n\n{part.text}"
        return replace(self, parts=(*self.parts, part), text=text, prompt_tokens=tokens_of(text))


class Prompts:
    """The files, read once, and how a prompt is made of them."""

    def __init__(self, texts: Mapping[str, str], *, guide_tokens: int = 4_000) -> None:
        self._texts = dict(texts)
        self.guide_tokens = guide_tokens

    @classmethod
    def load(cls, directory: Path | None = None, *, guide_tokens: int = 4_000) -> Prompts:
        """Handrail's own files, each replaced by the project's where it has one; `ConfigError` if one cannot be read."""
        if directory is not None and not directory.is_dir():
            raise ConfigError(f'"directory" in [prompts] names "{directory.name}", which is no folder.')
        texts = {}
        for name in FILES:
            own = directory / name if directory is not None else None
            texts[name] = _read(own if own is not None and own.is_file() else _OWN / name)
        return cls(texts, guide_tokens=guide_tokens)

    def compose(
        self,
        mode: Mode,
        tools: Sequence[LoadedTool],
        *,
        version: str,
        declarations: Sequence[Mapping[str, Any]] = (),
        more: int = 0,
        written: Sequence[LoadedTool] = (),
        now: datetime | None = None,
        time_zone: str = "",
    ) -> Prompt:
        """The prompt of a session in `mode` that is offered `tools`; `more` is how many others there are beside them.

        `written` are tools that are there in text only: in voice, a model can say so instead of trying something else.
        """
        parts = [Part(name="core", text=self._texts["core.md"])]
        if mode == "voice":
            parts.append(Part(name="voice", text=self._texts["voice-behavior.md"]))
        guides = self._guides(mode, tools)
        listed = _tools(tools, version, more, guides is not None)
        parts.append(Part(name="tools", text="\n\n".join([listed, *_written(written)])))
        parts.append(Part(name="loop", text=self._texts[f"loop-{mode}.md"]))
        if guides:
            parts.append(Part(name="guides", text=guides))
        text = "\n\n".join(part.text for part in parts)
        prompt = Prompt(
            parts=tuple(parts),
            declarations=declarations,
            text=text,
            prompt_tokens=tokens_of(text),
            declaration_tokens=sum(map(tokens_of_json, declarations)),
        )
        return prompt if now is None else prompt.at(now, time_zone)

    def _guides(self, mode: Mode, tools: Sequence[LoadedTool]) -> str | None:
        """All guides of the tools in one section; None if they do not fit, or the mode has no room for them."""
        others = [tool for tool in tools if tool.tool_id != GUIDE_TOOL]
        if mode == "voice" or not others:
            return None
        size = sum(len(tool.documentation) for tool in others)
        if size > 4 * self.guide_tokens:
            return None
        text = "\n\n".join(["# Guides", *(_deeper(tool.documentation.strip()) for tool in others)])
        return text if tokens_of(text) <= self.guide_tokens else None


class Offering:
    """Chooses the tools of a turn and makes the prompt for them. A prompt is composed once for the same tools."""

    def __init__(self, prompts: Prompts, policy: AgentPolicy, picker: Picker | None) -> None:
        self._prompts = prompts
        self._policy = policy
        self._picker = picker
        self._composed: dict[tuple[object, ...], Prompt] = {}

    async def prompt(
        self, session: Session, provider: str, query: str, used: Sequence[str], now: datetime, time_zone: str
    ) -> Prompt:
        """With all tools on offer, or those that fit `query` if there are too many; tools that were used stay."""
        tools = offered(session)
        choose = partial(self._choose, session, provider, tools, query, used)
        prompt = await asyncio.to_thread(choose) if len(tools) > _MAX_IN_LOOP else choose()
        return prompt.at(now, time_zone)

    def _choose(
        self, session: Session, provider: str, tools: Sequence[LoadedTool], query: str, used: Sequence[str]
    ) -> Prompt:
        snapshot, mode, more = session.snapshot, session.mode, 0
        if len(tools) > self._policy.max_tools and self._picker is not None:
            picked = self._picker(query, [tool.definition for tool in tools], self._policy.picked_tools)
            wanted = {*used, GUIDE_TOOL, *(definition.tool_id for definition in picked)}
            chosen = [tool for tool in tools if tool.tool_id in wanted]
            tools, more = chosen, len(tools) - len(chosen)
        written = _only_written(session) if mode == "voice" else ()
        key = snapshot.version, provider, mode, more, *(tool.tool_id for tool in (*tools, *written))
        prompt = self._composed.get(key)
        if prompt is None:
            names = [tool.tool_id for tool in snapshot.by_mode[mode]]
            schemas = dict(zip(names, snapshot.provider_schemas(provider, mode), strict=True))
            declarations = [schemas[tool.tool_id] for tool in tools]
            prompt = self._prompts.compose(
                mode, tools, version=snapshot.version, declarations=declarations, more=more, written=written
            )
            while len(self._composed) >= _MAX_COMPOSED:
                self._composed.pop(next(iter(self._composed)), None)
            self._composed[key] = prompt
        return prompt


def offered(session: Session, mode: Mode | None = None) -> list[LoadedTool]:
    """The tools of the session's mode, or another, that its user may use and that are switched on, by name."""
    allowed, switches = session.plans.allowed, session.switches
    tools = session.snapshot.by_mode[mode or session.mode]
    return [tool for tool in tools if tool.tool_id in allowed and tool.tool_id not in switches]


def _only_written(session: Session) -> list[LoadedTool]:
    """In voice, what the same user could use in text and cannot use here."""
    return [tool for tool in offered(session, "text") if "voice" not in tool.modes]


def _tools(tools: Sequence[LoadedTool], version: str, more: int, guides_below: bool) -> str:
    lines = [f"# Tools (registry {version})", ""]
    if not tools:
        return "\n".join([*lines, "There are none in this conversation."])
    for tool in tools:
        asks = ", asks the person first" if tool.definition.requires_confirmation else ""
        lines.append(f"- `{tool.tool_id}` ({tool.category}{asks}): {' '.join(tool.summary.split())}")
    if more:
        lines += ["", f"There are {more} more tools; those above were picked for what the person asks now."]
    if not guides_below and any(tool.tool_id == GUIDE_TOOL for tool in tools):
        lines += ["", f"How a tool is used, with examples, is told by `{GUIDE_TOOL}`; it costs no retrieval call."]
    return "\n".join(lines)


def _written(tools: Sequence[LoadedTool]) -> list[str]:
    if not tools:
        return []
    lines = [
        f"- `{tool.tool_id}` ({tool.category}, in text only): {' '.join(tool.summary.split())}"
        for tool in tools[:_MAX_WRITTEN]
    ]
    rest = [f"- and {len(tools) - _MAX_WRITTEN} more"] if len(tools) > _MAX_WRITTEN else []
    first = "These are there only in text, after voice has ended; say so, and offer to end it:"
    return ["\n".join([first, "", *lines, *rest])]


def _deeper(guide: str) -> str:
    """A guide with its headings one level down, so that it stays below the heading of all guides."""
    lines, fenced = [], False
    for line in guide.splitlines():
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        lines.append(f"#{line}" if line.startswith("#") and not fenced else line)
    return "\n".join(lines)


def _read(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        text = raw.decode("utf-8").strip()
    except UnicodeDecodeError:
        raise ConfigError(f'The prompt "{path.name}" is not UTF-8 text.') from None
    except OSError as error:
        raise ConfigError(f'The prompt "{path.name}" cannot be read ({error.strerror}).') from None
    if len(raw) > MAX_BYTES:
        raise ConfigError(f'The prompt "{path.name}" is larger than {MAX_BYTES} bytes; make it shorter.')
    if not text:
        raise ConfigError(f'The prompt "{path.name}" is empty; write it, or delete it to use the one of Handrail.')
    return text
