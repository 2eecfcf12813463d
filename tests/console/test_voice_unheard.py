"""Nobody can be heard: whatever the cause, one sentence says what is wrong and what to do, and typing works meanwhile."""

from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, Opened, opened
from tests.console.scripted_voice import ScriptedVoiceServer, VoiceScript
from tests.console.test_voice import ALLOWED, in_state, is_off, talk
from tests.console.test_voice_offline import SPEECH

ASKS_FOR_THE_MICROPHONE = True
# As Chromium says them.
MISSING = "No microphone was found. Connect one, or switch it on, then press"
REFUSED = "This page may not use the microphone. Allow it for this page in the browser's settings, then press"
BUSY = (
    "The microphone is there but cannot be read; perhaps another program has it. "
    "Close that program, or choose another microphone, then press"
)
DEVICE = [
    ("NotFoundError", "Requested device not found", MISSING),
    ("NotAllowedError", "Permission denied", REFUSED),
    (
        "NotAllowedError",
        "Permission dismissed",
        "The browser asked for the microphone and got no answer. Answer it with Allow, then press",
    ),
    (
        "NotAllowedError",
        "Permission denied by system",
        "The system does not let the browser use the microphone. Allow it in the system's privacy settings, then press",
    ),
    ("NotReadableError", "Could not start audio source", BUSY),
    (
        "TypeError",
        "never heard of",
        "The microphone could not be opened. Check it in the system's settings, then press",
    ),
]
RECOGNISER = [
    ("audio-capture", 0, MISSING),
    ("audio-capture", 1, BUSY),
    ("not-allowed", 1, REFUSED),
    ("not-allowed", 0, MISSING),
    (
        "service-not-allowed",
        1,
        "The browser's speech recognition is switched off. Allow it in the settings of the browser or of the system, "
        "then press",
    ),
    (
        "network",
        1,
        "The browser's speech recognition cannot be reached. Check the connection to the internet, then press",
    ),
    (
        "language-not-supported",
        1,
        "The browser does not recognise speech in this language. Add it in the browser's settings, then press",
    ),
]


def fails(name: str, message: str) -> str:
    return f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException({message!r}, {name!r}));"


def microphones(count: int) -> str:
    devices = "[" + '{ kind: "audioinput", deviceId: "", label: "" },' * count + '{ kind: "audiooutput" }]'
    return f"navigator.mediaDevices.enumerateDevices = () => Promise.resolve({devices});"


def told(it: Opened) -> str:
    """The one notice that is shown."""
    it.page.locator(".toast").first.wait_for()
    notices = it.page.locator(".toast").all_inner_texts()
    assert len(notices) == 1, notices
    return str(notices[0])


def typed_words_are_answered(it: Opened, server: ScriptedVoiceServer) -> None:
    it.page.fill("#message", "hello")
    it.page.press("#message", "Enter")
    it.page.locator(".by-model", has_text="Yes.").wait_for()
    assert server.script.said == ["hello"]


@pytest.mark.parametrize(("name", "message", "sentence"), DEVICE, ids=lambda value: str(value)[:30])
def test_why_the_microphone_cannot_be_opened_is_told_and_text_goes_on(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, name: str, message: str, sentence: str
) -> None:
    with opened(browser, server.address, before=fails(name, message), **ALLOWED) as it:
        it.page.locator(".talk-button").click()
        assert told(it) == f"{sentence} the microphone again; typing works meanwhile."
        is_off(it)
        typed_words_are_answered(it, server)
    assert voice.hellos == []


def test_a_microphone_that_the_person_does_not_allow_is_told_by_the_browser_itself(
    browser: Any, server: ScriptedVoiceServer
) -> None:
    with opened(browser, server.address) as it:
        it.page.locator(".talk-button").click()
        assert told(it) == f"{REFUSED} the microphone again; typing works meanwhile."
        is_off(it)
        typed_words_are_answered(it, server)


@pytest.mark.parametrize("allowed", [{}, ALLOWED], ids=["not allowed", "allowed"])
def test_what_the_browsers_own_recogniser_lacks_here_is_told_as_well(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, allowed: dict[str, Any]
) -> None:
    """Without a service to send sound to, none of it can work: which of the causes it is, is the browser's to say."""
    voice.offline = True
    with opened(browser, server.address, **allowed) as it:
        if not it.page.evaluate("Boolean(globalThis.SpeechRecognition ?? globalThis.webkitSpeechRecognition)"):
            pytest.skip("This browser has no recogniser.")
        it.page.locator(".talk-button").click()
        sentence = told(it)
        assert sentence.endswith("then press Try again; typing works meanwhile.")
        cause = "The microphone works, but this browser's" if allowed else "This page may not use the microphone."
        assert sentence.startswith(cause), "what the microphone can be read for is not its fault"
        it.page.locator(".voice-word", has_text="Please type.").wait_for()


