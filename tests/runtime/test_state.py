"""The state controller: checked transitions, intents that are applied or say why not, and never a state that cannot be."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handrail.contract.errors import StateError
from handrail.contract.intents import Intent, IntentType
from handrail.runtime.state import StateController

KEYS = {
    "mode",
    "isActive",
    "pendingEndVoiceSession",
    "shouldSuppressAudio",
    "shouldSuppressTranscript",
    "pendingMessage",
    "isModelGenerating",
    "userAudioChunkCount",
    "interruptionSent",
    "audioChunkCounter",
    "lastAudioFingerprint",
}


def voice(**more):
    return StateController({"mode": "voice", **more})


def assert_valid(state):
    facts = state.snapshot()
    assert set(facts) == KEYS
    assert facts["mode"] in ("text", "voice")
    for flag in (
        "isActive",
        "shouldSuppressAudio",
        "shouldSuppressTranscript",
        "isModelGenerating",
        "interruptionSent",
    ):
        assert facts[flag] is True or facts[flag] is False
    for counter in ("userAudioChunkCount", "audioChunkCounter"):
        assert type(facts[counter]) is int
        assert facts[counter] >= 0
    for text in ("pendingMessage", "lastAudioFingerprint"):
        assert facts[text] is None or isinstance(facts[text], str)
    ending = facts["pendingEndVoiceSession"]
    if ending is not None:
        assert facts["mode"] == "voice"
        assert ending["after"] in ("current_turn", "farewell_spoken")
        assert set(ending) <= {"after", "reason", "closingMessage", "textResponse"}
        assert all(value is None or isinstance(value, str) for value in ending.values())


def test_a_new_session_is_active_in_text_with_nothing_pending():
    state = StateController()

    assert set(state.snapshot()) == KEYS
    assert (state.get("mode"), state.get("isActive"), state.get("pendingMessage")) == ("text", True, None)
    assert_valid(state)


def test_a_snapshot_cannot_be_changed_and_does_not_follow_the_state():
    state = StateController()
    before = state.snapshot()
    state.set("pendingMessage", "later")

    assert before["pendingMessage"] is None
    with pytest.raises(TypeError):
        before["mode"] = "voice"


def test_a_value_that_was_given_in_cannot_be_changed_from_outside():
    ending = {"after": "current_turn", "reason": "done"}
    state = voice()
    state.set("pendingEndVoiceSession", ending)
    ending["after"] = "never"

    assert state.get("pendingEndVoiceSession")["after"] == "current_turn"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("mode", "video"),
        ("mode", None),
        ("isActive", 1),
        ("shouldSuppressAudio", "yes"),
        ("userAudioChunkCount", -1),
        ("userAudioChunkCount", True),
        ("audioChunkCounter", 1.0),
        ("pendingMessage", 7),
        ("pendingEndVoiceSession", {"after": "tomorrow"}),
        ("pendingEndVoiceSession", {"after": "current_turn", "closingMessage": ["x"]}),
        ("pendingEndVoiceSession", "current_turn"),
        ("colour", "red"),
    ],
)
def test_a_value_that_cannot_be_is_refused_and_changes_nothing(key, value):
    state = voice()
    before = state.snapshot()

    with pytest.raises(StateError):
        state.set(key, value)
    with pytest.raises(StateError):
        StateController({key: value})

    assert state.snapshot() == before


def test_an_unknown_key_is_answered_with_the_known_ones():
    with pytest.raises(StateError, match="lastAudioFingerprint"):
        StateController().get("isactive")


def test_an_ended_session_stays_ended_and_only_clears_up():
    state = StateController({"pendingMessage": "hello"})
    state.set("isActive", False)

    with pytest.raises(StateError, match="open a new one"):
        state.set("isActive", True)
    with pytest.raises(StateError, match="ended"):
        state.set("pendingMessage", "more")
    state.set("pendingMessage", None)
    assert state.get("pendingMessage") is None


def test_what_belongs_to_the_voice_part_ends_with_it():
    state = voice()
    assert state.apply_intent({"type": "END_VOICE_SESSION", "closingMessage": "Bye"}).applied
    assert state.apply_intent({"type": "SUPPRESS_AUDIO"}).applied
    assert state.apply_intent({"type": "SET_PENDING_MESSAGE", "message": "go on in text"}).applied

    state.set("mode", "text")

    assert state.get("pendingEndVoiceSession") is None
    assert state.get("shouldSuppressAudio") is False
    assert state.get("pendingMessage") == "go on in text"


def test_a_voice_session_that_was_to_end_is_not_restored_into_text():
    stored = {**voice(pendingEndVoiceSession={"after": "current_turn"}).snapshot(), "mode": "text"}

    assert StateController(stored).get("pendingEndVoiceSession") is None


@pytest.mark.parametrize("after", ["current_turn", "farewell_spoken"])
def test_ending_the_voice_session_keeps_everything_that_was_asked_for(after):
    state = voice()

    verdict = state.apply_intent(
        Intent(
            "END_VOICE_SESSION", {"after": after, "reason": "done", "closingMessage": "Bye", "textResponse": "See you"}
        )
    )

    assert verdict.applied
    assert state.get("pendingEndVoiceSession") == {
        "after": after,
        "reason": "done",
        "closingMessage": "Bye",
        "textResponse": "See you",
    }


@pytest.mark.parametrize(
    ("intent", "key", "value"),
    [
        ({"type": "SUPPRESS_AUDIO"}, "shouldSuppressAudio", True),
        ({"type": "SUPPRESS_AUDIO", "value": False}, "shouldSuppressAudio", False),
        ({"type": "SUPPRESS_TRANSCRIPT", "value": True}, "shouldSuppressTranscript", True),
        ({"type": "SET_PENDING_MESSAGE", "message": "hello"}, "pendingMessage", "hello"),
        ({"type": "SET_PENDING_MESSAGE", "message": None}, "pendingMessage", None),
    ],
)
def test_an_intent_changes_its_key_and_nothing_else(intent, key, value):
    state = voice(shouldSuppressAudio=True, pendingMessage="old")
    before = state.snapshot()

    assert state.apply_intent(intent).applied

    assert state.snapshot() == {**before, key: value}


def test_blocking_a_user_is_taken_without_touching_the_session_s_state():
    state = StateController()
    before = state.snapshot()

    assert state.apply_intent({"type": "BLOCK_USER", "until": 1_800_000_000}).applied
    assert state.snapshot() == before


@pytest.mark.parametrize(
    ("intent", "reason"),
    [
        ({"type": "MAKE_TEA"}, '"MAKE_TEA" is not an intent that is known'),
        ({"type": "suppress_audio"}, "not an intent that is known"),
        ({}, 'needs a "type"'),
        ({"type": 7}, 'needs a "type"'),
        ("SUPPRESS_AUDIO", "is not an intent"),
        (None, "is not an intent"),
        (["SUPPRESS_AUDIO"], "is not an intent"),
        ({"type": "END_VOICE_SESSION", "after": "lunch"}, '"lunch"'),
        ({"type": "END_VOICE_SESSION", "after": {}}, "known are current_turn and farewell_spoken"),
        ({"type": "END_VOICE_SESSION", "closingMessage": {"text": "Bye"}}, "cannot be"),
        ({"type": "SUPPRESS_AUDIO", "value": "yes"}, '"shouldSuppressAudio" cannot be "yes"'),
        ({"type": "SET_PENDING_MESSAGE", "message": 7}, '"pendingMessage" cannot be 7'),
        ({"type": "BLOCK_USER"}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": True}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": float("nan")}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": float("inf")}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": 10**400}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": 1_800_000_000_000}, "seconds since 1970"),
        ({"type": "BLOCK_USER", "until": "tomorrow"}, "seconds since 1970"),
    ],
)
def test_an_unknown_or_impossible_intent_changes_nothing_and_says_why(intent, reason):
    state = voice()
    before = state.snapshot()

    verdict = state.apply_intent(intent)

    assert not verdict.applied
    assert reason in verdict.reason
    assert verdict.reason.endswith(".")
    assert state.snapshot() == before


def test_a_voice_session_cannot_be_ended_in_text():
    state = StateController()

    verdict = state.apply_intent({"type": "END_VOICE_SESSION"})

    assert not verdict.applied
    assert "text mode" in verdict.reason
    with pytest.raises(StateError, match="text mode"):
        state.set("pendingEndVoiceSession", {"after": "current_turn"})


@pytest.mark.parametrize(
    "intent",
    [
        {"type": "SUPPRESS_AUDIO"},
        {"type": "SUPPRESS_AUDIO", "value": False},
        {"type": "SET_PENDING_MESSAGE", "message": None},
        {"type": "BLOCK_USER", "until": 1_800_000_000},
        Intent(IntentType.END_VOICE_SESSION),
    ],
    ids=str,
)
def test_an_intent_after_the_end_changes_nothing(intent):
    state = voice(shouldSuppressAudio=True, pendingMessage="old")
    state.set("isActive", False)
    before = state.snapshot()

    verdict = state.apply_intent(intent)

    assert (verdict.applied, state.snapshot()) == (False, before)
    assert "ended" in verdict.reason


SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8))
VALUES = st.one_of(SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=4), SCALARS, max_size=2))
INTENTS = st.dictionaries(
    st.sampled_from(["value", "message", "after", "reason", "closingMessage", "textResponse", "until", "other"]),
    st.one_of(VALUES, st.sampled_from(["current_turn", "farewell_spoken"])),
    max_size=5,
).flatmap(
    lambda fields: st.one_of(st.sampled_from(list(IntentType)), st.text(max_size=5), SCALARS).map(
        lambda kind: {**fields, "type": kind}
    )
)
STEPS = st.lists(
    st.one_of(
        INTENTS,
        VALUES,
        INTENTS.map(lambda wire: Intent(wire["type"], {key: value for key, value in wire.items() if key != "type"})),
        st.sampled_from([("mode", "voice"), ("mode", "text"), ("isActive", False), ("isModelGenerating", True)]),
    ),
    max_size=8,
)


@given(st.sampled_from(["text", "voice"]), STEPS)
def test_any_sequence_of_intents_leaves_a_valid_state(mode, steps):
    state = StateController({"mode": mode})
    for step in steps:
        before = state.snapshot()
        if isinstance(step, tuple):
            try:
                state.set(*step)
            except StateError:
                assert state.snapshot() == before
        else:
            verdict = state.apply_intent(step)
            assert verdict.applied or (state.snapshot() == before and verdict.reason)
        assert_valid(state)


@given(st.sampled_from(sorted(KEYS)), VALUES)
def test_setting_anything_to_anything_is_right_or_refused(key, value):
    state = voice()
    try:
        state.set(key, value)
    except StateError:
        assert state.snapshot() == voice().snapshot()
    assert_valid(state)
