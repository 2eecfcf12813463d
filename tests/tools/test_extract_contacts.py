"""extract_contacts: what is reported stands in the text, where it is said to stand, and hostile texts cost no more."""

import sys
import time
from itertools import pairwise

import phonenumbers
import pytest
from hypothesis import given
from hypothesis import strategies as st


def _extract(run_tool, text, **options):
    return run_tool("extract_contacts", {"text": text, **options})["data"]


def _emails(run_tool, text):
    return [found["email"] for found in _extract(run_tool, text)["emails"]]


def _urls(run_tool, text):
    return [found["url"] for found in _extract(run_tool, text)["urls"]]


def _phones(run_tool, text, **options):
    return [found["phone"] for found in _extract(run_tool, text, **options)["phones"]]


def _people(run_tool, text):
    return [(found["name"], found["contact"]) for found in _extract(run_tool, text)["people"]]


# ----------------------------------------------------------------------------------------------------------- e-mail


@pytest.mark.parametrize(
    "text",
    [
        "ana@example.org",
        "Write to ana@example.org.",
        "Write to ana@example.org... then wait",
        "(ana@example.org)",
        "<ana@example.org>",
        "'ana@example.org', please",
        '"ana@example.org"',
        "*ana@example.org*",
        "_ana@example.org_",
        "`ana@example.org`",
        "email=ana@example.org&x=1",
        "E-Mail:ana@example.org",
        "mailto:ana@example.org?subject=Hi",
        "..ana@example.org-",
        "邮箱是ana@example.org谢谢",
        "ana@example.org으로 보내세요",
        "bo/ana@example.org",
    ],
)
def test_punctuation_and_sentences_around_an_address_are_not_part_of_it(run_tool, text):
    data = _extract(run_tool, text)
    assert [(found["email"], found["text"]) for found in data["emails"]] == [("ana@example.org", "ana@example.org")]
    assert data["urls"] == []


@pytest.mark.parametrize(
    "address",
    [
        "јосип@пример.срб",
        "संपर्क@डाटामेल.भारत",
        "用户@例子.广告",
        "josé@münchen.de",
        "ana@日本語.jp",
        "o'brien+news@mail.example.co.uk",
    ],
)
def test_addresses_in_any_script_are_found(run_tool, address):
    assert _emails(run_tool, f"Mail: {address}, thanks") == [address]


def test_an_address_is_normalized_and_shown_as_written(run_tool):
    (found,) = _extract(run_tool, "An ANA@Example.ORG bitte")["emails"]
    assert found == {"email": "ANA@example.org", "text": "ANA@Example.ORG", "start": 3, "end": 18}


@pytest.mark.parametrize(
    "text",
    [
        "@ana",
        "@ana@mastodon.example",
        "ana@",
        "ana@localhost",
        "ana@printer.local",
        "ana@example..org@",
        "a@b@example.org",
        "git@example.org:team/project.git",
        "x" * 65 + "@example.org",
        "ana@" + "x" * 64 + ".org",
        "3 @ 5.00",
    ],
)
def test_what_only_looks_like_an_address_is_not_reported(run_tool, text):
    assert _emails(run_tool, text) == []


def test_addresses_of_test_and_example_domains_are_found(run_tool):
    assert _emails(run_tool, "a@shop.test b@example.com c@shop.example") == [
        "a@shop.test",
        "b@example.com",
        "c@shop.example",
    ]


# -------------------------------------------------------------------------------------------------------------- web


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("See https://example.org/a.", ["https://example.org/a"]),
        ("(see https://en.example.org/wiki/Tea_(drink))", ["https://en.example.org/wiki/Tea_(drink)"]),
        ("[https://example.org](https://example.org/b)", ["https://example.org", "https://example.org/b"]),
        ("<https://example.org/?q=1&r=a,b#top>!", ["https://example.org/?q=1&r=a,b#top"]),
        ("'https://a.example','https://b.example'", ["https://a.example", "https://b.example"]),
        (
            "https://a.example,https://b.example; www.c.example?",
            ["https://a.example", "https://b.example", "www.c.example"],
        ),
        ("**HTTPS://EXAMPLE.ORG/X**", ["HTTPS://EXAMPLE.ORG/X"]),
        ("请看https://example.org/路径。谢谢", ["https://example.org/路径"]),
        ("https://example.orgをご覧ください", ["https://example.org"]),
        ("ftp://files.example.org:2121/x http://[::1]:80/y", ["ftp://files.example.org:2121/x", "http://[::1]:80/y"]),
        ("https://youtu.example/abc-_", ["https://youtu.example/abc-_"]),
        ("https://web.example/2020/https://example.org/", ["https://web.example/2020/https://example.org/"]),
    ],
)
def test_web_addresses_end_where_a_reader_would_end_them(run_tool, text, urls):
    assert _urls(run_tool, text) == urls


