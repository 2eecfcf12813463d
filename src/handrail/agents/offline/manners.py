"""Manners: greetings, thanks, and what is no way to talk. Abuse is warned of once, then answered with a pause.

The list is short on purpose. What is aimed at the one who is spoken to counts; anger about a thing that does not work does not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from handrail.agents.offline.view import Turn

BLOCKING = "ignore_user"
WARNING = "I would like to help you, but not in this tone. If it goes on like this, I will pause our conversation."
_INSULT = (
    r"(?:idiot|moron|imbecile|stupid|dumb|useless|worthless|pathetic|garbage|trash|scum|loser|bastard|bitch|asshole|arsehole|"
    r"dickhead|cunt|whore|slut|piece\s+of\s+(?:shit|crap)|retard(?:ed)?|disgusting|brain-?dead)"
)
_ABUSE = re.compile(
    rf"\byou(?:\s+are|['’]?re|\s+r)?\s+(?:(?:a|an|the|such|so|just|really|fucking|bloody|damn|complete|total|absolute|absolutely|totally)\s+)*{_INSULT}\b"
    rf"|\b{_INSULT}\s+(?:bot|assistant|machine|robot|ai)\b|^\W*{_INSULT}\W*$"
    r"|\b(?:fuck|screw|damn)\s+(?:you|u|off)\b|\bshut\s+(?:the\s+\w+\s+)?up\b|\bgo\s+to\s+hell\b|\bpiss\s+off\b|\bi\s+hate\s+you\b",
    re.IGNORECASE,
)
_THREAT = re.compile(
    r"\b(?:kill\s+yourself|(?:i\s+will|i['’]?ll|i\s+am\s+going\s+to|i['’]?m\s+(?:going\s+to|gonna)|gonna)\s+"
    r"(?:kill|murder|shoot|stab|beat|hurt|rape|find\s+and\s+\w+)\s+(?:you|him|her|them|your\s+(?:family|kids|children))\b)",
    re.IGNORECASE,
)
_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good\s+(?:morning|afternoon|evening|day)|greetings|howdy)(?:\s+(?:there|all|handrail))?\W*$",
    re.I,
)
_HOW_ARE_YOU = re.compile(
    r"^\W*(?:(?:hi|hello|hey|good\s+\w+)(?:\s+there)?\W+)?how(?:\s+are\s+you|['’]s\s+it\s+going|\s+is\s+it\s+going)"
    r"(?:\s+(?:doing|today|then))*\W*$",
    re.I,
)
_THANKS = re.compile(
    r"^\W*(?:(?:many\s+)?thanks?(?:\s+you)?(?:\s+(?:so|very)\s+much|\s+a\s+lot)?|cheers|great|perfect|cool|nice)(?:\W+(?:thanks?|thank\s+you))?\W*$",
    re.I,
)
_SORRY = re.compile(
    r"^\W*(?:(?:oh|ok(?:ay)?|yes|yeah|well|no|hey)\W+)*(?:(?:i\s+am|i['’]?m|we['’]?re)\s+)?(?:(?:so|very|really|truly|terribly)\s+)*"
    r"(?:sorry|(?:(?:i|we)\s+)?(?:do\s+|want\s+to\s+|must\s+)?apologi[sz]e|(?:my|many)\s+apologies|apologies|my\s+bad|my\s+fault|pardon(?:\s+me)?|"
    r"forgive\s+me|(?:i\s+)?(?:did\s+not|didn['’]t)\s+mean\s+(?:it|that))\b"
    r"(?:[\s,.!;-]+(?:(?:about|for)\s+(?:that|this|it|my\s+\w+|what\s+i\s+said|the\s+\w+|(?:\w+\s*){1,4})|i\s+(?:was|am|got)\s+(?:\w+\s*){1,3}|"
    r"i\s+(?:did\s+not|didn['’]t)\s+mean\s+(?:it|that|to)(?:\s+\w+){0,3}|that\s+was\s+(?:\w+\s*){1,3}|(?:bad|long)\s+day|mate|again|really|so\s+much|please))*\W*$",
    re.I,
)
_BYE = re.compile(
    r"^\W*(?:(?:cheers|thanks?(?:\s+you)?(?:\s+a\s+lot)?|ok(?:ay)?|great|perfect|no)\W+)*(?:bye|goodbye|good\s+night|see\s+you|that['’]?s\s+all)(?:\W+.{0,20})?\W*$",
    re.I,
)
_WHO = re.compile(
    r"\b(?:who|what)\s+are\s+you\b|\bwhat\s+can\s+(?:you|i)\s+(?:do|ask)|\bwhat\s+(?:tools|skills)\s+do\s+you\s+have|^\W*help\W*$",
    re.I,
)
_YES = re.compile(
    r"^\W*(?:yes|y|yeah|yep|sure|ok(?:ay)?|do\s+(?:it|that|so)|go\s+ahead|please\s+do|confirm(?:ed)?|approve[d]?|anyway|book\s+it)\b",
    re.I,
)
_NO = re.compile(
    r"^\W*(?:no?\b(?!\s+(?:problem|idea))|nope|never\s*mind|forget\s+(?:it|that)|cancel\s*(?:it|that)?\W*$|leave\s+it|stop\W*$)",
    re.I,
)


def abuse_in(text: str) -> Literal["threat", "insult"] | None:
    if _THREAT.search(text):
        return "threat"
    return "insult" if _ABUSE.search(text) else None


def was_warned(earlier: Sequence[Turn]) -> bool:
    """Whether a warning stands since the last block or apology: what is over or made good is forgotten."""
    for turn in reversed(earlier):
        if any(done.ok and done.call.name == BLOCKING for done in turn.done):
            return False
        if says_sorry(turn.text):
            return False
        if WARNING in turn.answer:
            return True
    return False


def small_talk(text: str) -> Literal["greeting", "thanks", "sorry", "bye", "who"] | None:
    """What needs no tool."""
    if _GREETING.match(text) or _HOW_ARE_YOU.match(text):
        return "greeting"
    if _THANKS.match(text):
        return "thanks"
    if says_sorry(text):
        return "sorry"
    if _BYE.match(text):
        return "bye"
    return "who" if _WHO.search(text) and len(text) < 80 else None


def says_yes(text: str) -> bool:
    return bool(_YES.match(text)) and len(text) < 80


def says_no(text: str) -> bool:
    return bool(_NO.match(text)) and len(text) < 80


def says_sorry(text: str) -> bool:
    return len(text) < 120 and bool(_SORRY.match(text))
