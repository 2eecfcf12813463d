"""Goals: what the user wants, as far as words and schemas tell: something found, a tool used, or something done."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from handrail.agents.offline.agenda import lists_events
from handrail.agents.offline.arguments import Filled, fill
from handrail.agents.offline.guides import guide_call, told_by_itself, tool_asked_about
from handrail.agents.offline.idle import is_idle
from handrail.agents.offline.leaving import only_written
from handrail.agents.offline.manners import BLOCKING
from handrail.agents.offline.moments import Times, read_times
from handrail.agents.offline.pieces import Pieces
from handrail.agents.offline.suiting import does, gives, is_wished_for, names_it_better
from handrail.agents.offline.view import SeenTool, View
from handrail.agents.offline.vocabulary import DOING, GENERIC, LOOKING
from handrail.agents.offline.wording import parts_of, without_politeness
from handrail.agents.offline.zones import conversion_in
from handrail.picking import ToolIndex
from handrail.picking.words import ASKING, COMMON, split_words, stem

Kind = Literal["question", "lookup", "command", "statement"]
_QUESTION = re.compile(
    r"^\W*(?:what|who|whom|whose|when|where|which|why|how|is|are|am|was|were|do|does|did|has|have|had|can|could|may|should|would|will|"
    r"shall|any|what['’]s|who['’]s|where['’]s|how['’]s|isn['’]t|aren['’]t|doesn['’]t|don['’]t)\b",
    re.IGNORECASE,
)
_ASKED_TO = re.compile(
    r"^\W*(?:(?:hi|hello|hey|good\s+\w+|please|thanks|ok(?:ay)?)\W+)*(?:can|could|would|will)\s+you\s+(?:please\s+|kindly\s+)?(?=\w+\s+"
    r"(?:my|me|us|our|the|a|an|this|that|these|some|it|them)\b)",
    re.IGNORECASE,
)
_NO_VERB = COMMON | ASKING | {"i'm", "i", "my", "the", "a", "an", "yesterday", "today", "tomorrow"}
# Everyday words for the same thing. Small, general, and only ever used to rank.
_SAME = (
    "book schedule arrange reserve plan create set",
    "meeting appointment event call calendar",
    "free available availability busy calendar slot",
    "picture image photo drawing draw paint sketch illustrate",
    "talk speak voice phone call",
    "mail email e-mail message",
    "find search lookup look",
    "buy purchase order",
    "delete remove cancel",
    "weather forecast temperature rain",
    "price cost quote",
    "bill invoice",
    "person employee colleague people who contact",
    "ticket issue problem bug",
)
_FREE_TIME = re.compile(
    r"\b(?:have|got|find|any)\s+(?:any\s+|some\s+|the\s+)?time\b(?!\s+zone)|\bmy\s+(?:schedule|agenda|diary|day|week)\b|"
    r"\banything\s+(?:on|planned|scheduled)\b",
    re.IGNORECASE,
)
_END = r"(?=\s*(?:please\s*)?(?:[?.!,;]|$))"
_VOICE = re.compile(
    rf"\b(?:call\s+me(?:\s+(?:back|now|on\s+the\s+phone))*{_END}|(?:(?:can|could|shall)\s+we|let['’]?s)\s+(?:talk|speak){_END}|"
    rf"i(?:['’]d|\s+would)?\s+(?:like|love|want|wish)\s+to\s+(?:talk|speak)(?:\s+(?:to|with)\s+you)?(?:\s+(?:now|instead))?{_END}|"
    r"(?:talk|speak)\s+(?:(?:to|with)\s+(?:me|you)\s+)?(?:on|over|by)\s+(?:the\s+)?phone\b|(?:by|over|in|to)\s+voice\b|"
    r"(?:start|begin|open|have|make|want|like|prefer|use)\s+(?:a\s+|the\s+)?voice\b|"
    r"(?:rather|prefer\s+to)\s+(?:talk|speak)\b(?!\s+(?:to|with)\s+(?!me\b|you\b)))",
    re.IGNORECASE,
)
_NO_VOICE = re.compile(
    r"^\W*(?:what|how|why|when|where|who|which|is|are|does|did|do)\b|\b(?:not|never|no|\w+n['’]t)\b", re.IGNORECASE
)
_UNDOING = re.compile(
    r"^\W*(cancel|delete|remove|withdraw|revoke|undo|unbook|discard|erase|scrap|call\s+off|get\s+rid\s+of)\b",
    re.IGNORECASE,
)
_UNDOES = ("cancel", "delet", "remov", "withdr", "revok", "undo", "unbook", "discard", "eras", "scrap", "clear")
NO_TOOL = "I have no tool for that"
NOT_OFFERED = f"{NO_TOOL} here; it may be switched off."
_ONE_OF = re.compile(
    r"\b(?:one\s+of\s+(?:the\s+)?(?:two|three|them|these|both)|either|at\s+least\s+one)\b", re.IGNORECASE
)
_STRONG, _SPECIFIC, _LEAST = 0.34, 0.18, 0.02
"""How well a tool must fit: by its words alone, by words and arguments together, and at all."""


@dataclass(frozen=True, slots=True)
class Choice:
    """A tool that may be what is wanted: how well its words fit, and what its arguments would be."""

    tool: SeenTool
    words: float
    filled: Filled
    is_named: bool = False
    """Whether a word of its name that is no everyday one was said, and there is something to give it."""

    @property
    def total(self) -> float:
        return self.words + 0.08 * min(self.filled.signs, 3) - 0.04 * len(self.filled.missing)


@dataclass(frozen=True, slots=True)
class Goal:
    """What to do about a request. `look` is what to look at before acting."""

    kind: Literal["search", "use", "act", "text", "none"]
    choice: Choice | None = None
    look: Choice | None = None
    why: str = ""
    """Why nothing can be done, in words for the user."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A request: the texts that make it up, the newest last, and what they say about when."""

    texts: list[str]
    times: Times
    revises: Literal["", "held", "settled", "declined"] = ""
    """Whether it corrects something that waits for approval, that is done, or that was declined."""

    @property
    def text(self) -> str:
        return "\n".join(self.texts)


