"""Languages by their English names, as tags that tools take for a locale."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from handrail.agents.offline.fitting import fits

_SIMPLE = """arabic=ar bulgarian=bg catalan=ca chinese=zh croatian=hr czech=cs danish=da dutch=nl english=en
estonian=et finnish=fi french=fr german=de greek=el hebrew=he hindi=hi hungarian=hu icelandic=is
indonesian=id irish=ga italian=it japanese=ja korean=ko latvian=lv lithuanian=lt malay=ms norwegian=nb
persian=fa polish=pl portuguese=pt romanian=ro russian=ru serbian=sr slovak=sk slovenian=sl spanish=es
swahili=sw swedish=sv thai=th turkish=tr ukrainian=uk vietnamese=vi"""
_TAGS = dict(pair.split("=") for pair in _SIMPLE.split()) | {
    "british english": "en-GB",
    "american english": "en-US",
    "brazilian portuguese": "pt-BR",
    "swiss german": "de-CH",
    "austrian german": "de-AT",
    "canadian french": "fr-CA",
    "mexican spanish": "es-MX",
}
_NAMED = re.compile(rf"\b({'|'.join(sorted(_TAGS, key=len, reverse=True))})\b", re.IGNORECASE)


def language_in(text: str, schema: Mapping[str, Any]) -> str | None:
    """The tag of the language that is named, or its name where the schema takes only that."""
    match = _NAMED.search(text)
    if match is None:
        return None
    return next((value for value in (_TAGS[match[1].lower()], match[1]) if fits(schema, value)), None)
