"""What no record can answer: sums, single letters, wishes to be amused. Whatever a search found for it would be chance."""

from __future__ import annotations

import re

from handrail.agents.offline.numbers import NUMBER_WORD

_NUMBER = rf"(?:[-+]?\d[\d.,]*|(?:{NUMBER_WORD})(?:\s+(?:{NUMBER_WORD}))*)"
_BETWEEN = (
    r"(?:[-+*/x×·÷^%]|\*\*|plus|minus|times|over|divided\s+by|multiplied\s+by|"
    r"to\s+the\s+power\s+of|mod(?:ulo)?|(?:%|percent|per\s+cent)\s+of)"
)
_SUM = re.compile(
    r"^\W*(?:(?:please|and|so|ok(?:ay)?|can\s+you|could\s+you)\s+)*"
    r"(?:(?:how\s+much|what)(?:['’]s|\s+is|\s+are|\s+does|\s+do)?\s+|(?:calculate|compute|solve|evaluate|add|work\s+out)\s+)?"
    rf"[(\s]*(?:(?:the\s+)?(?:square|cube)\s+root\s+of\s+{_NUMBER}|{_NUMBER}\s+squared|{_NUMBER}[)\s]*(?:{_BETWEEN}[(\s]*{_NUMBER}[)\s]*)+)"
    r"(?:make|equal|is)?\s*=?\W*$",
    re.IGNORECASE,
)
_LETTER = re.compile(r"^\W*\w?\W*$")
_AMUSING = re.compile(
    r"^\W*(?:(?:please|can\s+you|could\s+you|now)\s+)*(?:(?:tell|give|sing|read|recite|say|write|make|know)\s+)(?:me\s+|us\s+)?(?:up\s+)?"
    r"(?:an?|another|some|any)\s+(?:(?:good|funny|short|new|dad|bedtime|little|more|fun)\s+)*"
    r"(?:jokes?|song|poem|haiku|limerick|story|riddles?|puns?|facts?|fairy\s*tale)\W*(?:please)?\W*$|^\W*(?:sing|dance|entertain\s+me|make\s+me\s+laugh|surprise\s+me)\b[^?]{0,30}$",
    re.IGNORECASE,
)


def is_idle(text: str) -> bool:
    """Whether there is nothing to look up in a text."""
    return len(text) < 200 and any(pattern.match(text) for pattern in (_SUM, _LETTER, _AMUSING))
