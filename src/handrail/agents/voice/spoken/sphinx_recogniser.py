"""A local recogniser on PocketSphinx, with a closed grammar of a yes, a no and the words that are easily taken for them.

It needs the extra `handrail[speech]`, runs on the machine's own processor without any network, and knows English only. It is
a second opinion and no more: synthetic speech in `tests/agents/voice/spoken/test_sphinx.py` says how good it is. One word of
the grammar is always found in any speech, so words that sound like a yes are in it as well, to be found instead of one.
"""

from __future__ import annotations

import asyncio
import threading
from array import array
from importlib import import_module
from typing import Any

from handrail.agents.voice.spoken.answer_grammar import AnswerVerdict
from handrail.agents.voice.spoken.recogniser import RecognisedAnswer
from handrail.contract.errors import missing_extra

__all__ = ["SphinxRecogniser"]

RATE = 16_000
_SHORTEST, _LONGEST = 0.1, 6.0
_QUIET = array("h", bytes(2 * RATE // 4))
"""A quarter of a second of silence around the utterance: the decoder takes its measure from it."""

_YES = frozenset({"yes", "yeah", "yep", "yup", "absolutely", "definitely", "certainly", "confirm", "ahead"})
_NO = frozenset({"no", "nope", "nah", "not", "don't", "cancel", "stop", "never"})
_OTHERS = (
    *("chess", "guess", "dress", "jess", "less", "mess", "press", "years", "yesterday", "ten"),
    *("what", "maybe", "hello", "table", "who", "later", "but", "if", "the", "and", "say", "said", "tomorrow", "think"),
)
_GRAMMAR = f"""#JSGF V1.0;
grammar answers;
public <answer> = <yes> | <no> | <other>;
<yes> = [okay | sure | great | oh] <yes_word> [<yes_word>] [<after>] [<after>] | [please] go ahead [please] | [i] confirm
      | absolutely | definitely | certainly;
<yes_word> = yes | yeah | yep | yup;
<after> = please | thanks | thank you | go ahead | do it | do that | i confirm | confirm | that's right | that's correct
      | that is correct | that's fine | sounds good | of course | sure | correct;
<no> = (no | nope | nah) [no] [thanks | thank you | don't | please don't | cancel it] | [please] don't [do it]
      | cancel [it | that] | stop | never mind | absolutely not;
<other> = <word>+;
<word> = {" | ".join(_OTHERS)};
"""


class SphinxRecogniser:
    """Hears a plain yes or no. One utterance at a time; others wait."""

    def __init__(self) -> None:
        self._decoder = _new_decoder()
        self._lock = threading.Lock()

    async def recognise(self, pcm: bytes, rate: int) -> RecognisedAnswer | None:
        """What this utterance is, judged in a thread; None if it is too short, too long, or no whole samples."""
        seconds = len(pcm) / 2 / rate if rate > 0 else 0.0
        if len(pcm) % 2 or not 8_000 <= rate <= 96_000 or not _SHORTEST <= seconds <= _LONGEST:
            return None
        return await asyncio.to_thread(self._decode, pcm, rate)

    def _decode(self, pcm: bytes, rate: int) -> RecognisedAnswer:
        sound = _QUIET + resampled(pcm, rate) + _QUIET
        with self._lock:
            decoder = self._decoder
            decoder.start_utt()
            decoder.process_raw(sound.tobytes(), full_utt=True)
            decoder.end_utt()
            found = decoder.hyp()
        text = found.hypstr if found is not None else ""
        return RecognisedAnswer(verdict_of(text), text)


def verdict_of(text: str) -> AnswerVerdict:
    """The provider's transcript says whether a yes stands alone; here it is enough that one was heard, and no no."""
    words = {word.partition("(")[0] for word in text.split()}
    if words & set(_OTHERS) or bool(words & _YES) is bool(words & _NO):
        return AnswerVerdict.MISS
    return AnswerVerdict.YES if words & _YES else AnswerVerdict.NO


def resampled(pcm: bytes, rate: int) -> array[int]:
    """The sound at the decoder's rate. Samples that fall together are averaged, which takes out what would fold back."""
    samples = array("h", pcm)
    if rate == RATE:
        return samples
    count = len(samples) * RATE // rate
    result = array("h", bytes(2 * count))
    if rate > RATE:
        for place in range(count):
            first, last = place * rate // RATE, max((place + 1) * rate // RATE, place * rate // RATE + 1)
            result[place] = sum(samples[first:last]) // (last - first)
        return result
    for place in range(count):
        first, part = divmod(place * rate, RATE)
        here = samples[first]
        there = samples[first + 1] if first + 1 < len(samples) else here
        result[place] = here + (there - here) * part // RATE
    return result


def _new_decoder() -> Any:
    try:
        sphinx = import_module("pocketsphinx")  # an extra: only who wants the recogniser needs it
    except ImportError as error:
        raise missing_extra("The local recogniser", "speech") from error
    # The beams are narrower than the decoder's own: the grammar is small, and a person is waiting.
    decoder = sphinx.Decoder(
        samprate=RATE, lm=None, loglevel="FATAL", beam=1e-30, wbeam=1e-20, pbeam=1e-30, maxhmmpf=3000
    )
    decoder.add_jsgf_string("answers", _GRAMMAR)
    decoder.activate_search("answers")
    return decoder
