"""Voice without a provider: the browser's own recognition and synthesis over the same socket, and typing where there are none.

Headless Chromium has no recogniser and no voices, so a scripted pair stands in for them, with the events that browsers send."""

from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import Opened, opened
from tests.console.scripted_voice import ScriptedVoiceServer, VoiceScript

SPEECH = """
window.heard = null; // the recogniser that listens now
window.said = [];
class SpeechRecognition extends EventTarget {
  start() { if (this.on) throw new DOMException("already", "InvalidStateError"); this.on = true; window.heard = this; }
  abort() { if (!this.on) return; this.on = false; this.onend?.(); }
}
window.hear = (text, isFinal) => {
  const result = Object.assign([{ transcript: text, confidence: 0.9 }], { isFinal });
  heard.onresult({ resultIndex: 0, results: [result] });
};
window.SpeechRecognition = window.webkitSpeechRecognition = SpeechRecognition;
window.SpeechSynthesisUtterance = class { constructor(text) { this.text = text; } };
Object.defineProperty(window, "speechSynthesis", { value: {
  getVoices: () => [{ name: "scripted", lang: "en-GB" }],
  speak(utterance) { said.push(utterance.text); this.now = utterance; utterance.onstart?.(); },
  finish() { const now = this.now; this.now = null; now.onend(); },
  cancel() { const now = this.now; this.now = null; now?.onerror?.({ error: "interrupted" }); },
} });
"""


@pytest.fixture(autouse=True)
def offline(voice: VoiceScript) -> None:
    voice.offline = True


def talk(it: Opened, voice: VoiceScript) -> None:
    it.page.locator(".talk-button").click()
    voice.wait(lambda: voice.socket)
    it.page.locator(".voice-bar[data-state=listening]").wait_for()


def speaks(it: Opened, voice: VoiceScript, id: str, text: str, *, item: int, kind: str = "preview") -> None:
    """The browser is given it to speak, and has begun."""
    before = it.page.evaluate("said.length")
    voice.say("speak", id=id, text=text, kind=kind, item=item)
    it.page.wait_for_function(f"() => said.length === {before + 1}")


def answered(voice: VoiceScript, words: dict[str, Any]) -> None:
    """The server tells the words back, and answers them."""
    input_id = words["id"]
    voice.say("turn", turn=1, inputId=input_id)
    told = {"inputId": input_id, "text": "", "final": True}
    voice.say("transcript", who="user", item=1, whole=words["text"], **told)
    voice.say("transcript", who="model", item=2, whole="A tool runtime.", **told)


def test_words_that_the_browser_recognised_are_sent_and_answers_are_spoken_by_it(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, before=SPEECH) as it:
        page = it.page
        talk(it, voice)
        assert voice.hellos[0]["abilities"] == {"sound": False, "recognises": True, "speaks": True}
        assert "audio" not in voice.hellos[0]
        page.evaluate("heard.onspeechstart()")
        assert voice.wait_for("speech") == {"type": "speech", "state": "started"}
        page.evaluate("hear('what is', false)")
        page.locator(".voice-heard", has_text="what is").wait_for()
        page.evaluate("hear('what is Handrail', true)")
        words = voice.wait_for("text")
        assert (words["text"], words["spoken"]) == ("what is Handrail", True)
        assert voice.messages("speech")[-1]["state"] == "ended"
        answered(voice, words)
        speaks(it, voice, "s1", "A tool runtime.", kind="answer", item=2)
        page.evaluate("speechSynthesis.finish()")
        assert voice.wait_for("spoken") == {"type": "spoken", "id": "s1", "completed": True}
        assert page.evaluate("said") == ["A tool runtime."]
        assert page.locator(".bubble").all_inner_texts() == ["what is Handrail"]
        assert page.locator(".prose").all_inner_texts() == ["A tool runtime."]


