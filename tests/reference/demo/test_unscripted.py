"""What people say without having read the demo's code: nothing wrong is done, and nothing is said beside the point.

The sentences were written before the model was tried on them, and it is mended for kinds of sentences, never for one of them.
Each says what is right: a call that changes something, with the arguments that matter; a question; a passage of the handbook
("quoted") or, as good, that there is none ("quotes"); or that no language model is connected.
"""

from typing import Any

import pytest
from tests.reference.demo.conftest import Opens

BOOK = "book a meeting with ana@example.com tomorrow at 3 pm"
NINE = "Book a meeting with a@x.org tomorrow at 9am"
DECLINES, PLAIN = "No language model is connected", "I book only what is plainly asked for"
NO_ORDERS = [
    f"Don't {NINE}",
    f"Do not {NINE}",
    f"Please never {NINE}",
    "I did not schedule a meeting with a@x.org tomorrow at 9am",
    "Book a meeting with a@x.org except tomorrow at 9am",
    f"Anna will {NINE}",
    "I hate it when people schedule meetings with a@x.org tomorrow at 9am",
    f"If Anna says yes, {NINE}",
    f"{NINE} if Anna says yes",
    f"Unless it rains, {NINE}",
    f"Translate into German: {NINE}",
    f"My colleague said: {NINE}",
]


def at(start: str, end: str = "", **more: Any) -> dict[str, Any]:
    return {
        "calendar_create_event": {
            "start_time": f"{start}:00+01:00",
            **({"end_time": f"{end}:00+01:00"} if end else {}),
            **more,
        }
    }


