"""Which journey a sentence begins or continues, and the next step on it. Everything is worked out anew from the messages."""

from collections.abc import Callable
from datetime import datetime, time, timedelta
from typing import Any

from handrail_reference.demo import booking, handbook
from handrail_reference.demo.phrases import REPLY, SAYS, declined, failure, small_talk, suggestions
from handrail_reference.demo.view import Outcome, Step, View
from handrail_reference.demo.when import When, read_when, spoken_day

_PLACES = {"first": 1, "second": 2, "third": 3, "fourth": 4, "1": 1, "2": 2, "3": 3, "4": 4}


def next_step(view: View) -> Step:
    """What to do now."""
    text = SAYS["polite"].sub("", view.turn.text.strip()) or view.turn.text.strip()
    outcome = view.news or next(iter(view.turn.outcomes[-1:]), None)
    if outcome is not None and not outcome.ok:
        return Step(failure(outcome, view.voice))
    if view.news is not None:
        is_event = view.news.name == booking.CREATE
        return Step(booking.created(view.news, view) if is_event else f"Done. {view.news.name} was carried out.")
    journeys = (_abuse, _reply, _voice, _small_talk, _calendar, _picture, _contacts, _handbook)
    step = next((step for journey in journeys if (step := journey(view, text)) is not None), None) or declined(view)
    return step if view.may_call or not step.calls else Step("I could not finish that in one turn.")


def _call(view: View, tool: str, args: dict[str, Any], say: Callable[[Outcome], Step]) -> Step:
    """A call, and what to say when it is done; or that this conversation does not have the tool."""
    if (done := view.turn.outcome(tool)) is not None:
        return say(done)
    if tool in view.tools:
        return Step("", [(tool, args)])
    if view.voice:
        return Step(REPLY["offer_text"] if "end_voice_session" in view.tools else "I can do that in text only.")
    return declined(view, f"`{tool}` is not offered in this conversation.")


def _abuse(view: View, text: str) -> Step | None:
    threat = SAYS["threat"].search(text)
    if threat is None and SAYS["insult"].search(text) is None:
        return None
    warned = False
    for turn in view.turns[:-1]:  # a block that is over, and an apology, make a warning forgotten
        forgotten = turn.outcome("ignore_user") or SAYS["sorry"].search(turn.text)
        warned = REPLY["warning"] in turn.answer or bool(warned and not forgotten)
    if not threat and not warned:
        return Step(REPLY["warning"])
    farewell = f"I will not go on like this. This conversation is paused for {'today' if threat else 'a minute'}."
    args = {"duration_seconds": 86_400 if threat else 60, "farewell_message": farewell}
    return _call(view, "ignore_user", args, lambda _: Step(farewell))


def _reply(view: View, text: str) -> Step | None:
    """An answer to what the model asked last, or a word about what waits."""
    last, yes, no = view.turn_before.answer, SAYS["yes"].match(text), SAYS["no"].match(text)
    if yes and REPLY["offer_text"] in last:
        return _call(view, "end_voice_session", {"reason": "handover"}, lambda _: Step("All right, please type it."))
    if no and (last.endswith("?") or SAYS["recap"].search(last)):
        return Step("All right, I leave it.")
    if REPLY["paste"] in last and SAYS["contact"].search(text):
        return _contacts(view, text, text)
    if REPLY["free_day"] in last and (when := read_when(text, view.now)):
        return _free(view, when, text)
    step = None if no else booking.continued_booking(view, text)
    if step is not None or not (yes or no):
        return step
    if any(outcome.held for outcome in view.outcomes):
        return Step("" if view.voice else REPLY["cannot_decide"])  # in voice, the host asks and hears the answer
    return None if SAYS["undo"].match(text) else Step(REPLY["nothing_asked"], (), suggestions(view))


def _voice(view: View, text: str) -> Step | None:
    if view.voice and (SAYS["leave"].match(text) or small_talk(text) == "Goodbye."):
        return _call(view, "end_voice_session", {"reason": "user_requested"}, lambda _: Step("Goodbye."))
    wish = None if view.voice else SAYS["voice"].fullmatch(text)
    args = {"pending_request": wish["request"].strip(" ,.;?!")[:500] if wish else ""}
    return _call(view, "start_voice_session", args, lambda _: Step(REPLY["voice_starts"])) if wish else None


def _small_talk(view: View, text: str) -> Step | None:
    if SAYS["abilities"].search(text) and len(text) < 80:
        return declined(view, "I am the demo model of Handrail.")
    return Step(answer, (), suggestions(view)) if (answer := small_talk(view.turn.text)) else None


