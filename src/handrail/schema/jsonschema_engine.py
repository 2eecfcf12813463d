"""The one door to `jsonschema_rs`: validators that assert formats, match patterns in linear time, and never fetch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn
from urllib.parse import quote

from jsonschema_rs import Draft202012Validator, FancyRegexOptions, ReferencingError, RegexOptions, Registry

from handrail.schema.pointer import pointer
from handrail.schema.subschemas import Json, Path

FORMATS = ("email", "date-time", "date", "time", "uri", "uuid", "ipv4", "ipv6")
BUILD_ERRORS = (ValueError, ReferencingError)
"""What `build` can raise for a schema that the engine does not take; its `ValidationError` is a `ValueError`."""

# The engine's own limit is ten times this and lets one pattern take 150 ms to compile and 60 ms to match.
_LINEAR = RegexOptions(size_limit=1_000_000)
_BACKTRACKS = re.compile(r"\(\?<?[=!]|\\[1-9k]")
_DOCUMENT = "urn:handrail:schema"


def _refuse(uri: str, /) -> NoReturn:
    # Without a retriever the engine would fetch over HTTP.
    raise LookupError(f"{uri} is not fetched")


def build(schema: Mapping[str, Json]) -> Draft202012Validator:
    """A validator for the schema; one of `BUILD_ERRORS` if the engine does not take it."""
    return Draft202012Validator(schema, validate_formats=True, pattern_options=_LINEAR, retriever=_refuse)  # type: ignore[arg-type]


class Subvalidators:
    """Checks against subschemas of one schema, in which `#` still means that schema. Built at once, which is cheaper."""

    __slots__ = ("_engine", "_keys")

    def __init__(self, root: Mapping[str, Json], paths: Iterable[Path]) -> None:
        registry = Registry([(_DOCUMENT, root)], retriever=_refuse)  # type: ignore[list-item]
        self._keys = {path: str(number) for number, path in enumerate(dict.fromkeys(paths))}
        self._engine = Draft202012Validator(
            {"items": {"properties": {key: {"$ref": _DOCUMENT + _fragment(path)} for path, key in self._keys.items()}}},
            validate_formats=True,
            pattern_options=_LINEAR,
            registry=registry,
            retriever=_refuse,
        )

    def is_valid(self, path: Path, instance: Json) -> bool:
        """Whether the subschema at `path`, which must be one of those asked for, takes the instance."""
        return self._engine.is_valid([{self._keys[path]: instance}])

    def first_refused(self, paths: Iterable[Path], instances: Iterable[Json]) -> int | None:
        """The index of the first instance that the subschema at its path does not take; None if there is none."""
        keyed = [{self._keys[path]: instance} for path, instance in zip(paths, instances, strict=True)]
        if self._engine.is_valid(keyed):
            return None
        # Halved and halved again, which takes no more than twice the work of the first check.
        start, end = 0, len(keyed)
        while end - start > 1:
            middle = (start + end) // 2
            if self._engine.is_valid(keyed[start:middle]):
                start = middle
            else:
                end = middle
        return start


def pattern_matches(pattern: str, text: str) -> bool:
    """Whether the text has a match, by the engine's own idea of a pattern; True for a pattern it does not take."""
    try:
        return build({"pattern": pattern}).is_valid(text)
    except BUILD_ERRORS:
        return True


def pattern_problem(pattern: str) -> str | None:
    """Why a pattern cannot be used, as the end of a sentence about it; None if it can."""
    if _takes(pattern, _LINEAR):
        return None
    if not _takes(pattern, FancyRegexOptions()):
        return "is not a regular expression, or is too large to be compiled; correct it or make it smaller"
    if _BACKTRACKS.search(pattern):
        return "uses a lookahead, lookbehind or backreference, which can take exponential time; write it without"
    return "grows too large when it is compiled; use smaller repetition counts"


def _takes(pattern: str, options: RegexOptions | FancyRegexOptions) -> bool:
    try:
        Draft202012Validator({"pattern": pattern}, pattern_options=options, retriever=_refuse)
    except BUILD_ERRORS:
        return False
    return True


def _fragment(path: Path) -> str:
    return "#" + quote(pointer(path), safe="/~")
