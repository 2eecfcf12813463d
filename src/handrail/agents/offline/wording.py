"""Words in and out: a request without its politeness, the title that is in it, names as people say them."""

from __future__ import annotations

import re

_POLITE = re.compile(
    r"^\W*(?:(?:hi|hello|hey|good\s+(?:morning|afternoon|evening)|ok(?:ay)?|so|well|and|now|also|then|thanks|thank\s+you|please|just|quickly|"
    r"(?:great|perfect|good|nice|fine|cool|alright|all\s+right|sounds\s+good|wonderful|excellent)(?=\s*[,.!])|"
    r"(?:can|could|would|will)\s+you(?:\s+please|\s+kindly|\s+also)?|i(?:\s+would|['’]d)?\s+(?:like|love)\s+(?:you\s+)?to|"
    r"i\s+(?:want|need|wish)\s+(?:you\s+)?to|i\s+(?:want|need)(?=\s+(?:a|an|the|some)\b)|let['’]s|let\s+us|help\s+me(?:\s+to)?|"
    r"do\s+you\s+know|i\s+wonder|i\s+was\s+wondering(?:\s+if)?|would\s+you\s+mind)\b[\s,:!.]*)+",
    re.IGNORECASE,
)
_ASKING = re.compile(
    r"^(?:(?:tell|show|give)\s+me|find\s+out|search(?:\s+for)?|look\s+up|look\s+for|find|explain(?:\s+to\s+me)?|describe|"
    r"what\s+do\s+you\s+know\s+about|do\s+we\s+have|is\s+there)\s+(?:about\s+|(?:all|some|more|any)\s+(?:about\s+)?|information\s+(?:on|about)\s+)?",
    re.IGNORECASE,
)
_OBJECT = re.compile(r"^\W*[a-z]+\s+(?:up\s+|in\s+)?(?:me\s+)?(?:an?\s+|the\s+|my\s+|our\s+|new\s+)*", re.IGNORECASE)
_INVITED = re.compile(r"^invite\s+(.+?)\s+(?:to|for)\s+(?:an?\s+|the\s+|my\s+|our\s+)?(\w[^\n]*?)\s*$", re.IGNORECASE)
_POINTING = re.compile(
    r"^\s*(?:(?:it|that|this|them|these|those|then|there|something|anything|one|so|in|slot|time|same)\b\s*)+",
    re.IGNORECASE,
)
"""What stands for a thing is no name of one."""
_LOCAL = re.compile(r"([\w.+%-]{1,64}+)@[\w.-]{1,255}\.\w{1,63}")
_BESIDES = re.compile(
    r"\s*,\s*(?:no|not|without|with\s+(?:an?|the|no)|it|it['’]s|that|but|so|please|if|then|don['’]?t|do\s+not|i|i['’]\w+|we)\b.*$"
    r"|[\s,]*\b(?:and|then)\s+(?:send|tell|let|give|make|do|don['’]?t|add|put|remind|ask|also|use|include|no|without)\b.*$"
    r"|\s+please\b\s*,.*$"
    r"|\s+(?:without|with\s+no)\s+(?:asking|telling|confirm\w*|my\b|(?:an?\s+|the\s+|any\s+)?(?:\w+\s+)?(?:link|video|zoom|approval|confirmation)).*$"
    r"|(?<=\s)no\s+(?:\w+\s+)?link\b.*$",
    re.IGNORECASE,
)
"""How something shall be done, or why, is no part of what it is called."""
_WHICH_DAY = re.compile(
    r"^\W*(?:(?:please\s+)?(?:can\s+you\s+)?tell\s+me\s+)?(?:what|which)\s+(?:day|weekday|date)(?:\s+of\s+the\s+week)?\s+"
    r"(?:is|was|will|does|do)\b\s*(?:we\s+have\b\s*)?(?:it\b\s*)?(?:be\b\s*)?(?:it\b\s*)?(?P<when>[^\n]{0,60}?)\W*$",
    re.IGNORECASE,
)
_TAIL = re.compile(
    r"(?:[\s,;:.!?-]|\b(?:on|at|in|for|from|to|by|with|and|the|of|please|about|around|starting|then|there)\b)+$",
    re.IGNORECASE,
)
_MOST_OF_A_TITLE = 1_000
"""Far more than a title has; reading the end of a line takes the square of its length."""


def without_politeness(text: str) -> str:
    """The request itself: "could you please book …" is "book …"."""
    return _POLITE.sub("", text.strip()).strip() or text.strip()


def day_asked_for(text: str) -> str | None:
    """The day whose name is asked for: "what day is tomorrow?", "which weekday is 24 December?"; today if none is said."""
    asked = _WHICH_DAY.match(text)
    return (asked["when"] or "today") if asked is not None else None


def cleaned(text: str) -> str:
    """What to search for: the request without the asking for it, in one line."""
    line = " ".join(without_politeness(text).split())
    return (_ASKING.sub("", line).strip(" ?!.") or line.strip(" ?!.") or line)[:500]


def title_from(text: str) -> str:
    """A title from a request: "book a meeting with ana@example.com" gives "Meeting with ana"."""
    line = without_politeness(text.splitlines()[0] if text.strip() else text)[:_MOST_OF_A_TITLE]
    line = _TAIL.sub("", re.split(r"[.!?;](?:\s|$)", line)[0])
    line = _TAIL.sub("", _BESIDES.sub("", line))
    line = _INVITED.sub(r"make \2 with \1", line)
    line = _LOCAL.sub(lambda match: match[1].replace(".", " ").title(), _OBJECT.sub("", line, count=1))
    line = _POINTING.sub("", re.sub(r"\b(?:on|at|for|from)\s{2,}", " ", line))
    line = f"Meeting {line}" if re.match(r"\s*(?:with\b|$)", line) else line
    line = _TAIL.sub("", " ".join(line.split()))
    return line[:1].upper() + line[1:120] if line else ""


def parts_of(name: str) -> list[str]:
    """The words of an argument's name, in their order and as they are."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)
    return [part.lower() for part in parts] or [name.lower()]


def named(argument: str) -> str:
    """An argument's name as people say it."""
    words = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", argument)
    return " ".join(word.lower() for word in words) or argument


def listed(parts: list[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def first_sentence(text: str, most: int = 160) -> str:
    sentence = re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]
    return sentence if len(sentence) <= most else f"{sentence[: most - 1].rsplit(' ', 1)[0]}…"


def one_line(value: object, most: int = 300) -> str:
    """A value of somebody else's, for a line of ours: no breaks, no signs that act, cut where it is long."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value))
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
