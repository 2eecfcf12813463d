"""Prompts: what a model is told before the conversation. Made of files that a project may replace, and of the registry.

core → voice behaviour (voice only) → tools of the mode with their summaries → how to work in this mode → guides that fit → now

The text depends on nothing but its arguments, so the same session gives the same bytes; what changes within a conversation,
the time, stands at the end, where it does not spoil a provider's cache of what stands before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from handrail.agents.tokens import tokens_of, tokens_of_json
from handrail.contract.definition import Mode
from handrail.contract.errors import ConfigError
from handrail.registry.snapshot import LoadedTool

GUIDE_TOOL = "get_tool_guide"
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

    @property
    def text(self) -> str:
        return "\n\n".join(part.text for part in self.parts)

    @property
    def prompt_tokens(self) -> int:
        return tokens_of(self.text)

    @property
    def declaration_tokens(self) -> int:
        return sum(map(tokens_of_json, self.declarations))


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
        if now is not None:
            parts.append(Part(name="now", text=_now(now, time_zone)))
        return Prompt(parts=tuple(parts), declarations=declarations)

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


def _now(now: datetime, time_zone: str) -> str:
    zone = f" ({time_zone})" if time_zone else ""
    return f"# Now\n\nIt is {now:%A}, {now.day} {now:%B %Y}, {now:%H:%M}{zone}, {now.isoformat(timespec='minutes')}."


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