@pytest.mark.parametrize(
    "text",
    ["http://", "https://.", "www.", "www.example", "http://[::1", "http://a.example:port", "node.js", "xhttp://a.b"],
)
def test_what_only_looks_like_a_web_address_is_not_reported(run_tool, text):
    assert _urls(run_tool, text) == []


def test_matches_never_overlap(run_tool):
    text = "https://example.org/?to=ana@example.org&tel=+442079460958 www.ana@example.org 442079460958@example.org"
    data = _extract(run_tool, text, default_region="GB")
    assert [found["url"] for found in data["urls"]] == ["https://example.org/?to=ana@example.org&tel=+442079460958"]
    assert [found["email"] for found in data["emails"]] == ["www.ana@example.org", "442079460958@example.org"]
    assert data["phones"] == []


# ------------------------------------------------------------------------------------------------------------ phone


def test_an_international_number_needs_no_region(run_tool):
    assert _phones(run_tool, "Ring +44 (0)20 7946 0958 or tel:+34-912-345-678.") == ["+442079460958", "+34912345678"]


def test_a_national_number_needs_its_region(run_tool):
    assert _phones(run_tool, "Ring 020 7946 0958") == []
    assert _phones(run_tool, "Ring 020 7946 0958", default_region="GB") == ["+442079460958"]
    assert _phones(run_tool, "Ring 020 7946 0958", default_region="gb") == ["+442079460958"]


def test_an_extension_is_told_apart(run_tool):
    (found,) = _extract(run_tool, "+44 20 7946 0958 ext. 12")["phones"]
    assert (found["phone"], found["extension"], found["text"]) == ("+442079460958", "12", "+44 20 7946 0958 ext. 12")


def test_digits_of_another_script_are_read(run_tool):
    assert _phones(run_tool, "اتصل +٤٤٢٠٧٩٤٦٠٩٥٨") == ["+442079460958"]


def test_dates_prices_and_times_are_no_numbers_to_call(run_tool):
    text = "On 2026-03-29 08:00 it was 1,200.50, invoice 31/10/2026, page 12-34."
    assert _phones(run_tool, text, default_region="GB") == []


def test_an_unknown_region_is_refused_with_what_was_meant(run_tool):
    error = run_tool("extract_contacts", {"text": "x", "default_region": "UK"})["error"]
    assert error["type"] == "VALIDATION"
    assert error["message"] == 'There is no region "UK". Did you mean GB?'
    assert error["details"] == [{"pointer": "/default_region"}]


# ----------------------------------------------------------------------------------------------------------- people

PHONE = "+44 20 7946 0958"
E164 = "+442079460958"


@pytest.mark.parametrize(
    ("text", "name", "contact"),
    [
        ("Ana Kovač <ana@example.org>", "Ana Kovač", "ana@example.org"),
        ("Ana <ana@example.org>", "Ana", "ana@example.org"),
        ('"Kovač, Ana" <ana@example.org>', "Kovač, Ana", "ana@example.org"),
        ("山田太郎 <taro@example.jp>", "山田太郎", "taro@example.jp"),
        ("Will Hall <will@example.org>", "Will Hall", "will@example.org"),
        (f"Contact: Ana Kovač, {PHONE}", "Ana Kovač", E164),
        (f"Call Dr. Ludwig van Beethoven at {PHONE}", "Ludwig van Beethoven", E164),
        (f"Met Bo. Ana-María O'Brien – Tel.: {PHONE}", "Ana-María O'Brien", E164),
        ("J. R. Smith (e-mail: jr@example.org)", "J. R. Smith", "jr@example.org"),
        ("Анна Каренина, anna@example.org", "Анна Каренина", "anna@example.org"),
        ("ana@example.org (Ana Kovač)", "Ana Kovač", "ana@example.org"),
        (f"\tAna Kovač\t{PHONE}", "Ana Kovač", E164),
        ("cc: Bo Li; Ana Kovač | mailto:ana@example.org", "Ana Kovač", "ana@example.org"),
    ],
)
def test_a_name_beside_a_contact_is_reported_with_it(run_tool, text, name, contact):
    assert _people(run_tool, text) == [(name, contact)]