def _calendar(view: View, text: str) -> Step | None:
    when = read_when(SAYS["email"].sub("@", text), view.now)
    if SAYS["booked"].search(text):
        return booking.booked(view)
    if booking.is_booking(text, when):
        order = booking.new_booking(view, text, when)
        return order if booking.CREATE in view.tools else _call(view, booking.CREATE, {}, lambda _: Step())
    if SAYS["mention"].search(when.rest) and not SAYS["question"].match(text):
        return declined(view, booking.why_not(when))
    if SAYS["free"].match(text):
        return _free(view, when, text)
    return Step(REPLY["no_changes"]) if SAYS["undo"].match(text) else None


def _free(view: View, when: When, text: str) -> Step:
    if when.questions or when.day is None:
        return Step(" ".join([*when.questions[:1], REPLY["free_day"]]))
    start = datetime.combine(when.day, when.clock or time(8), view.now.tzinfo)
    end = start + timedelta(minutes=when.minutes or (60 if when.clock else 600))

    def say(seen: Outcome) -> Step:
        events, hours = seen.data["existing_events"], slice(11, 16)
        taken = "; ".join(f"{e['start'][hours]}–{e['end'][hours]} {e.get('title') or ''}".strip() for e in events)
        about = f"On {spoken_day(start.date())} between {start:%H:%M} and {end:%H:%M}"
        return Step(f"{about}, this is taken: {taken}. The rest is free." if taken else f"{about}, you are free.")

    args = {"start_date": start.isoformat(), "end_date": end.isoformat(), "include_details": "free" not in text}
    return _call(view, booking.LOOK, args, say)


def _contacts(view: View, text: str, pasted: str = "") -> Step | None:
    wish = SAYS["contacts"].fullmatch(text)
    if wish is None and not pasted:
        return None
    text, kind = (wish["text"].strip(), wish["kind"].lower()) if wish else (pasted, "")

    def say(done: Outcome) -> Step:
        names = {person["contact"]: f"{person['name']}: " for person in done.data["people"]}
        wanted = [name for name in ("email", "phone") if name[1:] in kind] or ["email", "phone", "url"]
        found = [one[name] for name in wanted for one in done.data[f"{name}s"]]
        lines = [f"- {names.get(one, '')}{one}" for one in dict.fromkeys(found)]
        return Step("\n".join(["I found:", *lines]) if lines else REPLY["no_contacts"])

    # "this text", but no text
    return _call(view, "extract_contacts", {"text": text[:20_000]}, say) if text else Step(REPLY["paste"])


def _picture(view: View, text: str) -> Step | None:
    choice, wish = SAYS["choice"].match(text), SAYS["picture"].match(text)
    drafts = next((one for one in reversed(view.outcomes) if one.name == "image_draft_prompt" and one.ok), None)
    prompts: list[str] = drafts.data["prompts"] if drafts else []
    if choice is not None and (prompts or not text.isdigit()):
        number = _PLACES.get(choice["which"].lower(), len(prompts))
        if not 0 < number <= len(prompts):
            offered = f"{len(prompts)} pictures" if prompts else "nothing"
            return Step(f"I have offered {offered} to choose from.", (), suggestions(view))
        return _draw(view, prompts[number - 1])
    if wish is None:
        return None

    def say(done: Outcome) -> Step:
        lines = [f"{number}. {prompt}" for number, prompt in enumerate(done.data["prompts"], 1)]
        picks = [f"Use the {word} one" for word in list(_PLACES)[: len(lines)]]
        return Step("\n".join([REPLY["prompts"], "", *lines, "", "Which one shall I draw?"]), (), picks)

    idea = wish["text"].strip(" .?!")[:500]
    if other := SAYS["not_drawn"].search(idea):
        return Step(REPLY[other.lastgroup or "one_picture"].format(other[0].strip()), (), suggestions(view))
    return _call(view, "image_draft_prompt", {"idea": idea}, say) if idea else Step("A picture of what?")


def _draw(view: View, prompt: str) -> Step:
    def say(made: Outcome) -> Step:
        image = made.data["images"][0]
        shown = REPLY["placeholder" if "placeholder" in image["engine"] else "picture"]
        return _call(view, "send_image", {"image_id": image["id"]}, lambda _: Step(shown))

    return _call(view, "image_generate", {"prompt": prompt}, say)


def _handbook(view: View, text: str) -> Step | None:
    if not SAYS["for_handbook"].match(text) or "kb_search" not in view.tools:
        return None
    known = handbook.known_answer(text)
    if known is None:
        why = "calendar" if SAYS["about_calendar"].search(text) and read_when(text, view.now) else "known_questions"
        return declined(view, REPLY["follow_up" if SAYS["follow_up"].match(text) else why])

    def say(found: Outcome) -> Step:
        answer = handbook.quoted_answer(found.data.get("results", ()), known, view.voice)
        return Step(answer) if answer else declined(view, REPLY["known_questions"])

    fields = {} if view.voice else {"return_fields": ["snippet", "full_text", "url"]}
    return _call(view, "kb_search", {"query": known["search"], **fields}, say)