def kind_of(text: str, tools: Mapping[str, SeenTool]) -> Kind:
    """Whether something is asked, looked for, to be done, or only said."""
    request = without_politeness(text)
    words = [word.strip(".,!?:;'\"").lower() for word in request.split()[:2]]
    first = words[0] if words else ""
    acting = frozenset(stem(word) for tool in tools.values() if tool.category == "action" for word in tool.words)
    if is_wished_for(text, acting):
        return "command"
    if first in LOOKING:
        return "lookup"
    if _QUESTION.match(request):
        return "question"
    if (
        first in DOING
        or (first in ("take", "grab", "get") and words[1:] in (["it"], ["that"], ["this"]))
        or (first not in _NO_VERB and stem(first) in acting)
    ):
        return "command"
    if _ASKED_TO.match(text) and first not in _NO_VERB:
        return "command"  # "could you water my plants?" wants a deed, whatever the verb
    return "question" if request.rstrip().endswith("?") else "statement"


def decide(view: View, wish: Wish) -> Goal:
    """What to do about a wish, from the tools that there are."""
    first = wish.texts[0]
    kind = kind_of(first, view.tools)
    choices = _choices(view, wish)
    if _wants_voice(wish.texts[-1]):
        handover = _handover(view, wish)
        return Goal("act", handover) if handover is not None else Goal("none", why=_not_here(view, wish))
    if view.written and _is_for_text(view, wish.text, kind):
        return Goal("text", why=only_written(view))
    asked_about = tool_asked_about(view, first) if kind in ("question", "lookup") else None
    if asked_about is not None:
        guide = guide_call(view, asked_about)
        if guide is None:
            return Goal("text", why=told_by_itself(asked_about))
        return Goal("use", Choice(guide[0], 1.0, Filled(guide[1], (), 1)))
    undoing = _UNDOING.match(without_politeness(first)) if kind == "command" else None
    if undoing is not None:
        choices = [choice for choice in choices if _undoes(choice, wish.text)]
        if not choices:
            return Goal(
                "none",
                why=f"{NO_TOOL}: I cannot {' '.join(undoing[1].lower().split())} anything here.",
            )
    best = max((c for c in choices if c.tool.category != "action" and not is_search(c.tool)), key=_order, default=None)
    if kind == "command":
        said = read_times(first, view.now).rest
        actions = [c for c in choices if c.tool.category == "action" and _can_be(c)]
        fit = [c for c in actions if does(c.tool, c.filled, said) and _has_matter(c, first)]
        action = max(fit, key=_order, default=None)
        if action is not None and (best is None or not names_it_better(best.tool, action.tool, first)):
            return Goal("act", action, _look(view, wish, action))
        if best is not None and not gives(best.tool, said):
            return Goal("none", why=_not_here(view, wish))
    search = _search(view, wish, choices)
    if best is not None and _is_wanted(best, search is not None):
        return Goal("use", best)
    if is_idle(wish.text) and (best is None or best.words < _STRONG):
        return Goal("none")
    if search is not None and kind != "command":
        return Goal("search", search)
    if best is not None and best.words >= _LEAST and (best.filled.complete or best.words >= _STRONG):
        return Goal("use", best)
    return Goal("none")


