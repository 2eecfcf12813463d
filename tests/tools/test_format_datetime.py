"""format_datetime: the right moment, in the right zone, in words that can be read aloud."""

from datetime import UTC, datetime
from importlib.resources import files

import pytest
from babel.localedata import locale_identifiers
from hypothesis import given
from hypothesis import strategies as st

ZONES = files("tzdata").joinpath("zones").read_text(encoding="utf-8").split()
LOCALES = sorted(locale_identifiers())
STYLES = ["short", "medium", "long", "full", "date", "time", "iso"]


def _format(run_tool, value, **options):
    return run_tool("format_datetime", {"value": value, **options})["data"]


def _refused(run_tool, **args):
    error = run_tool("format_datetime", {"value": "2026-03-29T12:30:00Z", **args})["error"]
    assert error["type"] == "VALIDATION"
    return error


@pytest.mark.parametrize(
    ("style", "text"),
    [
        ("short", "29/03/2026, 14:30"),
        ("medium", "29 Mar 2026, 14:30"),
        ("long", "29 March 2026, 14:30"),
        ("full", "Sunday, 29 March 2026, 14:30 Central European Summer Time"),
        ("date", "Sunday, 29 March 2026"),
        ("time", "14:30"),
        ("iso", "2026-03-29T14:30:59+02:00"),
    ],
)
def test_each_style_is_as_the_guide_shows_it(run_tool, style, text):
    data = _format(run_tool, "2026-03-29T12:30:59Z", time_zone="Europe/Madrid", locale="en-GB", style=style)
    assert data == {
        "text": text,
        "iso": "2026-03-29T14:30:59+02:00",
        "time_zone": "Europe/Madrid",
        "utc_offset": "+02:00",
        "locale": "en-GB",
    }


def test_nothing_but_a_value_gives_utc_in_american_english(run_tool):
    data = _format(run_tool, "2026-03-29T14:30:00+02:00")
    assert (data["text"], data["time_zone"], data["locale"]) == ("March 29, 2026, 12:30 PM", "UTC", "en")


@pytest.mark.parametrize(
    ("locale", "text"),
    [
        ("es", "domingo, 29 de marzo de 2026, 14:30 hora de verano de Europa central"),
        ("de-DE", "Sonntag, 29. März 2026, 14:30 Mitteleuropäische Sommerzeit"),
        ("zh-Hans-CN", "2026年3月29日星期日 中欧夏令时间 14:30"),
        ("fr-CA", "dimanche 29 mars 2026, 14 h 30 heure avancée de l’Europe centrale"),
        ("en-US", "Sunday, March 29, 2026, 2:30 PM Central European Summer Time"),
    ],
)
def test_each_language_has_its_own_order_and_clock(run_tool, locale, text):
    assert (
        _format(run_tool, "2026-03-29T12:30:00Z", time_zone="Europe/Madrid", locale=locale, style="full")["text"]
        == text
    )


# --------------------------------------------------------------------------------------------------- when clocks change


@pytest.mark.parametrize(
    ("value", "clock", "offset", "name"),
    [
        ("2026-03-29T00:59:59Z", "01:59", "+01:00", "Central European Standard Time"),
        ("2026-03-29T01:00:00Z", "03:00", "+02:00", "Central European Summer Time"),
        ("2026-10-25T00:30:00Z", "02:30", "+02:00", "Central European Summer Time"),
        ("2026-10-25T01:30:00Z", "02:30", "+01:00", "Central European Standard Time"),
    ],
)
def test_madrid_goes_forward_in_march_and_back_in_october(run_tool, value, clock, offset, name):
    data = _format(run_tool, value, time_zone="Europe/Madrid", locale="en-GB", style="full")
    assert data["text"].endswith(f" {clock} {name}")
    assert data["utc_offset"] == offset


