"""Care before something is done: days that are none, times that are over, people without an address, and the picture that
was made and has to be shown. What is in doubt is asked back, never guessed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from handrail.agents.offline.moments import Times, is_name_of_time, spoken
from handrail.agents.offline.view import Done, SeenTool, View
from handrail.agents.offline.vocabulary import NO_NAME
from handrail.agents.offline.whens import is_about_free_time, takes_addresses, takes_time
from handrail.agents.offline.wording import listed, one_line

_EMAIL = re.compile(r"[\w.+%-]{1,64}+@[\w.-]{1,255}\.\w{1,63}")
_NAME = r"[A-Z][\w'’-]{1,60}(?:[ \t]++[A-Z][\w'’-]{1,60}){0,2}(?!\w{0,64}@)"
_PERSON = rf"(?:{_EMAIL.pattern}|{_NAME})(?:\s*[(<]\s*{_EMAIL.pattern}\s*[)>])?"
_TOGETHER = re.compile(
    rf"\b(?:with|invite|inviting|include|including)\s+({_PERSON}(?:(?:\s*,\s*(?:and\s+)?|\s+and\s+){_PERSON})*)"
)
_WITHOUT = re.compile(
    r"\b(?:without|skip|leave\s+(?:it|them|him|her)|no\s+address|only\s+(?:the|those))\b", re.IGNORECASE
)


def doubt_about_time(tool: SeenTool, times: Times, now: datetime, need: str) -> str | None:
    """Why a time cannot be meant as it was said, and what is needed instead; None if there is nothing to ask."""
    if times.impossible and takes_time(tool):
        return f'There is no such day as "{one_line(times.impossible, 40)}". For that {need} another day.'
    if tool.category != "action" or not is_about_free_time(tool) or not takes_time(tool):
        return None
    if times.no_length:
        return f'Nothing can last "{one_line(times.no_length, 40)}". For that {need} how long it takes.'
    if times.is_backwards:
        return f"That would end before it begins. For that {need} the time at which it ends, or how long it takes."
    begin = times.begins(now)
    if begin is not None and begin < now:
        return f"That time, {spoken(begin, now)}, is over. For that {need} a time that is still to come."
    if times.day is not None and (times.last_day or times.day) < now.date():
        return f"That day is over. For that {need} a day that is still to come."
    return None


def doubt_about_people(tool: SeenTool, texts: list[str], need: str) -> str | None:
    """Who shall take part and has no address yet, where a tool takes addresses; None if nobody is left out."""
    if not any(takes_addresses(schema) for schema in tool.properties.values()):
        return None
    names = _without_address(texts)
    if not names or _WITHOUT.search(texts[-1]):
        return None
    whose = "addresses" if len(names) > 1 else "address"
    return f"I have no e-mail {whose} for {listed(names)}. For that {need} the {whose}."


def _without_address(texts: list[str]) -> list[str]:
    known = [address.split("@")[0].lower() for text in texts for address in _EMAIL.findall(text)]
    names: list[str] = []
    for text in texts:
        # An answer to the question for an address gives it without saying the name again.
        names = names[len(_EMAIL.findall(text)) :] if names else names
        for match in _TOGETHER.finditer(text):
            names += [name for name in _names(match[1]) if not _has_address(name, known) and name not in names]
    return names


def _names(people: str) -> list[str]:
    parts = [part.strip() for part in re.split(r" ?, ?(?:and )?| and ", " ".join(people.split()))]
    words = [[word for word in part.split() if not is_name_of_time(word)] for part in parts if "@" not in part]
    return [" ".join(name) for name in words if name and name[0].lower() not in NO_NAME]


def _has_address(name: str, known: list[str]) -> bool:
    return any(word.lower() in local for word in name.split() for local in known)


def showing(view: View, made: SeenTool, done: Done) -> tuple[SeenTool, list[dict[str, Any]]] | None:
    """The tool that shows to the user what another has made, and the calls of it: by the ids in what was made."""
    for tool in view.tools.values():
        if tool.name == made.name or not {"send", "show"} & set(tool.words):
            continue
        for name in tool.properties:
            noun = name.removesuffix("_id")
            if noun != name and noun in made.words and noun in tool.words:
                ids = _ids_of(done.data, noun)
                return (tool, [{name: one} for one in ids]) if ids else None
    return None


def _ids_of(data: Any, noun: str) -> list[str]:
    found = data.get(f"{noun}s", data.get(noun)) if isinstance(data, Mapping) else None
    members = found if isinstance(found, list) else [found]
    return [one["id"] for one in members if isinstance(one, Mapping) and isinstance(one.get("id"), str)][:4]