def test_our_own_voice_is_no_input_but_a_person_who_speaks_over_it_stops_it(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, before=SPEECH) as it:
        talk(it, voice)
        voice.say("speak", id="s1", text="Create the meeting with Ana tomorrow at three.", kind="preview")
        voice.say("speak", id="s2", text="And something else.", kind="answer", item=2)
        it.page.wait_for_function("() => said.length === 1")
        it.page.evaluate("heard.onspeechstart()")
        it.page.evaluate("hear('meeting with Ana tomorrow', true)")
        it.page.evaluate("hear('no wait', false)")
        assert voice.wait_for("speech")["state"] == "started"
        voice.wait(lambda: len(voice.messages("spoken")) == 2)
        assert [(one["id"], one["completed"]) for one in voice.messages("spoken")] == [("s2", False), ("s1", False)]
        assert voice.messages("text") == []
        it.page.evaluate("hear('no wait', true)")
        assert voice.wait_for("text")["text"] == "no wait"
        # Browsers stop listening by themselves; the console listens again.
        it.page.evaluate("heard.on = false; heard.onend()")
        it.page.wait_for_function("() => heard.on")


def test_a_yes_into_our_own_voice_is_not_told_as_one_after_it(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, before=SPEECH) as it:
        talk(it, voice)
        speaks(it, voice, "s1", "Buy the table for Ana. Say yes or no.", item=1)
        it.page.evaluate("heard.onspeechstart(); hear('yes', false); speechSynthesis.finish()")
        assert voice.wait_for("spoken")["completed"] is True
        it.page.evaluate("heard.onspeechend(); hear('yes', true)")  # the recogniser is done with it only now
        speaks(it, voice, "s2", "Buy the table for Ana. Say yes or no.", item=2)
        it.page.evaluate("speechSynthesis.finish()")
        voice.wait_for("spoken", 2)
        assert voice.messages("speech") == voice.messages("text") == [], "it may be an echo, and began too early anyhow"
        it.page.evaluate("heard.onspeechstart(); hear('yes', true)")  # and this one after it
        assert voice.wait_for("text")["text"] == "yes"
        started = voice.messages("speech")[0]
        # Its age is that of the last beginning: no more than the time between two lines of the page's own code.
        assert (started["type"], started["state"], started.get("agoMs", 0) < 500) == ("speech", "started", True)