SENTENCES: list[tuple[list[str], Any]] = [
    # Questions about Handrail: the only page that may be quoted; "" means that none may be.
    (["How do I write my own tool?"], {"quotes": "new_tool"}),
    (["What happens if the server crashes in the middle of a write?"], {"quoted": "crash"}),
    (["Can the model approve its own booking?"], {"quoted": "approval"}),
    (["Can the model book a meeting without my approval?"], {"quoted": "approval"}),
    (["how do I connect an Anthropic key instead of this demo"], {"quoted": "model"}),
    (["is it open source?"], {"quoted": "licence"}),
    (["is there a limit on how many calls a model can make"], {"quotes": "budget"}),
    (["Does it work with Claude?"], {"quotes": "providers"}),
    (["how much does it cost"], {"quotes": ""}),
    (["whats the licence"], {"quoted": "licence"}),
    (["does handrail work with ollama"], {"quoted": "providers"}),
    (["Which python version do I need?"], {"quoted": "requirements"}),
    (["Who wrote Handrail?"], {"quotes": ""}),
    (["where are my API keys stored"], {"quotes": ""}),
    (["what's the difference between a gate and a tool?"], {"quotes": ""}),
    (["How does it stop double bookings?"], {"quotes": "double_bookings"}),
    (["how are duplicate meetings prevented after a reconnect"], {"quoted": "double_bookings"}),
    (["can two people approve the same request"], {"quotes": "approv"}),
    (["Tell me about the audit log"], {"quotes": "glossary_around_it"}),
    (["what is idempotency"], {"quotes": ""}),
    (["Is there a docker image?"], {"quotes": ""}),
    (["how do confirmations work"], {"quotes": "approval"}),
    (["what's the weather like in Split"], {"quotes": ""}),
    (["what time is it"], {"quotes": ""}),
    (["What is the budget gate?"], {"quotes": "handrail_answer"}),
    # Bookings.
    (["lunch thurs 12:30 with ana@example.com"], at("2026-11-19T12:30", title="Lunch with Ana")),
    (["Set up a call with bob@example.com for the day after tomorrow at half past nine"], at("2026-11-18T09:30")),
    (
        ["schedule a 45 minute sync with carol@example.org on Friday 20 November at 4pm"],
        at("2026-11-20T16:00", "2026-11-20T16:45"),
    ),
    (["dinner with ana@example.com tonight at 8"], at("2026-11-16T20:00")),
    (
        ["Can you put a review with ana@example.com in my calendar on Dec 3rd from 14:00 to 15:30?"],
        at("2026-12-03T14:00", "2026-12-03T15:30"),
    ),
    (["book ana@example.com on friday the 21st at 2"], "Saturday 21 November 2026"),
    (["meeting with ana@example.com yesterday at 4"], "is over. Which day do you mean?"),
    (["Book a meeting with ana@example.com on 30 February at 10"], "Which day do you mean?"),
    (["coffee with ana@example.com next tuesday 10:30"], "Tuesday 17 November 2026 or Tuesday 24 November 2026?"),
    (["please arrange an interview with dan@example.com on 12/11 at 10"], "Which day do you mean?"),
    (["book a meeting with ana@example.com at 3pm New York time tomorrow"], "Which day and time do you mean?"),
    (["book a meeting with ana@example.com 15 minutes ago"], "Which day and time do you mean?"),
    (["every monday at 9 standup with team@example.com"], DECLINES),
    (["book a meeting with Ana tomorrow at 3"], "in the morning or in the afternoon?"),
    (["book a meeting with Ana tomorrow at 3", "in the afternoon"], "What is the e-mail address of Ana?"),
    (["book a meeting with ana@example.com and Bob tomorrow at 3", "pm"], "What is the e-mail address of Bob?"),
    (["book a meeting tomorrow"], "At what time?"),
    (["meet bob@example.com wed 9ish"], "At what time?"),
    (["remind me to call bob tomorrow at 5"], DECLINES),
    (["can you help me write an email to ana@example.com about lunch tomorrow"], DECLINES),
    (["book something with ana@example.com"], DECLINES),
    (["book a flight to Paris tomorrow at 9"], DECLINES),
    (["reserve a table for two tomorrow at 7pm"], DECLINES),
    (["When am I free on Thursday?"], "On Thursday 19 November 2026"),
    # Corrections, and words about what waits.
    ([BOOK, "sorry, I meant Wednesday"], at("2026-11-18T15:00")),
    ([BOOK, "no wait, friday at 10 and make it two hours"], at("2026-11-20T10:00", "2026-11-20T12:00")),
    ([BOOK, "make it 30 minutes"], at("2026-11-17T15:00", "2026-11-17T15:30")),
    ([BOOK, "actually with bob@example.com instead"], at("2026-11-17T15:00", attendees=["bob@example.com"])),
    ([BOOK, "yes"], "please use the confirmation"),
    ([BOOK, "cancel it"], "please use the confirmation"),
    ([BOOK, "what did I just book"], "waits for your approval"),
    ([BOOK, "so is it booked?"], "waits for your approval"),
    (["is my meeting confirmed yet?"], "Nothing was booked in this conversation."),
    (["is it booked twice if the connection drops?"], {"quoted": "double_bookings"}),
    (["any free slots on thursday?"], "On Thursday 19 November 2026"),
    # A meeting of its own is no correction of the one that waits, nor an answer about the one that is drafted.
    (
        [BOOK, "and then coffee with zoe@example.com on friday at 3pm"],
        at("2026-11-20T15:00", title="Coffee with Zoe", attendees=["zoe@example.com"]),
    ),
    ([BOOK, "and then coffee with zoe@example.com at 4pm"], 'On which day? So far: "Coffee" with zoe@example.com at'),
    (
        ["book lunch with Ken on friday", "coffee with zoe@example.com saturday 3pm"],
        at("2026-11-21T15:00", title="Coffee with Zoe", attendees=["zoe@example.com"]),
    ),
    (["book a meeting tomorrow at 9", "a meeting with a@x.org"], at("2026-11-17T09:00", attendees=["a@x.org"])),
    ([BOOK, "no, a call with bob@example.com"], at("2026-11-17T15:00", attendees=["bob@example.com"])),
    # A question about something else is no correction either; one that proposes a day or a time is.
    ([BOOK, "am I free on thursday?"], "On Thursday 19 November 2026"),
    ([BOOK, "what time is it?"], DECLINES),
    ([BOOK, "how about thursday?"], at("2026-11-19T15:00", title="Meeting with Ana")),
    ([BOOK, "what about 2pm?"], at("2026-11-17T14:00", title="Meeting with Ana")),
    ([BOOK, "could it be at 2pm instead?"], at("2026-11-17T14:00")),
    (["how about lunch with a@x.org tomorrow at noon?"], DECLINES),
    # How much later is not how long.
    ([BOOK, "move it by 30 minutes"], 'I did not understand "by 30 minutes"'),
    ([BOOK, "half an hour earlier"], 'I did not understand "earlier"'),
    (["book a meeting with a@x.org tomorrow", "10."], at("2026-11-17T10:00")),
    # A bare hour is a time where it corrects one; what may be minutes is not, and nothing is corrected in silence.
    ([BOOK, "actually make it 10"], at("2026-11-17T10:00", "2026-11-17T11:00")),
    ([BOOK, "no, four"], 'Do you mean "at four" in the morning or in the afternoon?'),
    ([BOOK, "no, at 4", "and invite dan@example.com too"], "At what time? So far:"),
    ([BOOK, "no, next friday at 4", "the 27th"], "At what time? So far:"),
    ([BOOK, "move it to 5 please", "pm"], at("2026-11-17T17:00")),
    ([BOOK, "make it 10", "and invite dan@example.com too"], at("2026-11-17T10:00")),
    ([BOOK, "make it 15"], "I understood no change in that. So far:"),
    ([BOOK, "move it to the big room"], "I understood no change in that. So far:"),
    (["book a meeting with a@x.org tomorrow from 3pm to 2pm", "make it 2"], "I understood no change in that."),
    # Events that are there already.
    (["move my 3pm tomorrow to 5pm"], "no tool that changes or deletes one"),
    (["push tomorrow's standup to friday"], "no tool that changes or deletes one"),
    (["cancel it"], "no tool that changes or deletes one"),
    (["move my files to the archive"], DECLINES),
    # Two in one.
    (
        ["book lunch with ana@example.com on friday at 12 and dinner with bob@example.com on saturday at 7"],
        "one meeting at a time",
    ),
    (["schedule two meetings with ana@example.com tomorrow at 10 and 11"], "one meeting at a time"),
    (["Book two meetings: one with a@x.org on monday at 9am, one with b@x.org on tuesday"], "one meeting at a time"),
    # Abuse.
    (["you stupid piece of junk"], "not in this tone"),
    (["you are useless", "you are useless"], {"ignore_user": {"duration_seconds": 60}}),
    (["this stupid printer does not work"], DECLINES),
    (["ban alice"], "cannot block anybody"),
    # Other languages.
    (["Kannst du mir ein Meeting buchen?"], "only English"),
    (["¿Puedes reservar una reunión mañana?"], "only English"),
    (["Bonjour, comment ça va ?"], "only English"),
    (["こんにちは"], "only English"),
    # What refers to something, and what refers to nothing.
    (["use the second one"], "I have offered nothing to choose from."),
    (["paint me a red fox in snow", "the third one please"], {"image_generate": {}}),
    (["and why?"], "ask the whole question"),
    # Nonsense, and the rest.
    (["blorp fizz wug"], DECLINES),
    (["42"], DECLINES),
    (["asdf?!"], DECLINES),
    (["write me a poem about the sea"], DECLINES),
    (["start voice and ask about the ledger"], {"start_voice_session": {"pending_request": "ask about the ledger"}}),
    (["start voice mode and tell me a joke"], {"start_voice_session": {"pending_request": "tell me a joke"}}),
    (["pull the emails out of this: write to a@b.com or c@d.org"], "c@d.org"),
    (["thank you so much!"], "You are welcome."),
    # What was forbidden, reported, quoted or made conditional is not booked.
    *(([said], PLAIN) for said in NO_ORDERS),
    # Words that a booking cannot keep are not dropped.
    ([f"{NINE} for half a day"], 'I cannot note "half day". Shall I book it without that?'),
    ([f"{NINE} for the whole day"], 'I cannot note "whole day"'),
    ([f"{NINE} at a cafe"], 'I cannot note "cafe"'),
    ([f"{NINE} in Berlin"], 'I cannot note "Berlin"'),
    ([f"{NINE} in Berlin", "yes"], at("2026-11-17T09:00", "2026-11-17T10:00", attendees=["a@x.org"])),
    ([f"{NINE} for an hour and 15 minutes"], at("2026-11-17T09:00", "2026-11-17T10:15")),
    ([f"{NINE}, 1h30"], at("2026-11-17T09:00", "2026-11-17T10:30")),
    # They stay open until a plain yes, a no, or words that settle them: whatever else is answered in between.
    ([f"{NINE} in Berlin", "add b@x.org too"], 'I cannot note "Berlin". Shall I book it without that?'),
    (
        [f"{NINE} in Berlin", "add b@x.org too", "without that"],
        at("2026-11-17T09:00", attendees=["a@x.org", "b@x.org"]),
    ),
    ([f"{NINE} in Berlin", "yes, but at 4pm"], "Berlin"),
    ([f"{NINE} in Berlin", "make it two hours"], 'I cannot note "Berlin". Shall I book it without that?'),
    ([f"{NINE} in Berlin", "tuesday or friday"], 'I cannot note "Berlin". I understood more than one day'),
    ([f"{NINE} in Berlin", "no"], "All right, I leave it."),
    ([f"{NINE} for half a day", "4 hours"], at("2026-11-17T09:00", "2026-11-17T13:00")),
    (
        ["book a meeting with a@x.org tomorrow in Berlin", "9am"],
        'I cannot note "Berlin". Shall I book it without that?',
    ),
    (
        ["book a meeting with a@x.org in Berlin next month at 9am", "tomorrow"],
        'I cannot note "Berlin". Shall I book it',
    ),
    # What it is about is its title, and what was understood is kept while the rest is asked about.
    *(
        ([f"{NINE}{said}"], at("2026-11-17T09:00", title="Q4 budget", attendees=["a@x.org"]))
        for said in (
            ", subject Q4 budget",
            ", topic: Q4 budget",
            " topic Q4 budget",
            " with the subject Q4 budget",
            " about Q4 budget",
        )
    ),
    (
        ["book a@x.org thursday 10 to 10:30, topic: onboarding"],
        at("2026-11-19T10:00", "2026-11-19T10:30", title="Onboarding"),
    ),
    (["book a meeting with a@x.org tomorrow", "topic: onboarding", "9am"], at("2026-11-17T09:00", title="Onboarding")),
    ([f"{NINE}, topic: plans, if Anna says yes"], PLAIN),
    (["book a call with a@x.org tommorrow 14:30"], 'Which day do you mean? So far: "Call" with a@x.org at 14:30'),
    (["book a call with a@x.org tomorrow 4ish"], 'At what time? So far: "Call" with a@x.org on Tuesday 17'),
    (
        ["put 90 minutes in the calendar with a@x.org, day after tomorrow, 4ish"],
        'I did not understand "4ish". At what time? So far: "Meeting" with a@x.org on Wednesday 18 November 2026, 90',
    ),
    (["Can you get me an hour with a@x.org tomorrow at noon?"], at("2026-11-17T12:00", "2026-11-17T13:00")),
    # What could not be read is named, and no event is repeated.
    (["book a meting with a@x.org tomorrow at 9"], 'I could not read "meting"'),
    (["book a meeting with a@x.org tomorrow at 9 unless it rains"], 'I could not read "unless"'),
    (["meet with Maria and Bob at the big cafe tomorrow at 9"], 'I could not read "big cafe"'),
    (["book a meeting with a@x.org every monday at 10"], "I cannot repeat events"),
    (["Every Monday at 10 with a@x.org, 30 min"], "I cannot repeat events"),
    (["Book a meeting with a@x.org and b@x.org tomorrow at 9am but without b@x.org"], PLAIN),
    (["book a meeting with Anna and draw a cat tomorrow at 9"], 'So far: "Meeting" with Anna on Tuesday'),
    (["book a meeting with Ken a week from monday at 9"], 'So far: "Meeting" at 09:00, 60 minutes.'),
    ([BOOK, "not friday"], "Please say what it should be"),
    # Plain orders in polite words.
    (["Hey, can you please schedule a call with Ana Kovac <a@x.org> on Thursday at 10am?"], at("2026-11-19T10:00")),
    (
        ["I would like to book a project review with a@x.org tomorrow at 9am"],
        at("2026-11-17T09:00", title="Project review"),
    ),
    (["Pls schedule 45 mins w/ a@x.org on Thu at 2:30pm"], at("2026-11-19T14:30", "2026-11-19T15:15")),
    (["lunch w/Tom thursday noon"], 'What is the e-mail address of Tom? So far: "Lunch" with Tom'),
    (["I need a call with a@x.org tomorrow at 9am"], at("2026-11-17T09:00", title="Call with A")),
    (["Let's have lunch with a@x.org tomorrow at noon"], at("2026-11-17T12:00", title="Lunch with A")),
    # A draft outlives a question in between.
    (["book a meeting with Anna tomorrow at 9", "What is Handrail?", "anna@x.org"], at("2026-11-17T09:00")),
    (["book a meeting with Anna", "What is Handrail?", "tomorrow at 9am"], "What is the e-mail address of Anna?"),
    (["book a meeting with Anna", "never mind", "tomorrow at 9am"], DECLINES),
    # The handbook is not quoted beside the point.
    (["5"], DECLINES),
    (["draw a lighthouse", "all three"], DECLINES),
    (["book a meeting", "No, stop."], "All right, I leave it."),
    (["What's the refund policy?"], {"quotes": ""}),
    (["do i need an api key or a gpu to try this"], {"quotes": ""}),
    (["where do i put my openai key"], {"quotes": "keys"}),
    (["What did I just say?"], {"quotes": ""}),
    (["Who is in my contacts?"], {"quotes": ""}),
    (["Can we talk?"], {"quotes": ""}),
    (["How do I write a tool?"], {"quotes": "new_tool"}),
    (["Can I use Claude?"], {"quotes": "providers"}),
    # One word in common answers no yes-or-no question, and a parameter's meaning no question about its value.
    (["is it allowed?"], DECLINES),
    (["is bob@@example..com a valid email?"], DECLINES),
    (["What does Ana Kovac do on linkedin"], DECLINES),
    (["whats the audit log"], {"quotes": "glossary_around_it"}),
    # Only the user's own calendar is looked at.
    (["Is Anna free tomorrow at 10?"], DECLINES),
    (["Is the meeting room free tomorrow?"], DECLINES),
    (["is lunch free"], DECLINES),
    (["I'm busy tomorrow"], DECLINES),
    (["am I free tomorrow?"], "you are free"),
    (["When's my next free hour tomorrow?"], "On Tuesday 17 November 2026"),
    # Words that only look like an order.
    (["Let's switch to voice please"], {"start_voice_session": {"pending_request": ""}}),
    (["can we talk instead of typing?"], {"start_voice_session": {"pending_request": ""}}),
    (["Can we talk on the phone instead?"], {"start_voice_session": {"pending_request": ""}}),
    (["thx, bye!"], "Goodbye."),
    (["hey there, how's it going?"], "Hello."),
    (["how are you doing today?"], "Hello."),
    (["are you a human?"], "I am the demo model of Handrail."),
    (["what's your name?"], "I am the demo model of Handrail."),
    (["Extract the emails from this text"], "Please paste the text"),
    (["Extract the emails from this:"], "Please paste the text"),
    (["extract email addresses from: hello world, nobody here"], "I found no e-mail address"),
    (["read my emails from yesterday"], DECLINES),
    (["Draw attention to the bug"], DECLINES),
    (["Draw the line at Friday"], DECLINES),
    (["Lunch was great today"], DECLINES),
    # Several of something, and what repeats.
    (["book meetings with ana@example.com and bob@example.com tomorrow at 10"], "one meeting at a time"),
    (["book a meeting with either ana@example.com or bob@ex.org tomorrow at 3pm"], "one meeting at a time"),
    (["book a meeting with a@x.org tomorrow at 10 about the budget every month"], "I cannot repeat events"),
    (["book a standing meeting with a@x.org thursday at 10"], 'I could not read "standing"'),
    (["make me a few images of a cat"], "I draft one square picture at a time."),
    (["create a logo for Acme and three variants"], "I draft one square picture at a time."),
    # An order that is taken back, doubted, quoted or asked about.
    (["book a call with a@x.org thursday at 10am, actually no"], PLAIN),
    (["lunch with a@x.org on thursday at noon, maybe"], PLAIN),
    (["lunch with a@x.org on thursday at noon is cancelled"], PLAIN),
    (["lunch with a@x.org on thursday at noon?"], PLAIN),
    (['"book a call with a@x.org thursday 10am" is what I would say'], PLAIN),
    (["Only book a call with a@x.org tomorrow at 9am once I have asked my boss"], PLAIN),
    # Another wish in the same sentence.
    (["schedule a demo with a@x.org friday 2pm and prepare slides"], 'I cannot note "prepare slides"'),
    (["book a call with a@x.org friday 2pm about the budget and send her the deck"], 'I cannot note "send deck"'),
    (["draw a cat and send it to ana@example.com"], 'I could not read "and send"'),
    (["draw a cat, then a dog"], 'I could not read "then"'),
    (["book a meeting with a@x.org and her tomorrow at 3pm"], 'I could not read "and her"'),
    (["book a meeting with a@x.org by thursday at 16:00"], '"by at 16:00" is no time that I understand.'),
    (["start voice mode tomorrow at 9"], DECLINES),
    (["let's talk about the weather"], DECLINES),
    (["extract the emails but not a@x.org from: a@x.org, b@x.org"], DECLINES),
    (["show my calendar for friday and Bob's"], DECLINES),
    # A part of the day that does not have the hour; an hour before is no length.
    (["book a meeting with a@x.org tomorrow night at 1"], "is no time that I understand"),
    (["book a meeting with a@x.org tomorrow afternoon at 11"], "is no time that I understand"),
    (["book a meeting with a@x.org tomorrow at quarter past"], "At what time?"),
    (["book a meeting with a@x.org tomorrow at 3pm and remind me 2 hours before"], "60 minutes."),
    (["book a meeting with a@x.org thursday at 10 for 30 min, 5 min break"], "at 10:00, 30 minutes."),
    # A correction is understood in every word, and it is about the meeting that waits.
    ([BOOK, "also on wednesday"], "That would be another meeting."),
    ([BOOK, "yes, and one on Friday"], "That would be another meeting."),
    ([BOOK, "2 hours later"], "60 minutes."),
    ([BOOK, "I think 4 pm was taken"], "so I changed nothing"),
    ([BOOK, "drop bob@example.com"], "so I changed nothing"),
    ([BOOK, "move the standup to saturday"], "no tool that changes or deletes one"),
    (
        [BOOK, "lunch saturday 1pm"],
        'With whom? I need at least one e-mail address; it may be your own. So far: "Lunch"',
    ),
    ([BOOK, "change the title to Budget"], at("2026-11-17T15:00", title="Budget")),
    (["book a meeting with Ana tomorrow at 10am", "ask bob@ex.org"], "so I changed nothing"),
    (["find the contacts", "never mind"], "All right, I leave it."),
    # An end without a start: the start is asked for, and the end is kept; where the start is known, it sets the length.
    (["book a call with a@x.org tomorrow until 3 pm"], "At what time does it start?"),
    (["book a call with a@x.org tomorrow until 3 pm", "1 pm"], at("2026-11-17T13:00", "2026-11-17T15:00")),
    (["book a call with a@x.org tomorrow until 3 pm", "10"], at("2026-11-17T10:00", "2026-11-17T15:00")),
    (["book a call with a@x.org tomorrow until 3 pm", "from 2 to 4 pm"], at("2026-11-17T14:00", "2026-11-17T16:00")),
    (["book a call with a@x.org tomorrow until 3", "pm", "1 pm"], at("2026-11-17T13:00", "2026-11-17T15:00")),
    (["book a call with Ana next friday until 3 pm", "the second one"], "At what time does it start?"),
    (["book a call with a@x.org tomorrow by 3 pm"], '"by 3 pm" is no time that I understand.'),
    ([NINE, "until 11 am"], at("2026-11-17T09:00", "2026-11-17T11:00")),
    ([NINE, "make it end at 10:30"], at("2026-11-17T09:00", "2026-11-17T10:30")),
    ([NINE, "move it to 3 pm"], at("2026-11-17T15:00", "2026-11-17T16:00")),
    # A part of the day counts for the hour that is said later, and takes a time back that was said before.
    (["book a call with a@x.org tomorrow afternoon", "at 3"], at("2026-11-17T15:00")),
    (["book a call with a@x.org tomorrow afternoon"], "on Tuesday 17 November 2026 in the afternoon, 60 minutes."),
    (["book a call with a@x.org tomorrow morning", "16:00", "16:00"], at("2026-11-17T16:00")),
    ([BOOK, "no, on wednesday morning"], "At what time? So far"),
    # What is not understood of the time leaves the day.
    ([BOOK, "to 5 pm"], "on Tuesday 17 November 2026, 60 minutes."),
    ([BOOK, "after 5 pm"], "on Tuesday 17 November 2026, 60 minutes."),
    ([BOOK, "2 hours later"], "on Tuesday 17 November 2026, 60 minutes."),
    # The usual length is an answer, too, and so is an end.
    *(
        (["book a call with a@x.org tomorrow from 3 pm to 2 pm", said], at("2026-11-17T15:00", "2026-11-17T16:00"))
        for said in ("60 minutes", "one hour", "an hour", "4 pm", "until 4")
    ),
    (
        ["Book a meeting with a@x.org from 23:30 to 00:30 tomorrow night"],
        at("2026-11-17T23:30", "2026-11-18T00:30"),
    ),
    # Whoever wants to drop what waits is told where.
    *(
        ([BOOK, said], "please use the confirmation")
        for said in (
            "actually forget it",
            "scrap that",
            "forget about it",
            "I changed my mind, don't book it",
            "cancel the meeting",
            "I no longer need it",
            "let's not",
            "on second thought, no",
        )
    ),
    (["book a meeting tomorrow", "actually, scrap that"], "All right, I leave it."),
    # Questions about a calendar are no questions about Handrail.
    (["What slots are open next Tuesday afternoon?"], "plain requests about your own calendar"),
    (
        ["My boss told me to book a room for tomorrow at 10, is that possible?"],
        "plain requests about your own calendar",
    ),
    (["What happens tomorrow?"], "only a few questions about Handrail"),
    (["Who cleans the kitchen?"], "From your own records I quote what a thing is"),
    (["Write me a poem"], "quote what your records say that a thing is"),
    # Whoever is quoted insults nobody here.
    (['my boss said "you are an idiot"'], DECLINES),
    (['he wrote "I will kill you", is that a threat?'], DECLINES),
    (["you are not stupid"], DECLINES),
]


@pytest.mark.parametrize(("sentences", "right"), SENTENCES, ids=[said[-1][:60] for said, _ in SENTENCES])
async def test_what_is_said_is_done_right_or_declined(open_demo_case: Opens, sentences: list[str], right: Any) -> None:
    async with open_demo_case() as here:
        answer = await here.say(*sentences)
        if isinstance(right, str):
            assert right in answer
            assert here.written == {}
        elif "quotes" in right:
            cited = [one["id"] for one in here.events[-1].data["citations"]]
            assert here.written == {}
            assert cited == [] or (right["quotes"] and right["quotes"] in cited[0])
            assert bool(cited) != (DECLINES in answer)
        elif "quoted" in right:
            assert [one["id"] for one in here.events[-1].data["citations"]] == [
                f"doc:handrail_answer_{right['quoted']}"
            ]
        else:
            assert here.written.keys() == right.keys()
            for tool, args in right.items():
                assert args.items() <= dict(here.written[tool]).items()
