"""Steps: what to do next about a request, given what was called in this turn already. The loop of the prompt, in code.

Everything is worked out anew from the messages each time: the offline model keeps nothing between rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from handrail.agents.offline import manners
from handrail.agents.offline.agenda import events_told, lists_events
from handrail.agents.offline.aloud import aloud
from handrail.agents.offline.answering import Slots, answer_from, described, is_empty, records_in, slots_in, telling
from handrail.agents.offline.asking import (
    ANYWAY,
    NEED,
    WHICH,
    abilities,
    beyond,
    need_of,
    needed_besides,
    unable,
    when_besides,
)
from handrail.agents.offline.care import doubt_about_people, doubt_about_time, showing
from handrail.agents.offline.clocks import moment_told
from handrail.agents.offline.earlier import revised
from handrail.agents.offline.goals import (
    Choice,
    Goal,
    Wish,
    decide,
    is_search,
    kind_of,
    query_argument,
    reader_for,
)
from handrail.agents.offline.guides import answer_from_guide, guide_in
from handrail.agents.offline.leaving import (
    CANNOT_LEAVE,
    FAREWELL,
    HANDOVER,
    OFFER,
    ending_tool,
    leaving,
    wants_to_leave,
)
from handrail.agents.offline.moments import spoken
from handrail.agents.offline.narrowing import elsewhere, said_place
from handrail.agents.offline.outcomes import failure, shown_words, told
from handrail.agents.offline.view import Done, SeenTool, View
from handrail.agents.offline.whens import shows_a_zone
from handrail.agents.offline.wishes import is_open, wish_of
from handrail.agents.offline.wording import cleaned, listed
from handrail.agents.offline.zones import doubt_about_place
from handrail.picking.words import split_words

_ANOTHER = "If you want another one, please say what, when and with whom."
_IN_ITS_PLACE = "It takes the place of the request before; please decline that one."
_FULL = ("full_text", "content", "text", "body")


@dataclass(frozen=True, slots=True)
class Step:
    """Words, or calls to make."""

    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)


def next_step(view: View) -> Step:
    """What to do now; in voice, in words that can be heard."""
    step = _next_step(view)
    return replace(step, text=aloud(step.text, view.now)) if step.text and view.mode == "voice" else step


def _next_step(view: View) -> Step:
    if view.note is not None:
        return Step(told(view.note.tool, view.note.envelope, view))
    text = view.turn.text.strip()
    if not text:
        return Step("What can I do for you?")
    if not view.turn.done:
        step = _manners(view, text) or _short_reply(view, text)
        if step is not None:
            return step
    elif view.turn.done[-1].call.name == manners.BLOCKING:
        return Step(_after_block(view.turn.done[-1]))
    elif (ending := ending_tool(view)) is not None and view.turn.done[-1].call.name == ending.name:
        return Step(_after_leaving(view, view.turn.done[-1]))
    wish = wish_of(view)
    if wish.revises == "settled":
        return Step(f"That is settled already, and I have no tool to change it. {_ANOTHER}")
    goal = decide(view, wish)
    step = _follow(view, goal, wish)
    if step.calls and not (view.may_call and all(_fits(view, name, args) for name, args in step.calls)):
        return Step(_with_what_there_is(view, wish))
    return step


def _fits(view: View, name: str, args: dict[str, Any]) -> bool:
    """Whether a call is one that the tool takes; what was found by a search may be of another form than its reader wants."""
    tool = view.tools.get(name)
    validator = view.validator(tool) if tool is not None else None
    return validator is None or validator.is_valid(args)


# ------------------------------------------------------------------------------------------------------ manners
def _manners(view: View, text: str) -> Step | None:
    abuse = manners.abuse_in(text)
    if abuse is not None:
        if abuse == "insult" and not manners.was_warned(view.turns[:-1]):
            return Step(manners.WARNING)
        tool = view.tools.get(manners.BLOCKING)
        if tool is None or not view.may_call:
            return Step("I will not go on like this.")
        farewell = (
            "I do not accept threats. This conversation is over for today."
            if abuse == "threat"
            else ("I will not go on like this. We can talk again in a minute.")
        )
        seconds = 86_400 if abuse == "threat" else 60
        return Step("", [(tool.name, {"duration_seconds": seconds, "farewell_message": farewell})])
    talk = manners.small_talk(text)
    if view.mode == "voice" and (talk == "bye" or wants_to_leave(text)):
        left = leaving(view, "wish")
        return Step("", [left]) if left is not None else Step(FAREWELL if talk == "bye" else CANNOT_LEAVE)
    if talk == "greeting":
        return Step("Hello. What can I do for you?")
    if talk == "thanks":
        return Step("You are welcome.")
    if talk == "sorry":
        return Step("That is all right. What can I do for you?")
    if talk == "bye":
        return Step(FAREWELL)
    return Step(abilities(view)) if talk == "who" else None


def _after_block(done: Done) -> str:
    if done.ok:
        farewell = done.data.get("farewellMessage") if isinstance(done.data, Mapping) else None
        return str(farewell or "This conversation is paused for now.")
    return "I will not go on like this."


def _after_leaving(view: View, done: Done) -> str:
    if not done.ok:
        return failure(done, view)
    return HANDOVER if OFFER in view.turns[-2].answer else FAREWELL


def _short_reply(view: View, text: str) -> Step | None:
    """Yes and no, to what was asked last."""
    if len(view.turns) < 2:
        return None
    # A yes to something that waits does not settle it, so it may be said again; and we may have been silent in between.
    before = next(
        (turn for turn in reversed(view.turns[:-1]) if turn.done or (turn.answer and not manners.says_yes(turn.text))),
        view.turns[0],
    )
    if OFFER in before.answer and (manners.says_yes(text) or manners.says_no(text)):
        left = leaving(view, "handover") if manners.says_yes(text) else None
        return Step("", [left]) if left is not None else Step("All right. What else can I do for you?")
    asked = is_open(before)
    waits = before.waits
    held = waits and not before.settled
    if held and not asked and view.mode == "voice" and _answers_the_host(view, text):
        return Step()
    if (held or before.declined) and revised(view) is not None:
        return None
    if manners.says_no(text) and (asked or held):
        return Step(
            "All right, I leave it."
            if asked
            else "All right. Please decline the request that waits; I cannot do that for you."
        )
    if manners.says_yes(text) and held and not asked:
        return Step("I cannot approve it for you: please use the confirmation that your application shows.")
    if waits and before.settled and (manners.says_yes(text) or manners.says_no(text)):
        return Step("That is settled already. What else can I do for you?")
    return None


def _answers_the_host(view: View, text: str) -> bool:
    """Whether words are an answer to the question that the host reads aloud. It hears them itself, and asks again where they
    were unclear: a word of ours could only contradict it."""
    return manners.says_yes(text) or manners.says_no(text) or kind_of(text, view.tools) == "statement"


# -------------------------------------------------------------------------------------------------------- goals
def _follow(view: View, goal: Goal, wish: Wish) -> Step:
    if goal.kind == "search" and goal.choice is not None:
        return _search(view, goal.choice, wish)
    if goal.choice is not None and _done(view, goal.choice.tool) is None:
        if goal.choice.filled.passed:
            return Step(beyond(goal.choice))
        doubt = doubt_about_time(goal.choice.tool, wish.times, view.now, NEED)
        doubt = doubt or (doubt_about_place(wish.text) if shows_a_zone(goal.choice.tool) else None)
        if doubt is not None:
            return Step(doubt)
    if goal.kind == "use" and goal.choice is not None:
        return _use(view, goal.choice, wish)
    if goal.kind == "act" and goal.choice is not None:
        return _act(view, goal.choice, goal.look, wish)
    if goal.kind == "text":
        return Step(goal.why)
    if view.turn.done:
        return Step(_with_what_there_is(view, wish))
    return Step(unable(view, goal.why))


def _use(view: View, choice: Choice, wish: Wish) -> Step:
    done = _done(view, choice.tool)
    if done is None:
        return _call_or_ask(choice, view)
    place = elsewhere(view, choice.tool, _all_done(view, choice.tool)) if _is_missing(done) else None
    if place is not None and choice.tool.category == "retrieval":
        return Step("", [(choice.tool.name, {**choice.filled.args, **place})])
    if not done.ok:
        return Step(failure(_all_done(view, choice.tool)[0], view))
    if is_empty(done.data):
        search = next((tool for tool in view.tools.values() if is_search(tool) and tool.name != choice.tool.name), None)
        argument = query_argument(search) if search is not None else None
        if (
            search is not None
            and argument is not None
            and _done(view, search) is None
            and choice.tool.category == "retrieval"
        ):
            return Step("", [(search.name, {argument: _query(search, argument, wish)})])
        if search is not None and (found := _done(view, search)) is not None and found.ok and not is_empty(found.data):
            return Step(_answer(view, wish, [found]))
        return Step(f"I looked with {_spoken_name(choice.tool)} and found nothing that fits.")
    return Step(_answer(view, wish, [done]))


def _call_or_ask(choice: Choice, view: View) -> Step:
    if choice.filled.complete:
        return Step("", [(choice.tool.name, choice.filled.args)])
    return Step(need_of(choice, view))


def _is_missing(done: Done) -> bool:
    return done.error.get("type") == "NOT_FOUND" or (done.ok and is_empty(done.data))


def _all_done(view: View, tool: SeenTool) -> list[Done]:
    return [done for done in view.turn.done if done.call.name == tool.name]


def _done(view: View, tool: SeenTool) -> Done | None:
    return next((done for done in reversed(view.turn.done) if done.call.name == tool.name), None)


def _spoken_name(tool: SeenTool) -> str:
    return f'"{tool.name}"'


# ------------------------------------------------------------------------------------------------------- search
def _search(view: View, choice: Choice, wish: Wish) -> Step:
    argument = query_argument(choice.tool)
    if argument is None:
        return _call_or_ask(choice, view)
    searched = [done for done in view.turn.done if done.call.name == choice.tool.name]
    if not searched:
        where, text = said_place(choice.tool, wish.text)
        query = _query(choice.tool, argument, wish, text)
        return Step("", [(choice.tool.name, {**choice.filled.args, **where, argument: query})])
    last = searched[-1]
    if not last.ok and len(searched) == 1:
        return Step(failure(last, view))
    if not last.ok or is_empty(last.data):
        return _search_again(view, choice.tool, argument, wish, searched)
    reader = reader_for(view, choice.tool)
    if reader is not None and _done(view, reader[0]) is None and view.may_call:
        args = _reading(reader[0], reader[1], last)
        if args is not None:
            return Step("", [(reader[0].name, args)])
    read = _done(view, reader[0]) if reader is not None else None
    return Step(_answer(view, wish, [read, last] if read is not None and read.ok else [last]))


def _query(tool: SeenTool, argument: str, wish: Wish, text: str = "") -> str:
    """What to search for, no longer than the tool takes; `text` is the wish without what says where."""
    most = tool.properties.get(argument, {}).get("maxLength")
    return cleaned(text.strip() or wish.text)[: most if isinstance(most, int) else None]


def _search_again(view: View, tool: SeenTool, argument: str, wish: Wish, searched: list[Done]) -> Step:
    """Nothing found: once more with the words that matter, then with another search, then it is said."""
    where, text = said_place(tool, wish.text)
    words = " ".join(word for word in cleaned(text).split() if telling(word) & telling(text))
    beside = elsewhere(view, tool, searched) or {}
    again = {**where, **beside, argument: words or cleaned(text)}
    if len(searched) < 2 and again not in [done.args for done in searched]:
        return Step("", [(tool.name, again)])
    for other in view.tools.values():
        name = query_argument(other)
        if is_search(other) and name is not None and other.name != tool.name and _done(view, other) is None:
            return Step("", [(other.name, {name: _query(other, name, wish)})])
    found = [done for done in view.turn.done if done.ok and not is_empty(done.data)]
    if found:
        return Step(_answer(view, wish, found))
    looked = listed(list(dict.fromkeys(f'"{done.call.name}"' for done in view.turn.done)))
    return Step(f"I looked with {looked} and found nothing about that. Other words may help.")


def _reading(tool: SeenTool, argument: str, found: Done) -> dict[str, Any] | None:
    """The arguments to read the best records in full: those that come close to the best."""
    members = [
        m
        for value in found.data.values()
        if isinstance(value, list)
        for m in value
        if isinstance(m, Mapping) and isinstance(m.get("id"), str)
    ]
    if not members:
        return None
    scores = [float(score) if isinstance(score := member.get("score"), (int, float)) else 0.0 for member in members]
    best = max(scores)
    ids = [member["id"] for member, score in zip(members, scores, strict=True) if score >= 0.4 * best][:3]
    schema = tool.properties.get(argument, {})
    args: dict[str, Any] = {argument: ids if schema.get("type") == "array" else ids[0]}
    if schema.get("type") == "array" and isinstance(schema.get("maxItems"), int):
        args[argument] = ids[: schema["maxItems"]]
    for name, member in tool.properties.items():
        items = member.get("items")
        fields = items.get("enum") if isinstance(items, Mapping) else None
        if fields and set(fields) & set(_FULL):
            args[name] = [value for value in fields if value in (*_FULL, "url", "snippet", "metadata")]
        elif name in found.args and name != argument:
            args[name] = found.args[name]  # what the search was narrowed to, such as a namespace
    return args


def _answer(view: View, wish: Wish, done: list[Done]) -> str:
    """From what was read: sentences with sources where there are records, free times, or the facts themselves."""
    aloud = view.mode == "voice"
    planned = events_told(done[0].data, view.now) if lists_events(wish.texts[0]) else None
    if planned is not None:
        return planned
    slots = slots_in(done[0].data)
    if slots is not None:
        return _free_times(slots, view.now)
    guide = guide_in(done[0].data)
    if guide is not None:
        return answer_from_guide(_question(wish), guide, spoken_aloud=aloud)
    records = records_in(done[0].data)
    if any(record.text for record in records):
        addresses = {record.id: record.url for one in done[1:] for record in records_in(one.data)}
        records = [replace(record, url=record.url or addresses.get(record.id, "")) for record in records]
        return answer_from(_question(wish), records, spoken_aloud=aloud)
    return moment_told(done[0], view) or described(done[0].data, view.now)


def _question(wish: Wish) -> str:
    return wish.texts[-1] if len(wish.texts) == 1 else wish.text


def _with_what_there_is(view: View, wish: Wish) -> str:
    """No more calls: the answer from what was found so far."""
    found = [done for done in view.turn.done if done.ok and not is_empty(done.data)]
    if found:
        return _answer(view, wish, list(reversed(found)))
    failed = [done for done in view.turn.done if not done.ok]
    return failure(failed[-1], view) if failed else "I could not find anything about that."


# ------------------------------------------------------------------------------------------------------- acting
def _act(view: View, choice: Choice, look: Choice | None, wish: Wish) -> Step:
    """Look first, propose where something is open, then act; what waits for a person is told and left."""
    acted = _done(view, choice.tool)
    if acted is not None and acted.ok and (shown := showing(view, choice.tool, acted)) is not None:
        return _show(view, acted, *shown)
    if acted is not None:
        note = (
            f" {_IN_ITS_PLACE}" if wish.revises == "held" and acted.error.get("type") == "CONFIRMATION_REQUIRED" else ""
        )
        return Step(told(choice.tool.name, acted.envelope, view) + note)
    if look is not None:
        looked = _done(view, look.tool)
        if looked is None:
            return Step("", [(look.tool.name, look.filled.args)])
        if looked.error.get("type") == "NOT_FOUND":
            return Step(failure(looked, view))
        slots = slots_in(looked.data)
        proposal = _proposal(view, choice, wish, slots) if slots is not None else None
        if proposal is not None:
            return Step(proposal)
    doubt = doubt_about_people(choice.tool, wish.texts, NEED)
    if doubt is not None:
        return Step(f"{doubt}{when_besides(choice)}")
    if not choice.filled.complete:
        return Step(need_of(choice, view))
    return Step("", [(choice.tool.name, choice.filled.args)])


def _show(view: View, made: Done, tool: SeenTool, wanted: list[dict[str, Any]]) -> Step:
    """What was made is shown, then it is said."""
    sent = _done(view, tool)
    if sent is None:
        return Step("", [(tool.name, args) for args in wanted])
    return Step(shown_words(made) if sent.ok else failure(sent, view))


def _proposal(view: View, choice: Choice, wish: Wish, slots: Slots) -> str | None:
    """Free times to choose from, if no time was named or the one that was is taken; None to go on."""
    begin, end = wish.times.begins(view.now), wish.times.ends(view.now)
    minutes = wish.times.minutes or 60
    if begin is not None and end is not None:
        agreed = len(view.turns) > 1 and ANYWAY in view.turns[-2].answer and manners.says_yes(view.turn.text)
        if slots.is_free(begin, end) or agreed:
            return None
        free = slots.proposals(round((end - begin).total_seconds() / 60))
        if not free:
            return f"At that time, {spoken(begin, view.now)}, you are busy. {ANYWAY}"
        return f"At that time, {spoken(begin, view.now)}, you are busy. {ANYWAY} Or one of these:\n{_numbered(free, view.now)}"
    free = slots.proposals(minutes)
    if not free:
        return f"I see no free time of {minutes} minutes there. For that {NEED} another day."
    others = [
        name for name in choice.filled.missing if not set(split_words(name)) & {"start", "end", "time", "date", "when"}
    ]
    more = needed_besides(others, choice.tool)
    return f"These times are free for {minutes} minutes:\n{_numbered(free, view.now)}\n{WHICH}{more}"


def _numbered(free: list[tuple[datetime, datetime]], now: datetime) -> str:
    return "\n".join(
        f"{number}. {spoken(begin.astimezone(now.tzinfo), now)}–{end.astimezone(now.tzinfo):%H:%M}"
        for number, (begin, end) in enumerate(free, 1)
    )


def _free_times(slots: Slots, now: datetime) -> str:
    free = [f"- {spoken(b.astimezone(now.tzinfo), now)}–{e.astimezone(now.tzinfo):%H:%M}" for b, e in slots.free[:8]]
    taken = [f"{b.astimezone(now.tzinfo):%a %H:%M}–{e.astimezone(now.tzinfo):%H:%M}" for b, e in slots.taken[:8]]
    first = "\n".join(["Free:", *free]) if free else "There is no free time in that range."
    return f"{first}\nTaken: {', '.join(taken)}." if taken else f"{first}\nNothing is taken in that range."