def test_the_beginning_of_what_was_spoken_into_our_voice_is_told_with_its_age(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    with opened(browser, server.address, before=SPEECH) as it:
        talk(it, voice)
        speaks(it, voice, "s1", "Buy the table for Ana.", item=1)
        it.page.evaluate("heard.onspeechstart(); window.began = performance.now()")
        it.page.wait_for_function("() => performance.now() > began + 100")
        it.page.evaluate("speechSynthesis.finish(); hear('please do', true)")
        assert voice.wait_for("text")["text"] == "please do"
        kinds = [message["type"] for message in voice.got if message["type"] in ("spoken", "speech", "text")]
        assert kinds == ["spoken", "speech", "speech", "text"]
        started = voice.messages("speech")[0]
        assert (started["state"], started["agoMs"] >= 100) == ("started", True)
        # Where the browser does not tell the beginning, it was some time before the first words came.
        it.page.evaluate("hear('and thanks', true)")
        voice.wait_for("text", 2)
        assert voice.messages("speech")[2] == {"type": "speech", "state": "started", "agoMs": 500}


@pytest.mark.parametrize(("language", "used"), [("de", "de"), ("en", "en-GB"), ("en-US", "en-GB")])
def test_the_browser_hears_and_speaks_the_language_of_the_conversation(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, language: str, used: str
) -> None:
    voice.language = language
    own = "Object.defineProperty(navigator, 'language', { value: 'en-GB' });"
    with opened(browser, server.address, before=own + SPEECH) as it:
        talk(it, voice)
        it.page.wait_for_function("() => heard?.on")
        speaks(it, voice, "s1", "Guten Tag.", kind="answer", item=1)
        assert it.page.evaluate("[heard.lang, speechSynthesis.now.lang]") == [used, used]


def test_without_recognition_and_voices_one_types_over_the_same_socket(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    bare = "delete window.SpeechRecognition; delete window.webkitSpeechRecognition;"
    with opened(browser, server.address, before=bare) as it:
        talk(it, voice)
        assert voice.hellos[0]["abilities"] == {"sound": False, "recognises": False, "speaks": False}
        it.page.get_by_text("Type: this browser can neither recognise speech nor speak.").wait_for()
        it.page.keyboard.type("What is Handrail?")
        it.page.keyboard.press("Enter")
        words = voice.wait_for("text")
        assert "spoken" not in words
        answered(voice, words)
        voice.say("speak", id="s1", text="A tool runtime.", kind="answer", item=2)
        it.page.locator(".prose", has_text="A tool runtime.").wait_for()
        voice.say("speak", id="s2", text="One moment.", kind="filler", item=0)
        it.page.locator(".voice-word", has_text="One moment.").wait_for()
        assert voice.messages("spoken") == [], "nothing was spoken, so nothing is said about it"
        assert it.page.locator(".bubble").count() == 1
        assert obstacles(it.page) == []
        it.shoot("voice-wide-typing")


SINES = """async ({ from, to, pitch }) => {
  const { Resampler } = await import("/console/voice-resample.js");
  const resampler = new Resampler(from, to);
  const made = [];
  for (let at = 0; at < from; at += 128)
    made.push(...resampler.take(Float32Array.from({ length: 128 }, (_, n) => Math.sin((2 * Math.PI * pitch * (at + n)) / from))));
  const middle = made.slice(to / 4, (3 * to) / 4);
  let crossings = 0;
  for (let n = 1; n < middle.length; n += 1) if (middle[n - 1] < 0 !== middle[n] < 0) crossings += 1;
  return { count: made.length, loud: Math.sqrt(middle.reduce((sum, one) => sum + one * one, 0) / middle.length), crossings };
}"""


def test_a_microphone_of_any_rate_is_resampled_without_loss_or_ghosts(
    browser: Any, server: ScriptedVoiceServer
) -> None:
    with opened(browser, server.address) as it:
        for given, asked in [(48_000, 16_000), (44_100, 24_000), (48_000, 24_000), (16_000, 24_000)]:
            kept = it.page.evaluate(SINES, {"from": given, "to": asked, "pitch": 1_000})
            assert abs(kept["count"] - asked) < asked / 100, (given, asked)
            assert abs(kept["loud"] - 0.7071) < 0.01, (given, asked)
            assert abs(kept["crossings"] - 1_000) <= 2, "half a second of 1000 Hz crosses zero a thousand times"
            ghost = (
                it.page.evaluate(SINES, {"from": given, "to": asked, "pitch": asked * 0.7}) if asked < given else None
            )
            assert ghost is None or ghost["loud"] < 0.01, "what the lower rate cannot hold must not come back lower"


QUEUE = """async () => {
  const { PlayQueue } = await import("/console/voice-queue.js");
  const queue = new PlayQueue(1000); // a sample is a millisecond
  const piece = (count) => new Int16Array(count).fill(16384);
  const pull = (count) => { const out = new Float32Array(count); queue.pull(out); return out.filter((one) => one !== 0).length; };
  const told = [];
  queue.push(1, 0, piece(20));
  told.push(pull(10)); // too little to begin
  queue.push(1, 20, piece(60));
  told.push(pull(50), queue.report().ms);
  queue.push(1, 0, piece(20)); // all of it for the second time
  queue.push(1, 40, piece(60)); // 40 of it for the second time
  told.push(pull(100), queue.report().ms); // 30 of the first, 20 new
  queue.push(1, 150, piece(10)); // 50 were lost on the way
  queue.end(1);
  told.push(pull(100), queue.finished());
  queue.push(1, 160, piece(10)); // after its end
  queue.end(2); // an item without sound
  told.push(pull(10), queue.finished());
  return told;
}"""


def test_the_queue_knows_its_place_through_repeats_losses_and_ends(browser: Any, server: ScriptedVoiceServer) -> None:
    with opened(browser, server.address) as it:
        told = it.page.evaluate(QUEUE)
    # What was lost is not reported as played; of an item of which nothing came, that nothing was, so that nobody waits for it.
    assert told == [0, 50, 50, 50, 100, 10, [{"item": 1, "ms": 110}], 0, [{"item": 2, "ms": 0}]]