@pytest.mark.parametrize(
    "text",
    [
        "Ana Kovač wrote this.",
        "Ana Kovač\nana@example.org",
        "Ana Kovač will answer if you write to ana@example.org",
        f"Customer Service: {PHONE}",
        f"Head Office, {PHONE}",
        f"New York: {PHONE}",
        f"OPENING HOURS: {PHONE}",
        f"Ana Kovač Ltd, {PHONE}",
        f"Please Call Now: {PHONE}",
        "Support <support@example.org>",
        "Ana: ana@example.org",
        "see Ana Kovač (https://example.org/ana)",
        "ana@example.org (mobile only)",
        f"One Two Three Four Five Six Seven, {PHONE}",
    ],
)
def test_rather_no_name_than_a_wrong_one(run_tool, text):
    assert _people(run_tool, text) == []


def test_every_contact_keeps_its_own_name(run_tool):
    text = "Ana Kovač <ana@example.org>, Bo Li <bo@example.org> and Ana Kovač, +44 20 7946 0958"
    assert _people(run_tool, text) == [
        ("Ana Kovač", "ana@example.org"),
        ("Bo Li", "bo@example.org"),
        ("Ana Kovač", E164),
    ]


# ----------------------------------------------------------------------------------------------------------- places


def test_a_contact_that_stands_twice_is_listed_twice(run_tool):
    data = _extract(run_tool, "ana@example.org, again ana@example.org")
    assert [(found["start"], found["end"]) for found in data["emails"]] == [(0, 15), (23, 38)]


def test_places_count_characters_whatever_their_size(run_tool):
    text = "👩‍🚀 é e\u0301 日本 ana@example.org"
    (found,) = _extract(run_tool, text)["emails"]
    assert text[found["start"] : found["end"]] == "ana@example.org"


def test_a_text_with_more_than_is_reported_says_so(run_tool):
    data = _extract(run_tool, "a@b.co " * 200)
    assert (len(data["emails"]), data["complete"]) == (200, True)
    data = _extract(run_tool, "a@b.co " * 201)
    assert (len(data["emails"]), data["complete"]) == (200, False)


def test_a_text_full_of_figures_ends_the_search_and_says_so(run_tool):
    data = _extract(run_tool, "1 - " * 5000, default_region="US")
    assert (data["phones"], data["complete"]) == ([], False)


FRAGMENTS = st.sampled_from(
    [
        *"@.,;:!?()<>[]{}'\"_-+/\\*|&=#%~ \n\t\0",
        *[
            "a",
            "Ana",
            "Kovač",
            "é",
            "e\u0301",
            "日本",
            "한",
            "भा",
            "👩‍🚀",
            "\u202e",
            "١",
            "0",
            "1",
            "44",
            "tel. ",
            "at ",
        ],
        *["ana@example.org", "ANA@Example.org", "јосип@пример.срб", "@example.org", "ana@", "Ana Kovač <", '"Ana" <'],
        *["https://", "http://a.example/(x)", "www.", "www.a.example", "mailto:", "tel:", "://"],
        *["+44 20 7946 0958", "020 7946 0958", "+1 212 555 0123 x12", "2026-03-29", "+44"],
    ]
)
TEXTS = st.one_of(st.lists(FRAGMENTS, min_size=1, max_size=40).map("".join), st.text(min_size=1, max_size=200))


