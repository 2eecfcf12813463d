"""Locales: from a BCP 47 tag to one that Babel has data for, or to the tags that may have been meant."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

from babel import Locale, UnknownLocaleError
from babel.localedata import locale_identifiers

from handrail import ErrorType, ToolError

_TAG = re.compile(r"[a-z]{2,3}(?:-[a-z0-9]{2,8})*", re.IGNORECASE | re.ASCII)
_EXTENSION = re.compile(r"-[a-z0-9]-.*", re.IGNORECASE | re.ASCII | re.DOTALL)


def find(wanted: str) -> Locale:
    """The locale of that tag. Extensions (`-u-…`) are ignored; what it resolved to is told in the answer."""
    tag = _EXTENSION.sub("", wanted.strip().replace("_", "-"))
    if _TAG.fullmatch(tag):
        try:
            return Locale.parse(tag, sep="-")
        except (UnknownLocaleError, ValueError):
            pass  # told below, with near names
    near = _nearest(tag)
    advice = f"Did you mean {' or '.join(near)}?" if near else 'Give a BCP 47 tag such as "en-GB" or "es".'
    raise ToolError(ErrorType.VALIDATION, f'There is no locale "{wanted}". {advice}', details=[{"pointer": "/locale"}])


def _nearest(tag: str) -> list[str]:
    tags, languages = _tags(), _languages()
    folded = tag.casefold()
    found = [languages[folded]] if folded in languages else []
    language = folded.split("-")[0]
    if language in tags:
        found.append(tags[language])
    found += [tags[name] for name in get_close_matches(folded, tags, n=3, cutoff=0.7)]
    found += [languages[name] for name in get_close_matches(folded, languages, n=2, cutoff=0.8)]
    return [f'"{name}"' for name in list(dict.fromkeys(found))[:3]]


@cache
def _tags() -> dict[str, str]:
    return {name.casefold(): name for name in sorted(tag.replace("_", "-") for tag in locale_identifiers())}


@cache
def _languages() -> dict[str, str]:
    """English names of languages: at times a model writes "Spanish"."""
    tags = _tags()
    return {str(name).casefold(): code for code, name in Locale("en").languages.items() if code in tags}
