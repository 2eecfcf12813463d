"""One sentence tells what became of a call, by which gate, rule and value."""

import pytest

from handrail.observe.call_explanation import why


def call(event, **fields):
    return {"event": event, "ts": "2026-01-01T00:00:00.000Z", "callId": "c1", "toolId": "kb_search", **fields}


def refusal(**fields):
    return call("refusal", ok=False, **fields)


@pytest.mark.parametrize(
    ("events", "sentence"),
    [
        (
            [
                refusal(
                    gate="budget",
                    errorType="BUDGET_EXCEEDED",
                    rule="retrieval calls",
                    value=2,
                    limit=2,
                    message="The 2 retrieval calls of this turn are used up.",
                )
            ],
            'Call "c1" to "kb_search" was refused by the gate "budget" (BUDGET_EXCEEDED): rule "retrieval calls", '
            'value 2, limit 2, "The 2 retrieval calls of this turn are used up".',
        ),
        (
            [refusal(gate="mode", errorType="MODE_RESTRICTED", rule="", value=None, limit=None)],
            'Call "c1" to "kb_search" was refused by the gate "mode" (MODE_RESTRICTED).',
        ),
        (
            [call("would_refuse", gate="loop", errorType="LOOP_DETECTED"), call("execution", ok=True, duration=3.25)],
            'Call "c1" to "kb_search" would have been refused, had it not only been observed, by the gate "loop" '
            "(LOOP_DETECTED), then ran for 3.25 ms and succeeded.",
        ),
        (
            [call("execution", ok=False, duration=12, errorType="TRANSIENT")],
            'Call "c1" to "kb_search" ran for 12 ms and failed (TRANSIENT).',
        ),
        (
            [call("execution", ok=True, duration=1), call("replay", ok=True, duplicateOf="c0")],
            'Call "c1" to "kb_search" ran for 1 ms and succeeded, then was answered from an earlier run, "c0", and did '
            "not run again.",
        ),
        (
            [
                call("held", errorType="CONFIRMATION_REQUIRED"),
                call("confirmation_wanted", confirmationId="h1"),
                {"event": "confirmation_approved", "confirmationId": "h1", "callId": "provider:c1"},
                call("execution", ok=True, duration=5),
            ],
            'Call "c1" to "kb_search" was held for a person\'s confirmation, then was approved by a person, then ran '
            "for 5 ms and succeeded.",
        ),
        (
            [call("confirmation_wanted", confirmationId="h1"), call("confirmation_declined", confirmationId="h1")],
            'Call "c1" to "kb_search" was held for a person\'s confirmation, then was declined by a person.',
        ),
        (
            [refusal(errorType="CONFIRMATION_REQUIRED", gate="confirmation"), call("confirmation", state="expired")],
            'Call "c1" to "kb_search" was held for a person\'s confirmation, then expired before anybody confirmed it.',
        ),
        (
            [call("clamp", rule="voice.top_k", value=10, limit=3), call("repair"), call("execution", ok=True)],
            'Call "c1" to "kb_search" had its arguments clamped: rule "voice.top_k", value 10, limit 3, then had its '
            "arguments repaired, then ran and succeeded.",
        ),
        (
            [call("settled", ok=True, by="reconcile")],
            'Call "c1" to "kb_search" was settled as succeeded by reconcile.',
        ),
        (
            [call("intent", ok=True)],
            'Call "c1" to "kb_search" is in the audit log, but not what became of it.',
        ),
    ],
)
def test_what_became_of_a_call_is_one_sentence(events, sentence):
    others = [call("execution", callId="c2", ok=True, duration=99)]
    assert why([*others, *events, *others], "c1") == sentence


def test_a_call_is_found_by_its_key_too():
    event = refusal(callId=None, idempotencyKey="hash:3:abcdef", gate="mode", errorType="MODE_RESTRICTED")
    assert why([event], "hash:3:abcdef").startswith(
        'Call "hash:3:abcdef" to "kb_search" was refused by the gate "mode"'
    )


def test_an_unknown_id_is_answered_with_the_nearest_ones():
    events = [call("execution", callId=f"call_{number}") for number in (1234, 1235, 9999)]
    said = why(events, "call_1236")
    assert said.startswith('There is no call "call_1236" in the audit log; the nearest are ')
    assert '"call_1234"' in said
    assert '"call_1235"' in said
    assert why([], "x") == 'There is no call "x" in the audit log, and none like it.'


def test_a_message_of_several_lines_stays_one_line():
    assert "\n" not in why([refusal(gate="find", message="one\ntwo\x00")], "c1")


def test_a_wrong_token_is_not_told_as_an_approval():
    events = [
        {"event": "held", "callId": "c1", "toolId": "pay", "ok": False, "errorType": "CONFIRMATION_REQUIRED"},
        {"event": "confirmation_refused", "callId": "c1", "toolId": "pay", "ok": False, "errorType": "NOT_FOUND"},
    ]
    sentence = why(events, "c1")
    assert "without the right token" in sentence
    assert "was approved" not in sentence