def test_the_hour_that_new_york_has_twice_is_told_apart(run_tool):
    first, second = (
        _format(run_tool, value, time_zone="America/New_York", locale="en-US", style="full")
        for value in ("2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z")
    )
    assert (first["iso"], second["iso"]) == ("2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00")
    assert first["text"] == "Sunday, November 1, 2026, 1:30 AM Eastern Daylight Time"
    assert second["text"] == "Sunday, November 1, 2026, 1:30 AM Eastern Standard Time"


@pytest.mark.parametrize(
    ("zone", "winter", "summer"),
    [
        ("Europe/Dublin", "12:00 Greenwich Mean Time", "13:00 Irish Standard Time"),
        ("Europe/London", "12:00 Greenwich Mean Time", "13:00 British Summer Time"),
        ("Asia/Kolkata", "17:30 India Standard Time", "17:30 India Standard Time"),
        ("Europe/Kyiv", "14:00 Eastern European Standard Time", "15:00 Eastern European Summer Time"),
        ("America/Argentina/Buenos_Aires", "09:00 Argentina Standard Time", "09:00 Argentina Standard Time"),
        ("Australia/Lord_Howe", "23:00 Lord Howe Daylight Time", "22:30 Lord Howe Standard Time"),
        ("Europe/Istanbul", "15:00 GMT+03:00", "15:00 GMT+03:00"),
        ("UTC", "12:00 Coordinated Universal Time", "12:00 Coordinated Universal Time"),
    ],
)
def test_a_zone_is_called_what_people_there_call_it(run_tool, zone, winter, summer):
    for value, name in (("2026-01-15T12:00:00Z", winter), ("2026-07-15T12:00:00Z", summer)):
        assert _format(run_tool, value, time_zone=zone, locale="en-GB", style="full")["text"].endswith(name)


def test_the_name_of_today_is_not_given_to_a_clock_of_long_ago(run_tool):
    data = _format(run_tool, "1890-01-01T00:00:00Z", time_zone="Europe/Amsterdam", style="full")
    assert "Central European" not in data["text"]
    assert data["iso"] == "1890-01-01T00:20:00+00:20"


# ------------------------------------------------------------------------------------------------------ odd but valid


def test_a_leap_second_is_the_second_that_follows(run_tool):
    assert _format(run_tool, "2016-12-31T23:59:60Z")["iso"] == "2017-01-01T00:00:00+00:00"


def test_small_letters_and_fine_fractions_are_read(run_tool):
    assert _format(run_tool, "2026-03-29t12:30:05.123456789z")["iso"] == "2026-03-29T12:30:05.123456+00:00"


@pytest.mark.parametrize(
    ("value", "zone"),
    [
        ("0000-01-01T00:00:00Z", "UTC"),
        ("0001-01-01T00:00:00Z", "America/New_York"),
        ("9999-12-31T23:59:59Z", "Asia/Tokyo"),
    ],
)
def test_a_moment_beyond_the_calendar_is_refused_with_a_sentence(run_tool, value, zone):
    error = _refused(run_tool, value=value, time_zone=zone)
    assert "years 1 to 9999" in error["message"]
    assert error["details"] == [{"pointer": "/value"}]


@pytest.mark.parametrize("value", ["2026-03-29T12:30:00", "2026-03-29", "tomorrow", "2026-02-30T00:00:00Z", ""])
def test_a_value_without_an_offset_is_refused(run_tool, value):
    _refused(run_tool, value=value)


# ------------------------------------------------------------------------------------------------------ near misses


@pytest.mark.parametrize(
    ("zone", "nearest"),
    [
        ("Madrid", "Europe/Madrid"),
        ("New York", "America/New_York"),
        ("Europe/Madird", "Europe/Madrid"),
        ("America/Bueno Aires", "America/Argentina/Buenos_Aires"),
        ("Londn", "Europe/London"),
    ],
)
def test_an_unknown_zone_is_refused_with_the_nearest(run_tool, zone, nearest):
    error = _refused(run_tool, time_zone=zone)
    assert error["message"].startswith(f'There is no time zone "{zone}". Did you mean ')
    assert f'"{nearest}"' in error["message"]
    assert error["details"] == [{"pointer": "/time_zone"}]


