"""The journey to a meeting: what is missing is asked for, the calendar is looked at, and the call waits for approval.

A draft lives in the question that the model asked last ("So far: …"), with the day written out: so "tomorrow" means the same day
in the next turn, whenever that is.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, time, timedelta
from typing import Any

from handrail_reference.demo.phrases import FILLERS, REPLY, SAYS
from handrail_reference.demo.view import Outcome, Step, View
from handrail_reference.demo.when import When, read_when, spoken_day

CREATE, LOOK = "calendar_create_event", "calendar_get_availability"


@dataclass(frozen=True, slots=True)
class MeetingDraft:
    """What is known of a meeting. `people` are addresses, and names whose address is still missing."""

    title: str = "Meeting"
    people: tuple[str, ...] = ()
    day: date | None = None
    clock: time | None = None
    minutes: int = 60
    unnoted: str = ""
    """Words that a booking cannot keep. Nothing is booked before the user has settled them."""
    hint: str = ""
    """What was said of the time, while the start is not known: "in the morning", "until 15:00"."""

    def recap(self) -> str:
        who = f" with {', '.join(self.people)}" if self.people else ""
        day = f" on {spoken_day(self.day)}" if self.day else ""
        clock = f" at {self.clock:%H:%M}" if self.clock else f" {self.hint}".rstrip()
        return f'So far: "{self.title}"{who}{day}{clock}{"" if "until" in clock else f", {self.minutes} minutes"}.'

    def asks(self, question: str) -> Step:
        unnoted = f'I cannot note "{self.unnoted}". ' if self.unnoted else ""
        return Step(f"{unnoted}{question} {self.recap()}")


def is_booking(text: str, when: When) -> bool:
    """Whether a sentence plainly orders a meeting. One without a verb ("lunch thurs 12:30") has to say when, and no more."""
    order = SAYS["order"].match(when.rest)
    if order is None or SAYS["question"].match(text) or SAYS["forbids"].search(when.rest):
        return False
    unread = {word.lower() for word in _names(when.other)[1]}
    unread -= set(re.findall(r"\w+", " ".join(SAYS["email"].findall(text.lower()))))  # "call bob", with his address
    return not order["short"] or (bool(when) and not unread and not text.endswith("?"))


def why_not(when: When) -> str:
    """Why a sentence about a meeting is no order: what could not be read in it, if it begins like one."""
    forbids, repeats = (SAYS[name].search(when.rest) for name in ("forbids", "repeats"))
    unread = forbids[0] if forbids else " ".join(_names(when.rest)[1])
    why = "no_repeats" if repeats else "unread" if unread and SAYS["begins"].match(when.rest) else "plain"
    return REPLY[why].format(unread)


def new_booking(view: View, text: str, when: When) -> Step:
    """A meeting is ordered."""
    if when.several or SAYS["several_meetings"].search(SAYS["title"].sub("", when.rest)):
        return MeetingDraft().asks("I book one meeting at a time. Who, which day and what time is the first?")
    order, kind = SAYS["order"].match(when.rest), SAYS["kind"].search(when.rest)
    what = (order and order["what"]) or (kind[0] if kind else "")
    draft = MeetingDraft(what.capitalize() if what.lower() not in ("", "event", "slot") else "Meeting")
    return _next(view, _changed(draft, text, when), when)


def continued_booking(view: View, text: str) -> Step | None:
    """An answer about a draft, or a correction of a meeting that waits or was declined; None if it is about something else."""
    bare, turn = read_when(SAYS["email"].sub("@", text), view.now), view.turn_before
    if (bare or SAYS["email"].search(text)) and not any(_names(bare.rest)):
        # Nothing but a day, a time or an address: it may answer what was asked some turns ago.
        for turn in reversed(view.turns[:-1]):
            if SAYS["recap"].search(turn.answer) or turn.outcome(CREATE) or SAYS["no"].match(turn.text):
                break
    question, before = turn.answer, [one for one in turn.outcomes[-1:] if one.name == CREATE and not one.ok]
    recap = SAYS["recap"].search(question)
    if not (recap or before) or (bare and SAYS["new_topic"].match(bare.rest)):
        return None
    draft = _from_recap(recap.groupdict("")) if recap else _from_args(before[0].args, view)
    if recap and "Shall I book it" in question and SAYS["without" if draft.unnoted else "yes"].match(text):
        return _next(view, replace(draft, unnoted=""), When(), look=REPLY["anyway"] not in question)
    when = read_when(_answered(question, SAYS["email"].sub("@", text), draft), view.now, draft.clock)
    changed = _changed(draft, text, when, replaces=recap is None)
    if when.several:
        return draft.asks("I understood more than one day or time. Which one do you mean?")
    # What is as it was may yet be an answer: "an hour".
    is_same = changed == draft and not when.questions and not (recap and bare)
    if is_same or (len(when.rest.split()) > 6 and not SAYS["fixing"].match(text)):
        return draft.asks("I understood no change in that.") if SAYS["remakes"].match(text) else None
    if SAYS["forbids"].search(when.rest):
        return draft.asks("Please say what it should be, not what it should not be.")
    if not recap and changed.people == draft.people and SAYS["another"].search(text):
        return Step(REPLY["another"])
    if unread := _names(when.other)[1]:
        return draft.asks(REPLY["unread_answer"].format(" ".join(unread)))
    return _next(view, changed, when)


def _answered(question: str, text: str, draft: MeetingDraft) -> str:
    """A choice between two days, a part of the day or an hour, completed by the words that were left out or said before."""
    options, choice = SAYS["options"].search(question), SAYS["choice"].match(text)
    if options and choice:
        text = options["first" if choice["which"].lower() in ("first", "former", "earlier", "1") else "second"]
    name, said = ("end_alone", "until ") if REPLY["how_long"] in question else ("bare_hour", r"at \g<hour>")
    text = SAYS[name].sub(said, text if draft.clock else SAYS["number_alone"].sub(r"at \1", text))
    asked = re.search(r'mean "(.+?)" in the morning', question)
    text = f"{asked[1]} {text}" if asked and SAYS["half_of_day"].match(text) else text
    return text if SAYS["hint"].search(text) else f"{text} {draft.hint}".strip()


def booked(view: View) -> Step:
    """What was booked in this conversation."""
    lines = []
    for outcome in (one for one in reversed(view.outcomes) if one.name == CREATE):
        state = "is booked" if outcome.ok else "waits for your approval" if outcome.held else "was not booked"
        lines.append(f"{_from_args(outcome.args, view).recap().removeprefix('So far: ')[:-1]}: {state}.")
    return Step("\n".join(lines) or "Nothing was booked in this conversation.")


def created(outcome: Outcome, view: View) -> str:
    """The sentence for an event that is in the calendar."""
    start, end = (datetime.fromisoformat(outcome.data[name]).astimezone(view.now.tzinfo) for name in ("start", "end"))
    title = f'"{outcome.args["title"]}"' if outcome.args else "The event"
    who, link = ", ".join(outcome.data["attendees"]), outcome.data.get("meeting_link")
    done = f"Done. {title} is in the calendar: {spoken_day(start.date())}, {start:%H:%M}–{end:%H:%M}, with {who}."
    return f"{done} Meeting link: {link}" if link and not view.voice else done


def _changed(draft: MeetingDraft, text: str, when: When, *, replaces: bool = False) -> MeetingDraft:
    """A draft with what a sentence says. Where people are known, new ones are added, or they replace those."""
    people = [*(addresses := SAYS["email"].findall(text)), *_names(when.rest)[0]]
    if people and (not replaces or SAYS["adding"].search(text)):
        names = [one for one in draft.people if "@" not in one][len(addresses) :]  # each address answers for one name
        people = [*(one for one in draft.people if "@" in one), *people, *names]
    found, everybody = SAYS["title"].search(when.rest), tuple(dict.fromkeys(people)) or draft.people
    title = re.sub("^.", lambda first: first[0].upper(), found["title"].strip(" ,")) if found else draft.title
    # "Tomorrow morning" is no time, and takes the old one back.
    clock = when.clock or (None if when.hint else draft.clock)
    said = (when.day or draft.day, clock, when.minutes or draft.minutes, draft.unnoted, when.hint)
    return MeetingDraft(title, everybody, *said)


def _names(rest: str) -> tuple[list[str], list[str]]:
    """The names of people in a sentence, and the words that say something else than is understood."""
    names: list[str] = []
    found = SAYS["with"].search(rest := SAYS["title"].sub(" ", rest))
    unread = SAYS["kind"].sub("", SAYS["order"].sub("", SAYS["with"].sub(" ", rest)))
    for part in re.split(r",|&|\band\b|\bplus\b", re.sub(r"[\w ]*[<(]@[>)]", "@", found["names"])) if found else ():
        is_name = SAYS["name"].fullmatch(part) and FILLERS.isdisjoint(part.lower().split())
        names, unread = ([*names, " ".join(part.split()).title()], unread) if is_name else (names, f"{unread} {part}")
    return names, [word for word in re.findall(r"[\w'’-]+", unread) if word.lower() not in FILLERS]


def _from_recap(said: Mapping[str, str]) -> MeetingDraft:
    day = datetime.strptime(said["day"], "%d %B %Y").date() if said["day"] else None  # noqa: DTZ007  # only its date
    clock = time.fromisoformat(said["clock"]) if said["clock"] else None
    people = tuple(said["people"].split(", ")) if said["people"] else ()
    return MeetingDraft(said["title"], people, day, clock, int(said["minutes"] or 60), said["unnoted"], said["hint"])


def _from_args(args: Mapping[str, Any], view: View) -> MeetingDraft:
    start, end = (datetime.fromisoformat(args[name]).astimezone(view.now.tzinfo) for name in ("start_time", "end_time"))
    draft = MeetingDraft("", (*args["attendees"],), start.date(), start.time(), (end - start) // timedelta(minutes=1))
    kind = SAYS["kind"].match(args["title"])
    return replace(draft, title=kind[0] if kind and args["title"] == _title(kind[0], draft.people) else args["title"])


def _title(kind: str, people: Iterable[str]) -> str:
    return f"{kind} with {' and '.join(one.split('@')[0].replace('.', ' ').title() for one in people)}"[:200]


def _next(view: View, draft: MeetingDraft, when: When, *, look: bool = True) -> Step:
    """Ask for what is missing, look at the calendar, or make the call."""
    question = when.questions[0] if when.questions else _missing(draft, view.now)
    known = re.findall(r"\w+", " ".join(draft.people).lower())
    old = "" if when.minutes and SAYS["unnoted_length"].fullmatch(draft.unnoted) else draft.unnoted
    unnoted = " ".join(dict.fromkeys(one for one in [*old.split(), *_names(when.other)[1]] if one.lower() not in known))
    asked = " ".join(when.questions)  # whatever day or time stood there before, another one was meant
    is_day = "day" in (asked if when.day else asked.replace("Which day and time", ""))
    day, clock = None if is_day else draft.day, None if re.search("time|morning", asked) else draft.clock
    draft = replace(draft, day=day, clock=clock, unnoted=unnoted)
    if question or unnoted or draft.day is None or draft.clock is None:
        return draft.asks(question or "Shall I book it without that?")
    start = datetime.combine(draft.day, draft.clock, view.now.tzinfo)
    begin, end = start.isoformat(), (start + timedelta(minutes=draft.minutes)).isoformat()
    if LOOK in view.tools and look:
        if (seen := view.turn.outcome(LOOK)) is None:
            return Step("", [(LOOK, {"start_date": begin, "end_date": end})])
        if seen.data.get("existing_events"):
            return draft.asks(REPLY["anyway"])
    title = _title(draft.title, draft.people) if SAYS["kind"].fullmatch(draft.title) else draft.title
    return Step("", [(CREATE, {"title": title, "start_time": begin, "end_time": end, "attendees": [*draft.people]})])


def _missing(draft: MeetingDraft, now: datetime) -> str:
    if draft.day is None or draft.clock is None:
        at = "At what time" if draft.day else "On which day, and at what time"
        return "On which day?" if draft.clock else f"{at}{' does it start' if 'until' in draft.hint else ''}?"
    start = datetime.combine(draft.day, draft.clock, now.tzinfo)
    if start <= now:
        return "That time is over. Which day and time do you mean?"
    if datetime.fromtimestamp(start.timestamp(), now.tzinfo).time() != draft.clock:
        return "Clocks are put forward then, and that time does not exist. At what other time?"
    nameless = [one for one in draft.people if "@" not in one]
    return f"What is the e-mail address of {nameless[0]}?" if nameless else "" if draft.people else REPLY["whom"]
