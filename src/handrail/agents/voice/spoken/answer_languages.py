"""The words of a plain yes and a plain no, for each language that has a grammar. Data, read by `answer_grammar.py`.

A language is used only in a session of that language: "no" in an English session is English, and "ja" means nothing there.
What merely shows that somebody listens ("okay", "right", "sure", "uh-huh") is nobody's approval and stands alone nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["LANGUAGES", "AnswerForms", "LanguageAnswers"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerForms:
    """One of the two answers. An utterance is: at most one of `before`, one of `core` or as many as `repeats` allows, at most
    three of `after`; or one of `alone`, with at most one of `polite` behind it."""

    core: tuple[str, ...]
    repeats: int = 1
    """Said twice, most words for yes are weary or mocking: "yeah, yeah", "ja, ja"."""
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    polite: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageAnswers:
    """A language's answers, and how the host asks for one of them."""

    yes: tuple[AnswerForms, ...]
    no: tuple[AnswerForms, ...]
    question: str


_THANKS = ("thank you", "thanks", "thank you very much")

# What may follow any yes. Everything here repeats the yes in other words; nothing adds to it or takes from it.
_AFTER_ANY_YES = (
    "please",
    *_THANKS,
    *("sir", "ma'am", "madam"),
    *("go ahead", "please go ahead", "go ahead please", "go right ahead", "go for it"),
    *("do it", "please do it", "do it please", "do that", "please do that", "do that please", "please do"),
    *("confirm", "confirmed", "i confirm", "i confirm that", "please confirm", "confirm it", "confirm that"),
    *("approved", "i approve", "i agree", "proceed", "please proceed"),
    *("correct", "that's correct", "that is correct", "it's correct", "all correct", "that's all correct"),
    *("that's right", "that is right", "that's fine", "that is fine", "that works", "sounds good", "that sounds good"),
    *("everything is correct", "looks good", "all good", "absolutely", "definitely", "certainly"),
    *("i am sure", "i'm sure", "i'd like that", "i would like that", "i want that", "by all means"),
    *("you can", "you may", "you can go ahead", "you may go ahead", "you can do that", "let's do it", "let's do that"),
    *("let's go", "carry on"),
)

# These make a "yeah" sound weary or mocking ("yeah, right", "yeah, sure", "yeah, great"), so only a "yes" takes them.
_AFTER_YES = (
    *_AFTER_ANY_YES,
    *("sure", "okay", "ok", "fine", "great", "good", "very good", "perfect", "exactly", "indeed", "of course"),
    *(
        "that's good",
        "that's great",
        "that's perfect",
        "that's all right",
        "it's fine",
        "sounds great",
        "sounds perfect",
    ),
    *("from me", "i say yes"),
)

_ENGLISH = LanguageAnswers(
    yes=(
        AnswerForms(
            core=("yes",),
            repeats=3,
            before=(
                *("okay", "ok", "alright", "all right", "sure", "great", "perfect", "good", "lovely", "fine", "oh"),
                *("absolutely", "definitely", "certainly", "of course", "correct", "that's right", "that's correct"),
            ),
            after=_AFTER_YES,
            alone=(
                *("go ahead", "please go ahead", "please do", "please do it", "please do that", "please proceed"),
                *("confirm", "confirmed", "i confirm", "i confirm that", "i approve", "approved"),
                *("absolutely", "definitely", "certainly"),
                *("i say yes", "my answer is yes", "the answer is yes", "that's a yes", "that is a yes", "it's a yes"),
            ),
            polite=("please", *_THANKS),
        ),
        AnswerForms(core=("yeah", "yep", "yup"), before=("okay", "ok", "alright", "all right"), after=_AFTER_ANY_YES),
    ),
    no=(
        AnswerForms(
            core=("no", "nope", "nah"),
            repeats=3,
            before=("oh", "okay", "ok", "sorry", "absolutely", "definitely"),
            after=(
                *_THANKS,
                *("sir", "ma'am", "madam", "sorry", "please"),
                *("don't", "do not", "please don't", "please do not", "don't do it", "don't do that", "do not do that"),
                *("stop", "cancel", "cancel it", "cancel that", "please cancel", "please stop", "never mind"),
                *("i decline", "not now", "not today", "i don't want that", "i do not want that", "leave it"),
                *("absolutely not", "definitely not", "certainly not", "that's wrong", "that is wrong"),
            ),
            alone=(
                *("don't", "do not", "please don't", "please do not", "don't do it", "don't do that", "do not do that"),
                *(
                    "stop",
                    "cancel",
                    "cancel it",
                    "cancel that",
                    "please cancel",
                    "please stop",
                    "never mind",
                    "nevermind",
                ),
                *(
                    "decline",
                    "declined",
                    "i decline",
                    "absolutely not",
                    "definitely not",
                    "certainly not",
                    "of course not",
                ),
                *("my answer is no", "the answer is no", "i say no"),
            ),
            polite=("please", *_THANKS),
        ),
    ),
    question="Say yes or no.",
)


def _plain_answers(yes: AnswerForms, no: AnswerForms, question: str) -> LanguageAnswers:
    return LanguageAnswers(yes=(yes,), no=(no,), question=question)


LANGUAGES: Mapping[str, LanguageAnswers] = {
    "en": _ENGLISH,
    "de": _plain_answers(
        AnswerForms(
            core=("ja", "jawohl"), after=("bitte", "danke", "gerne", "genau", "ich bestätige"), alone=("ich bestätige",)
        ),
        AnswerForms(core=("nein",), after=("danke", "bitte nicht"), alone=("bitte nicht",)),
        "Sagen Sie ja oder nein.",
    ),
    "es": _plain_answers(
        # Without its accent the word is "if".
        AnswerForms(core=("sí",), after=("por favor", "gracias", "confirmo", "adelante"), alone=("confirmo",)),
        AnswerForms(core=("no",), after=("gracias", "por favor")),
        "Diga sí o no.",
    ),
    "fr": _plain_answers(
        AnswerForms(
            core=("oui",), after=("s'il vous plaît", "s'il te plaît", "merci", "je confirme"), alone=("je confirme",)
        ),
        AnswerForms(core=("non",), after=("merci",)),
        "Dites oui ou non.",
    ),
    "it": _plain_answers(
        AnswerForms(core=("sì",), after=("per favore", "grazie", "confermo"), alone=("confermo",)),
        AnswerForms(core=("no",), after=("grazie",)),
        "Dica sì o no.",
    ),
    "nl": _plain_answers(
        AnswerForms(core=("ja",), after=("graag", "alstublieft", "dank u", "bedankt", "ik bevestig het")),
        AnswerForms(core=("nee",), after=("dank u", "bedankt")),
        "Zegt u ja of nee.",
    ),
    "pt": _plain_answers(
        AnswerForms(core=("sim",), after=("por favor", "obrigado", "obrigada", "confirmo"), alone=("confirmo",)),
        AnswerForms(core=("não",), after=("obrigado", "obrigada")),
        "Diga sim ou não.",
    ),
}