@pytest.mark.parametrize("offset", ["UTC+2", "gmt-5", "+02:00", "-0300"])
def test_an_offset_is_not_taken_for_a_zone(run_tool, offset):
    message = _refused(run_tool, time_zone=offset)["message"]
    assert message.startswith(f'"{offset}" is an offset, not a time zone.')
    assert "Etc/" not in message


@pytest.mark.parametrize("zone", ["../../etc/passwd", "/etc/localtime", "Europe", "localtime", "x" * 64, " ", "\0"])
def test_a_zone_is_never_a_path(run_tool, zone):
    _refused(run_tool, time_zone=zone)


def test_the_case_of_a_zone_does_not_matter(run_tool):
    assert _format(run_tool, "2026-03-29T12:30:00Z", time_zone="europe/MADRID")["time_zone"] == "Europe/Madrid"


@pytest.mark.parametrize(
    ("locale", "nearest"),
    [("english", "en"), ("Spanish", "es"), ("en-QQ", "en"), ("spansh", "es"), ("en-GBR", "en-GB")],
)
def test_an_unknown_locale_is_refused_with_the_nearest(run_tool, locale, nearest):
    error = _refused(run_tool, locale=locale)
    assert error["message"].startswith(f'There is no locale "{locale}". Did you mean ')
    assert f'"{nearest}"' in error["message"]
    assert error["details"] == [{"pointer": "/locale"}]


def test_a_locale_like_no_other_is_refused_with_an_example(run_tool):
    assert _refused(run_tool, locale="xx-YY")["message"].endswith('Give a BCP 47 tag such as "en-GB" or "es".')


@pytest.mark.parametrize(
    ("written", "used"),
    [
        ("en_GB", "en-GB"),
        ("PT-br", "pt-BR"),
        ("en-UK", "en-GB"),
        ("zh-TW", "zh-Hant-TW"),
        ("de-DE-u-hc-h23", "de-DE"),
        ("en-ES", "en-ES"),
    ],
)
def test_the_locale_that_was_used_is_told(run_tool, written, used):
    assert _format(run_tool, "2026-03-29T12:30:00Z", locale=written)["locale"] == used


# ------------------------------------------------------------------------------------------------------- properties


def test_every_locale_can_be_written_and_spoken(run_tool):
    for locale in LOCALES:
        text = _format(run_tool, "2026-03-29T12:30:00Z", time_zone="Europe/Madrid", locale=locale, style="full")["text"]
        assert text == text.strip()
        assert set(text).isdisjoint("\u00a0\u202f\u2009{}")


MOMENTS = st.datetimes(min_value=datetime(1, 1, 3), max_value=datetime(9999, 12, 29), timezones=st.just(UTC))


@given(MOMENTS, st.sampled_from(ZONES), st.sampled_from(LOCALES), st.sampled_from(STYLES))
def test_every_moment_can_be_written_and_is_the_same_moment(run_tool, moment, zone, locale, style):
    data = _format(run_tool, moment.isoformat(), time_zone=zone, locale=locale, style=style)
    assert datetime.fromisoformat(data["iso"]) == moment
    assert data["iso"].endswith(data["utc_offset"])


@given(st.text(min_size=1, max_size=64), st.text(min_size=2, max_size=35))
def test_any_zone_and_any_locale_gets_an_answer(run_tool, zone, locale):
    value = "2026-03-29T12:30:00Z"
    for args in ({"time_zone": zone}, {"locale": locale}):
        envelope = run_tool("format_datetime", {"value": value, **args})
        assert envelope["ok"] or envelope["error"]["type"] == "VALIDATION"