def test_a_page_that_gets_no_microphone_at_its_address_is_told_where_it_would(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    insecure = "Object.defineProperty(navigator, 'mediaDevices', { value: undefined });"
    sentence = (
        "The browser gives no microphone to a page at this address. "
        "Open it over https or on the server's machine, then press"
    )
    with opened(browser, server.address, before=insecure) as it:
        it.page.locator(".talk-button").click()
        assert told(it) == f"{sentence} the microphone again; typing works meanwhile."
        is_off(it)
    voice.offline = True
    recogniser = "Object.defineProperty(window, 'isSecureContext', { value: false });" + SPEECH
    with opened(browser, server.address, before=insecure + recogniser) as it:
        talk(it, voice)
        it.page.evaluate("heard.onerror({ error: 'not-allowed' })")
        assert told(it) == f"{sentence} Try again; typing works meanwhile."


@pytest.mark.parametrize(("error", "count", "sentence"), RECOGNISER, ids=lambda value: str(value)[:30])
def test_why_the_recogniser_cannot_hear_is_told_and_typing_goes_on_in_voice(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, error: str, count: int, sentence: str
) -> None:
    voice.offline = True
    with opened(browser, server.address, before=SPEECH + microphones(count)) as it:
        talk(it, voice)
        it.page.evaluate(f"heard.on = false; heard.onerror({{ error: '{error}' }}); heard.onend()")
        assert told(it) == f"{sentence} Try again; typing works meanwhile."
        what = sentence.partition(". ")[0]
        it.page.locator(".voice-word", has_text=f"{what}. Please type. Answers are read aloud.").wait_for()
        assert it.page.get_by_role("button", name="Mute", exact=True).is_hidden()
        assert it.page.get_by_label("Your message").get_attribute("placeholder") == "Type here…"
        it.page.fill("#message", "hello")
        it.page.press("#message", "Enter")
        words = voice.wait_for("text")
        assert (words["text"], words.get("spoken")) == ("hello", None)


@pytest.mark.parametrize("error", ["no-speech", "aborted"])
def test_silence_is_no_trouble(browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, error: str) -> None:
    voice.offline = True
    with opened(browser, server.address, before=SPEECH) as it:
        talk(it, voice)
        it.page.evaluate(f"heard.on = false; heard.onerror({{ error: '{error}' }}); heard.onend()")
        it.page.wait_for_function("() => heard.on")
        assert it.page.locator(".toast").count() == 0
        in_state(it, "listening")
        assert it.page.get_by_role("button", name="Try again").is_hidden()


def test_somebody_who_was_speaking_when_the_recogniser_failed_is_told_as_having_ended(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    voice.offline = True
    with opened(browser, server.address, before=SPEECH + microphones(0)) as it:
        talk(it, voice)
        it.page.evaluate("heard.onspeechstart()")
        in_state(it, "hearing")
        it.page.evaluate("heard.onerror({ error: 'audio-capture' })")
        in_state(it, "listening")
        voice.wait_for("speech", 2)
        assert [one["state"] for one in voice.messages("speech")] == ["started", "ended"]


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_after_something_was_done_about_it_the_recogniser_is_tried_again(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript, name: str, viewport: dict[str, int], scheme: str
) -> None:
    voice.offline = True
    with opened(browser, server.address, viewport=viewport, scheme=scheme, before=SPEECH + microphones(1)) as it:
        page = it.page
        talk(it, voice)
        for _ in range(2):
            page.evaluate("heard.onerror({ error: 'audio-capture' })")
            page.locator(".toast", has_text=BUSY).wait_for()
            assert page.locator(".toast").count() == 1, "said again, it stands once"
            assert not page.evaluate("heard.on"), "nothing listens until somebody asks for it"
            assert obstacles(page) == []
            it.shoot(f"voice-{name}-unheard")
            page.get_by_role("button", name="Try again").click()
            page.wait_for_function("() => heard.on")
            in_state(it, "listening")
            page.locator(".voice-word", has_text="Listening").wait_for()
        page.evaluate("heard.onspeechstart(); hear('good morning', true)")
        assert voice.wait_for("text")["text"] == "good morning"
        assert page.evaluate("heard.lang") == "en-GB"


def test_a_microphone_that_is_pulled_out_is_told_and_another_one_goes_on(
    browser: Any, server: ScriptedVoiceServer, voice: VoiceScript
) -> None:
    kept = """const open = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
    navigator.mediaDevices.getUserMedia = async (wanted) => {
      if (window.none) throw new DOMException("Requested device not found", "NotFoundError");
      const stream = await open(wanted);
      (window.tracks ??= []).push(...stream.getAudioTracks());
      return stream;
    };"""
    pulled = "tracks[0].stop(); tracks[0].dispatchEvent(new Event('ended')); window.none = true"
    with opened(browser, server.address, before=kept, **ALLOWED) as it:
        page = it.page
        talk(it, voice)
        page.evaluate(pulled)
        assert told(it) == "The microphone was disconnected. Connect it, then press Try again; typing works meanwhile."
        page.locator(".voice-word", has_text="The microphone was disconnected. Please type.").wait_for()
        assert page.get_by_role("meter", name="Microphone level").count() == 0
        heard = len(voice.frames)
        voice.wait(lambda: len(voice.frames) > heard + 20)  # silence, in which the model hears the end of what was said
        page.fill("#message", "typed")
        page.press("#message", "Enter")
        assert voice.wait_for("text")["text"] == "typed"
        page.get_by_role("button", name="Try again").click()
        page.locator(".toast", has_text=MISSING).wait_for()
        page.locator(".voice-word", has_text="No microphone was found. Please type.").wait_for()
        page.evaluate("window.none = false")
        page.get_by_role("button", name="Try again").dblclick()
        page.locator(".voice-word", has_text="Listening").wait_for()
        assert page.get_by_role("button", name="Try again").is_hidden()
        page.wait_for_function("() => document.querySelector('.level-fill').getBoundingClientRect().width > 20")
        page.get_by_role("button", name="End voice").first.click()
        voice.wait_for("end")
        voice.say("ended", reason="user_requested", closingMessage=None, textResponse=None, resumable=False)
        is_off(it)
        page.wait_for_function("() => tracks.every((track) => track.readyState === 'ended')")