def _not_here(view: View, wish: Wish) -> str:
    """That nothing here does it. That it may be switched off is said only of what was there before in this conversation."""
    said = {stem(word) for word in split_words(_widened(wish.text) or wish.text)}
    called = {done.call.name for turn in view.turns for done in turn.done}
    gone = called - view.tools.keys() - view.written.keys()
    return (
        NOT_OFFERED
        if any(said & {stem(word) for word in set(split_words(name)) - GENERIC} for name in gone)
        else f"{NO_TOOL}."
    )


def _is_for_text(view: View, text: str, kind: Kind) -> bool:
    """Whether a tool that is there in text only fits better than any that is here."""
    scores = rank(view, text, 40, view.whole_index)
    best = max(scores, key=lambda name: (scores[name], name), default="")
    tool = view.written.get(best)
    if tool is None or {"start", "voice"} <= set(tool.words):
        return False
    if tool.category == "utility":
        return kind in ("command", "lookup") and scores[best] >= _STRONG
    return scores[best] >= (0.05 if kind == "command" else 0.1) and (kind == "command") == (tool.category == "action")


def _undoes(choice: Choice, request: str) -> bool:
    """Whether a tool takes back what is meant: by its name or the verb of its description, and by what it is about."""
    tool = choice.tool
    if not any(word.startswith(_UNDOES) for word in [*tool.words, *split_words(tool.description)[:1]]):
        return False
    about = {stem(word) for word in tool.words if not word.startswith(_UNDOES)}
    return choice.filled.signs > 0 or bool(about & {stem(word) for word in split_words(_widened(request) or request)})


def _can_be(choice: Choice) -> bool:
    """Whether what was found is a call: where one of several arguments is needed, schemas for providers may not say so, and
    only the words do."""
    tool, filled = choice.tool, choice.filled
    return bool(filled.args) or not (_ONE_OF.search(tool.description) and tool.properties and not tool.required)


def _has_matter(action: Choice, request: str) -> bool:
    """Whether there is anything to act on: a tool that takes things and got none is meant only if its verb was said."""
    first = next(iter(split_words(without_politeness(request))), "")
    takes = bool(action.tool.properties) and not action.tool.required
    return not takes or bool(action.filled.args) or stem(first) in {stem(word) for word in action.tool.words}