@given(TEXTS, st.sampled_from([None, "GB", "US"]))
def test_every_place_points_at_what_is_reported(run_tool, text, region):
    data = _extract(run_tool, text, **({"default_region": region} if region else {}))
    written = {"emails": "text", "phones": "text", "urls": "url", "people": "name"}
    for kind, field in written.items():
        places = [(found["start"], found["end"]) for found in data[kind]]
        assert places == sorted(places)
        for found in data[kind]:
            assert text[found["start"] : found["end"]] == found[field] != ""
    everything = sorted((found["start"], found["end"]) for kind in written for found in data[kind])
    assert all(before[1] <= after[0] for before, after in pairwise(everything))


@given(TEXTS)
def test_what_is_reported_is_well_formed(run_tool, text):
    data = _extract(run_tool, text, default_region="GB")
    for found in data["emails"]:
        assert run_tool("validate_email", {"email": found["text"]})["data"]["normalized"] == found["email"]
    for found in data["phones"]:
        assert phonenumbers.is_valid_number(phonenumbers.parse(found["phone"]))
    contacts = {found["email"] for found in data["emails"]} | {found["phone"] for found in data["phones"]}
    assert {found["contact"] for found in data["people"]} <= contacts


QUIET = st.text(st.sampled_from("abc DEF éß 日本 .,!?()\n"), max_size=40)


@given(QUIET, QUIET)
def test_a_contact_between_any_sentences_is_found(run_tool, before, after):
    text = f"{before} ana@example.org, https://example.org/a +44 20 7946 0958 {after}"
    data = _extract(run_tool, text)
    assert [found["email"] for found in data["emails"]] == ["ana@example.org"]
    assert [found["url"] for found in data["urls"]] == ["https://example.org/a"]
    assert [found["phone"] for found in data["phones"]] == [E164]


# ---------------------------------------------------------------------------------------------------------- hostile

HOSTILE = [
    *[
        "@",
        "a@",
        "a@b.",
        ".@",
        "a" * 70 + "@",
        "(",
        "[(",
        "<",
        "(http://a",
        "http://a)",
        "http://a(",
        "http://",
        "http://[",
        "www.",
    ],
    *[
        "http://a,",
        "https://a.example/" + "(" * 50,
        "\0",
        "\t",
        "é",
        "e\u0301\u0316",
        "Ana Kovač ",
        '"',
        '" <a@b.invalid> ',
        "A. ",
    ],
    *[
        "a@xn--a.co ",
        "a@" + "ü" * 60 + ".invalid ",
        "a" + "\u0316\u0301" * 30 + "@b.invalid ",
        "1",
        "1 1",
        "1/",
        "(1",
        "+",
        "１－",
    ],
]


def _repeated(unit, length):
    return (unit * (length // len(unit) + 1))[:length]


def _calls(run_tool, text):
    """How many functions are called, those of C included: the work that is done, on any machine."""
    count = 0

    def note(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    run_tool("extract_contacts", {"text": text})  # so that no import and no cache is counted
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run_tool("extract_contacts", {"text": text})
    finally:
        sys.setprofile(before)
    return count


@pytest.mark.parametrize("unit", HOSTILE)
def test_twice_the_hostile_text_takes_at_most_about_twice_the_work(run_tool, unit):
    once, twice = _calls(run_tool, _repeated(unit, 2_500)), _calls(run_tool, _repeated(unit, 5_000))
    assert twice < 2.5 * once + 1_000


@pytest.mark.parametrize(
    "unit", ["@", "(", "http://a(", "http://a)", "Ana Kovač <", "a@xn--a.co ", '"', "www.a", "e\u0301\u0316"]
)
def test_eight_times_the_hostile_text_does_not_take_the_square_of_the_time(run_tool, unit):
    def processor_time(length):
        text, times = _repeated(unit, length), []
        for _ in range(3):
            begin = time.process_time()
            run_tool("extract_contacts", {"text": text})
            times.append(time.process_time() - begin)
        return min(times)

    processor_time(2_500)
    assert processor_time(20_000) < 32 * processor_time(2_500)  # linear is 8, quadratic 64


@pytest.mark.parametrize(
    "args",
    [{}, {"text": ""}, {"text": "x" * 20_001}, {"text": "x", "default_region": "GBR"}, {"text": "x", "all": True}],
)
def test_arguments_outside_of_the_schema_are_refused(run_tool, args):
    assert run_tool("extract_contacts", args)["error"]["type"] == "VALIDATION"
