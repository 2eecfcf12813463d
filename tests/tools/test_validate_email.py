"""validate_email: a verdict for every text, without a network."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st


def _verdict(run_tool, email):
    return run_tool("validate_email", {"email": email})["data"]


@pytest.mark.parametrize(
    ("email", "normalized"),
    [
        ("ana@example.com", "ana@example.com"),
        ("Ana.Kovac@EXAMPLE.Com", "Ana.Kovac@example.com"),
        ("  ana@example.com\n", "ana@example.com"),
        ("ana+news@mail.example.co.uk", "ana+news@mail.example.co.uk"),
        ("o'brien@example.com", "o'brien@example.com"),
        ("ana@xn--mnchen-3ya.de", "ana@münchen.de"),
        ("јосип@пример.срб", "јосип@пример.срб"),
        ("संपर्क@डाटामेल.भारत", "संपर्क@डाटामेल.भारत"),
    ],
)
def test_a_well_formed_address_is_valid_and_normalized(run_tool, email, normalized):
    assert _verdict(run_tool, email) == {"valid": True, "normalized": normalized, "reason": None}


def test_a_letter_with_its_accent_apart_is_normalized_to_one_character(run_tool):
    assert _verdict(run_tool, "jose\u0301@example.com")["normalized"] == "jos\u00e9@example.com"


@pytest.mark.parametrize(
    ("email", "part_of_reason"),
    [
        ("", "must have an @-sign"),
        ("ana", "must have an @-sign"),
        ("@example.com", "something before the @-sign"),
        ("ana@", "something after the @-sign"),
        ("ana@example", "should have a period"),
        ("ana..k@example.com", "two periods in a row"),
        ("ana@exa mple.com", "SPACE"),
        ("ana@b@example.com", "invalid characters"),
        ("ana＠example.com", "full-width"),
        ("Ana <ana@example.com>", "display name"),
        ("ana@localhost", "should have a period"),
        ("ana@printer.local", "special-use"),
        ("ana@[127.0.0.1]", "bracketed IP address"),
        ('"ana k"@example.com', "Quoting"),
        ("ana@example.com\u202e", "unsafe characters"),
    ],
)
def test_what_is_wrong_is_answered_with_a_reason(run_tool, email, part_of_reason):
    verdict = _verdict(run_tool, email)
    assert (verdict["valid"], verdict["normalized"]) == (False, None)
    assert part_of_reason in verdict["reason"]
    assert verdict["reason"].endswith(".")


@pytest.mark.parametrize("email", ["a" * 243 + "@example.com", "a" * 988 + "@example.com", "é" * 122 + "@example.com"])
def test_an_address_that_is_too_long_is_answered_and_not_refused(run_tool, email):
    verdict = _verdict(run_tool, email)
    assert not verdict["valid"]
    assert f"it takes {len(email.encode())} bytes, and at most 254 are allowed" in verdict["reason"]


def test_the_longest_address_allowed_is_valid(run_tool):
    assert _verdict(run_tool, "a" * 242 + "@example.com")["valid"]


def test_more_than_a_thousand_characters_are_refused(run_tool):
    assert run_tool("validate_email", {"email": "a" * 1001})["error"]["type"] == "VALIDATION"


def test_a_reason_that_lists_many_characters_is_cut(run_tool):
    verdict = _verdict(run_tool, "".join(chr(number) for number in range(1, 32)) + "()[],;:\\@example.com")
    assert len(verdict["reason"]) <= 300


def test_nothing_is_looked_up(run_tool, monkeypatch):
    def refuse(*args, **kwargs):
        raise AssertionError("a lookup was made")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket.socket, "sendto", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert _verdict(run_tool, "ana@no-such-domain-anywhere.com")["valid"]


ADDRESS_LIKE = st.text(
    st.sampled_from("aZ9é日\u0301\u0316.-+_'\"<>()[]@:;, \t\0\u200b\u202eüßıƒ\U0001f600"), max_size=300
)


@given(
    st.one_of(st.text(max_size=1000), ADDRESS_LIKE, ADDRESS_LIKE.map(lambda text: f"{text}@example.com"), st.emails())
)
def test_every_text_gets_a_verdict(run_tool, email):
    verdict = _verdict(run_tool, email)
    assert verdict["valid"] == (verdict["reason"] is None) == (verdict["normalized"] is not None)


@given(st.emails())
def test_a_normalized_address_is_valid_and_stays_as_it_is(run_tool, email):
    verdict = _verdict(run_tool, email)
    if verdict["valid"]:
        assert _verdict(run_tool, verdict["normalized"]) == verdict