def _is_wanted(choice: Choice, can_search: bool) -> bool:
    """Whether a particular tool is meant rather than a search."""
    filled = choice.filled
    if filled.complete and choice.tool.required:
        return choice.words >= _LEAST and filled.signs > 0 and choice.total >= _SPECIFIC
    if filled.complete:
        return choice.words >= (_SPECIFIC if choice.is_named else _STRONG)
    return choice.words >= (0.6 if can_search else _STRONG) and (choice.tool.category == "retrieval" or not can_search)


def _order(choice: Choice) -> tuple[float, str]:
    return round(choice.total, 4), choice.tool.name


def rank(view: View, text: str, most: int = 12, index: ToolIndex | None = None) -> dict[str, float]:
    """How well each tool's words fit the request: by the words themselves, and by everyday words for the same."""
    if not view.tools:
        return {}
    index = index or view.index
    scores = dict(index.pick(text[:2_000], most, min_score=0.0))
    wider = _widened(text)
    if wider:
        for name, score in index.pick(wider, most, min_score=0.0):
            scores[name] = max(scores.get(name, 0.0), 0.8 * score)
    scores.pop(BLOCKING, None)  # only ever used against abuse, never because somebody asks
    return scores


def _widened(text: str) -> str:
    words = set(split_words(text[:2_000])) - COMMON
    more = [group for group in _SAME if {stem(word) for word in group.split()} & {stem(word) for word in words}]
    more += ["convert time zone zones date"] if conversion_in(text) is not None else []
    more += ["free available availability busy calendar"] if _FREE_TIME.search(text) or lists_events(text) else []
    return " ".join([*sorted(words), *more]) if more else ""


def _choices(view: View, wish: Wish) -> list[Choice]:
    scores = rank(view, wish.text)
    for name in _by_codes(view, wish):
        scores[name] = scores.get(name, 0.0) + 0.12
    first = stem(next(iter(without_politeness(wish.texts[0]).lower().split()), ""))
    for name in scores.keys() & view.tools.keys():
        if first in {stem(word) for word in view.tools[name].words}:
            scores[name] += 0.1  # "extract …" means the tool that says so in its name
    return [
        _choice(view, wish, name, score)
        for name, score in sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))[:10]
        if name in view.tools
    ]


def _choice(view: View, wish: Wish, name: str, score: float) -> Choice:
    tool = view.tools[name]
    filled = fill(view, tool, wish.texts, wish.times)
    own = {stem(word) for word in set(tool.words) - GENERIC}
    said = own & {stem(word) for word in split_words(wish.text)}
    return Choice(tool, score, filled, bool(said) and bool(filled.args))


def _by_codes(view: View, wish: Wish) -> list[str]:
    """Tools that take an identifier of the shape that stands in the request: in the words of the argument, or earlier here."""
    shapes = {_shape(code) for _, code in Pieces(wish.text, None).codes if not code.isdecimal()}
    if not shapes:
        return []
    used = {done.call.name for turn in view.turns for done in turn.done if shapes & _shapes(list(done.args.values()))}
    found = []
    for tool in view.tools.values():
        described = [str(tool.properties.get(name, {}).get("description", "")) for name in tool.required]
        if tool.name in used or shapes & {_shape(code) for text in described for _, code in Pieces(text).codes}:
            found.append(tool.name)
    return found


def _shape(code: str) -> str:
    """ "A-1001" and "B-2002" have the same, and so have all of a type and a name, such as "person:ana_kovac"."""
    if re.fullmatch(r"[a-z][a-z0-9]*:[a-z0-9][\w.-]*", code):
        return "type:name"
    return re.sub(r"[a-z]+", "a", re.sub(r"[A-Z]+", "A", re.sub(r"\d+", "9", code)))


def _shapes(values: list[object]) -> set[str]:
    return {_shape(value) for value in values if isinstance(value, str) and len(value) < 80}


