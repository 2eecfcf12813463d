"""What people say when they plainly approve, in the spellings of transcripts. Written before the grammar was.

Every third one, chosen by a hash of its text, is held back: the grammar was tuned on the others only, so the figure for the
held-back ones says how the grammar fares with what it was not made for.
"""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import sha256

_PHRASES = """
yes
yeah
yep
yup
yes yes
yes yes yes
yes please
yeah please
yep please
yes, please do
yes, please go ahead
yes, go ahead
yes, go ahead please
yeah, go ahead
yep, go ahead
yes, do it
yes, please do it
yes, do that
yes, do that please
yeah, do it
yes, go for it
yeah, go for it
yes, confirm
yes, confirmed
yes, I confirm
yes, I confirm that
yes, please confirm
yes, confirm it
yes, confirm it please
yeah, confirm
yes, I approve
yes, approved
yes, correct
yes, that's correct
yes, that is correct
yes, that's right
yes, that is right
yeah, that's right
yeah, that's correct
yes, that's fine
yes, that is fine
yeah, that's fine
yes, that's good
yes, that's great
yes, that's perfect
yes, that works
yeah, that works
yes, sounds good
yes, that sounds good
yeah, sounds good
yes, sounds great
yes, sounds perfect
yes, of course
yes, certainly
yes, absolutely
yes, definitely
yes, sure
yes, okay
yes, ok
yes, thank you
yes, thanks
yes, thank you very much
yes please, thank you
yes please, thanks
yeah, thanks
yeah, thank you
yep, thanks
okay, yes
ok, yes
okay, yes please
ok, yes please
okay, yeah
alright, yes
all right, yes
sure, yes
great, yes
great, yes please
perfect, yes
perfect, yes please
good, yes
lovely, yes please
oh yes
oh yes please
oh yeah
absolutely, yes
definitely, yes
certainly, yes
of course, yes
correct, yes
that's right, yes
that's correct, yes
yes, yes please
yes, yes, go ahead
yes, yes, do it
yes, yes, that's right
yes, I would
yes, I'd like that
yes, I would like that
yes, I want that
yes, I want to
yes, I am sure
yes, I'm sure
yes, I agree
yes, let's do it
yes, let's do that
yes, let's go
yes, you can
yes, you may
yes, you can go ahead
yes, you may go ahead
yes, you can do that
yes, by all means
yes sir
yes ma'am
yes, all good
yes, looks good
yes, very good
yes, fine
yes, great
yes, perfect
yes, exactly
yes indeed
yes, it's fine
yes, it's correct
yes, everything is correct
yes, all correct
yes, that's all correct
yes, that's all right
go ahead
please go ahead
go ahead please
yes, go right ahead
I confirm
confirmed
confirm
I confirm that
I approve
approved
please do
please do it
please do that
absolutely
definitely
certainly
yes, proceed
yes, please proceed
please proceed
yes, carry on
yes, I say yes
I say yes
my answer is yes
the answer is yes
that's a yes
that is a yes
it's a yes
a clear yes
yes from me
""".strip().splitlines()


def _spellings(phrase: str) -> Iterator[str]:
    """The same words as different transcribers write them: bare, as a sentence, as an exclamation."""
    bare = phrase.replace(",", "").lower()
    sentence = phrase[0].upper() + phrase[1:] + "."
    yield bare
    yield sentence
    yield sentence[:-1] + "!"


def approvals() -> tuple[str, ...]:
    """All of them, each once, in a fixed order."""
    return tuple(dict.fromkeys(text for phrase in _PHRASES for text in _spellings(phrase)))


def is_held_back(text: str) -> bool:
    """Whether tuning was not allowed to look at it. All spellings of one phrase fall on the same side."""
    words = "".join(letter for letter in text.lower() if letter.isalpha())
    return sha256(words.encode()).digest()[0] % 3 == 0
