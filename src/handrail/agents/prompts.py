"""Prompts: what a model reads before the conversation. Made of files that a project may replace, and of the tools that
`tool_selection.py` has chosen.

core → voice behaviour (voice only) → tools of the mode with their summaries → how to work in this mode → guides that fit → now

The text depends on nothing but its arguments, so the same session gives the same bytes; what changes within a conversation,
the time, stands at the end, where it does not spoil a provider's cache of what stands before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from handrail.agents.conversation import tokens_of, tokens_of_json
from handrail.contract.definition import Mode
from handrail.contract.errors import ConfigError
from handrail.contract.offer import FIND_TOOL, GUIDE_TOOL
from handrail.registry.snapshot import LoadedTool
from handrail.runtime.availability import hidden_tools
from handrail.runtime.session import Session

CALL_TOOL = "call_tool"
"""What a model that cannot be given other tools calls one with that is not declared to it; see `tool_selection.py`."""
FILES = ("core.md", "voice-behavior.md", "loop-text.md", "loop-voice.md")
MAX_BYTES = 256 * 1024
_MAX_WRITTEN = 20
_OWN = Path(__file__).parent.parent / "prompts"


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
    tools: tuple[str, ...] = ()
    """The names of those that are declared."""
    left_out: int = 0
    """How many others the session has."""
    through_call: bool = False
    """Whether the model calls those by `call_tool`."""

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
        through_call: bool = False,
        now: datetime | None = None,
        time_zone: str = "",
    ) -> Prompt:
        """The prompt of a session in `mode` that is offered `tools`; `more` is how many others there are beside them.

        `written` are tools that are there in text only: in voice, a model can say so instead of trying something else. With
        `through_call`, the model calls the others by `call_tool`.
        """
        parts = [Part(name="core", text=self._texts["core.md"])]
        if mode == "voice":
            parts.append(Part(name="voice", text=self._texts["voice-behavior.md"]))
        guides = self._guides(mode, tools)
        listed = _tools(tools, version, more, guides_below=guides is not None, through_call=through_call)
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
            tools=tuple(tool.tool_id for tool in tools),
            left_out=more,
            through_call=through_call,
        )
        return prompt if now is None else prompt.at(now, time_zone)

    def _guides(self, mode: Mode, tools: Sequence[LoadedTool]) -> str | None:
        """All guides of the tools in one section; None if they do not fit, or the mode has no room for them."""
        others = [tool for tool in tools if tool.tool_id != GUIDE_TOOL]
        if mode == "voice" or not others:
            return None
        size = sum(len(tool.documentation) for tool in others)
        # By their length first: the guides of a large catalogue are not put together only to be found too long.
        if size > 4 * self.guide_tokens:
            return None
        text = "\n\n".join(["# Guides", *(_deeper(tool.documentation.strip()) for tool in others)])
        return text if tokens_of(text) <= self.guide_tokens else None


def offered(session: Session, mode: Mode | None = None) -> list[LoadedTool]:
    """The tools of the session's mode, or another, that its user may use, whose conditions hold and that are switched on, by
    name. Others are not declared to a model at all."""
    allowed, switches = session.plans.allowed, session.switches
    hidden = hidden_tools(session, mode) if session.snapshot.conditional else ()
    tools = session.snapshot.by_mode[mode or session.mode]
    return [
        tool
        for tool in tools
        if tool.tool_id in allowed and tool.tool_id not in switches and tool.tool_id not in hidden
    ]


def offered_in_text_only(session: Session) -> list[LoadedTool]:
    """In voice, what the same user could use in text and cannot use here."""
    return [tool for tool in offered(session, "text") if "voice" not in tool.modes]


def _tools(tools: Sequence[LoadedTool], version: str, more: int, *, guides_below: bool, through_call: bool) -> str:
    lines = [f"# Tools (registry {version})", ""]
    if not tools:
        return "\n".join([*lines, "There are none in this conversation."])
    for tool in tools:
        asks = ", asks the person first" if tool.definition.requires_confirmation else ""
        lines.append(f"- `{tool.tool_id}` ({tool.category}{asks}): {' '.join(tool.summary.split())}")
    if more:
        lines += ["", _others(more, has_search=any(tool.tool_id == FIND_TOOL for tool in tools), by_call=through_call)]
    if not guides_below and any(tool.tool_id == GUIDE_TOOL for tool in tools):
        lines += ["", f"How a tool is used, with examples, is described by `{GUIDE_TOOL}`; it costs no retrieval call."]
    return "\n".join(lines)


def _others(more: int, *, has_search: bool, by_call: bool) -> str:
    if not has_search:
        return f"There are {more} more tools, which are not offered here."
    found = f"There are {more} more tools. `{FIND_TOOL}` finds them by what they do; ask it before you say that there is none."
    return (
        f"{found} Call one that it found with `{CALL_TOOL}`." if by_call else f"{found} Then call the tool by its name."
    )


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
