"""Negative utterances that are odd in how they are written: other languages, other letters, marks, noises, repetitions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from random import Random

_FOREIGN = (
    """
oui|ja|sí|si|sì|sim|da|tak|hai|ano|igen|evet|kyllä|nai|haan|ji|shi|vâng|ne|jes|áno|tā|ndiyo|bai|oo|ya|iya|ita|hoʻo|jawohl
да|так|はい|是|是的|好|네|예|ναι|نعم|כן|हाँ|ใช่|დიახ|այո|ஆம்|হ্যাঁ|да, пожалуйста|はい、お願いします|好的|네, 해주세요|να
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
_POLITE = (
    "",
    " bitte",
    " merci",
    " por favor",
    " per favore",
    " danke",
    " s'il vous plaît",
    " alsjeblieft",
    " claro",
    " gracias",
)
_LOOKALIKES = {
    "y": "уｙ𝐲𝓎ʏ",
    "e": "еｅ𝐞éёɘ",
    "s": "ѕｓ𝐬ṡś",
    "a": "аａ𝐚",
    "h": "һｈ",
    "p": "рｐ",
    "Y": "ΥҮＹ",
    "E": "ΕЕＥ",
}
_HIDDEN = "\u200b\u200d\u202e\u2066\u00ad\ufeff\u2060\u0301\u0336\u180e\u00a0\u3000\u0000\u0008\u001b"
_NOISES = (
    """
[silence]|[noise]|[music]|[laughter]|(coughs)|(inaudible)|<noise>|<unk>|*sighs*|♪|♪♪|...|…|.|-|--|?|!|,|[BLANK_AUDIO]
(wind blowing)|#|~|¿
""".replace("\n", "|")
    .strip("|")
    .split("|")
)
_WORDS = ("yes", "yeah", "yep", "yes please", "go ahead", "I confirm", "Yes.", "YES")


def foreign(random: Random) -> Iterator[str]:
    """A yes of another language, in an English session."""
    for word, polite in product(_FOREIGN, _POLITE):
        yield (word + polite).strip()
        yield f"{word}{polite}.".capitalize()
        yield random.choice(("yes, {}", "{}, yes", "okay {}", "yeah {}")).format(word + polite)


def lookalikes(random: Random) -> Iterator[str]:
    """A yes with letters of other alphabets, hidden characters, or pictures."""
    for word in _WORDS:
        for place, letter in enumerate(word):
            for other in _LOOKALIKES.get(letter, ""):
                yield word[:place] + other + word[place + 1 :]
        for hidden in _HIDDEN:
            place = random.randint(1, len(word) - 1)
            yield word[:place] + hidden + word[place:]
            yield hidden + word
        for picture in ("👍", "✅", "🙂", "✔", "👎", "🇾", "①", "😀😀"):
            yield f"{word} {picture}"
            yield picture + word
            yield picture


def noises(random: Random) -> Iterator[str]:
    """What transcribers write for silence and noise, alone or around a yes."""
    for noise in _NOISES:
        yield noise
        for word in _WORDS:
            yield random.choice((f"{noise} {word}", f"{word} {noise}", f"{noise} {word} {noise}"))


def marks(random: Random) -> Iterator[str]:
    """A yes that marks take apart, quote, leave open or decorate."""
    for word in _WORDS:
        for mark in "?;:-—–…/\\|_*`~^=+<>{}[]()\"'«»„“”&%$#@§°¿¡·•":
            yield f"{word}{mark}"
            yield f"{mark}{word}{mark}"
            yield f"{mark} {word}"
        yield "-".join(word)
        yield " ".join(word.replace(" ", ""))
        yield ".".join(word)
        yield word + "..."
        yield word + ".."
        yield word + ","
        yield word + "?!"


def repetitions(random: Random) -> Iterator[str]:
    """A yes over and over: a loop of the transcriber, a song, or somebody who is not listening."""
    for count in range(5, 45):
        for word in ("yes", "yeah", "yep", "Yes.", "YES!", "yup"):
            yield " ".join([word] * count)
        yield "yes" * count
        yield ", ".join(random.choice(("yes", "yeah", "yep")) for _ in range(count))


SOURCES: dict[str, Callable[[Random], Iterator[str]]] = {
    "foreign": foreign,
    "lookalikes": lookalikes,
    "noises": noises,
    "marks": marks,
    "repetitions": repetitions,
}