# ------------------------------------------------------------------------------------------------------ search
def is_search(tool: SeenTool) -> bool:
    """A tool that is asked in free words: it looks things up and needs nothing but a query."""
    if tool.category == "action" or len(tool.required) > 1:
        return False
    name = query_argument(tool)
    return name is not None and tool.category == "retrieval" and tool.required in ([], [name])


def query_argument(tool: SeenTool) -> str | None:
    asking = {"query", "q", "question", "search", "keywords", "keyword", "text", "terms", "term", "phrase"}
    names = tool.required or list(tool.properties)
    found = [name for name in names if set(parts_of(name)) & asking and "enum" not in tool.properties.get(name, {})]
    return found[0] if found else None


def _search(view: View, wish: Wish, choices: list[Choice]) -> Choice | None:
    """The search that fits best; any at all if none is named by the words of the request."""
    known = {choice.tool.name: choice for choice in choices}
    searches = [tool for tool in view.tools.values() if is_search(tool)]
    if not searches:
        return None
    best = max(
        searches, key=lambda tool: (known[tool.name].words if tool.name in known else 0.0, _breadth(tool), tool.name)
    )
    choice = known.get(best.name) or Choice(best, 0.0, fill(view, best, wish.texts, wish.times))
    # A word of the question may be an option's name by chance; a search is narrowed only if the option is named, too.
    said = set(split_words(wish.text))
    args = {k: v for k, v in choice.filled.args.items() if k in best.required or said & set(parts_of(k))}
    return Choice(best, choice.words, Filled(args, choice.filled.missing, choice.filled.signs))


def _breadth(tool: SeenTool) -> int:
    """A knowledge base before a search for one kind of thing."""
    return int(
        bool(
            tool.vocabulary()
            & {stem(word) for word in ("knowledge", "documents", "records", "everything", "documentation", "kb", "faq")}
        )
    )


def reader_for(view: View, search: SeenTool) -> tuple[SeenTool, str] | None:
    """The tool that reads by id what a search found, and the argument that takes the ids."""
    family = set(search.words[:1])
    for tool in view.tools.values():
        if tool.category == "retrieval" and tool.name != search.name and family & set(tool.words):
            for name in tool.required:
                if set(parts_of(name)) & {"id", "ids"} and len(tool.required) == 1:
                    return tool, name
    return None


# ------------------------------------------------------------------------------------------------------ acting
def _look(view: View, wish: Wish, action: Choice) -> Choice | None:
    """What to look at before acting: a tool of the same family that can be asked with what is known."""
    family = set(action.tool.words) - GENERIC
    for tool in sorted(view.tools.values(), key=lambda tool: tool.name):
        if (
            tool.category != "retrieval"
            or is_search(tool)
            or not tool.required
            or not family & (set(tool.words) - GENERIC)
        ):
            continue
        filled = fill(view, tool, wish.texts, wish.times)
        if filled.complete and filled.signs:
            return Choice(tool, 0.0, filled)
    return None


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.!?])\s+", text) if part.strip()]


def _wants_voice(text: str) -> bool:
    return any(_VOICE.search(part) and not _NO_VOICE.search(part) for part in _sentences(text))


def _handover(view: View, wish: Wish) -> Choice | None:
    """The user would rather talk: the tool that starts voice, with what it shall be about."""
    text = wish.texts[-1]
    tool = next((tool for tool in view.tools.values() if {"start", "voice"} <= set(tool.words)), None)
    if tool is None:
        return None
    sentences = [part for part in _sentences(text) if not _VOICE.search(part)]
    about = re.search(r"\babout\s+(.{3,200}?)[.!?]*$", text, re.IGNORECASE)
    pending = " ".join(sentences) or (about[1] if about else "")
    argument = next((name for name in tool.properties if "request" in name or "message" in name), None)
    return Choice(tool, 1.0, Filled({argument: pending[:500]} if argument and pending else {}, (), 1))
