"""One record of the knowledge base: what it holds, and the check that everything from outside passes before it is stored."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from difflib import get_close_matches
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import orjson

MAX_TEXT = 2_000_000
MAX_TITLE = 500
MAX_TAGS, MAX_TAG = 50, 100
MAX_METADATA_BYTES = 32 * 1024
MAX_URL = 2_000
DEFAULT_NAMESPACE = "studio"
PERSONAL = "personal"
_TYPE = r"[a-z][a-z0-9_]{0,31}"
_ID = re.compile(rf"({_TYPE}):[^\s\"'`<>\\]{{1,200}}")
_WORD = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_CONTROL = re.compile(r"[\0-\x1f\x7f-\x9f\u2028\u2029]")
_SCHEMES = ("http", "https", "mailto")
_TITLE_SHOWN = 80
_FIELDS = (
    "id", "type", "title", "text", "tags", "namespace", "owner", "tenant", "source_type", "source", "url", "metadata",
    "last_updated",
)  # fmt: skip
_MEANT = {"content": "text", "contents": "text", "body": "text", "name": "title"}
"""What others call a field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnowledgeRecord:
    """A record, checked. Empty texts stand for what is not known; `source` says where it was imported from."""

    id: str
    type: str
    title: str = ""
    text: str = ""
    tags: tuple[str, ...] = ()
    namespace: str = DEFAULT_NAMESPACE
    owner: str = ""
    tenant: str = ""
    source_type: str = "document"
    source: str = ""
    url: str = ""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    last_updated: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The record as it is exported: what is empty is left out, so that it reads back as the same record."""
        values = {name: getattr(self, name) for name in _FIELDS}
        return {name: value for name, value in values.items() if value not in ("", (), {})}

    @property
    def content_hash(self) -> str:
        """The same for the same content, wherever it was imported from."""
        content = {name: value for name, value in self.to_dict().items() if name != "source"}
        return sha256(orjson.dumps(content, option=orjson.OPT_SORT_KEYS)).hexdigest()


class BadRecord(Exception):
    """A record that cannot be stored. `problems` are sentences without their place; whoever reads the file knows it."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__(" ".join(problems))
        self.problems = tuple(problems)


def make_record(raw: object, *, defaults: Mapping[str, str] | None = None) -> KnowledgeRecord:
    """The checked record of a JSON object; `BadRecord` with everything that is wrong with it."""
    if not isinstance(raw, Mapping):
        raise BadRecord(["A record is an object with at least an id and a title or a text."])
    values = {**(defaults or {}), **{name: value for name, value in raw.items() if value is not None}}
    problems = _unknown(values)
    fields = _texts(values, problems)
    fields["id"] = one_form(fields.get("id", ""))
    fields["tags"] = _tags(values.get("tags", ()), problems)
    fields["metadata"] = _metadata(values.get("metadata", {}), problems)
    _check_identity(fields, problems)
    _check_rest(fields, problems)
    if problems:
        raise BadRecord(problems)
    return KnowledgeRecord(**fields)


def shown_title(title: str, text: str) -> str:
    """The title, or for a record without one the beginning of its text."""
    if title:
        return title
    first = next((line.strip("#*-> \t") for line in text[:2_000].splitlines() if line.strip("#*-> \t")), "")
    return first if len(first) <= _TITLE_SHOWN else first[: _TITLE_SHOWN - 1].rstrip() + "…"


def one_form(text: str) -> str:
    """The same letters as the same characters (NFC): an accent may be written with its letter or after it."""
    return unicodedata.normalize("NFC", text)


def tag_word(tag: str) -> str:
    """A tag as it is compared: without case, in one form."""
    return one_form(one_form(tag.strip()).casefold())


def moment_of(text: str) -> datetime | None:
    """A date, or a date-time with an offset, as a moment; None if it is neither. A date is its first moment in UTC."""
    try:
        moment = datetime.fromisoformat(text.strip().upper())
        if len(text.strip()) <= len("2026-03-29"):
            moment = moment.replace(tzinfo=UTC)
        return moment.astimezone(UTC) if moment.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _unknown(values: Mapping[str, object]) -> list[str]:
    problems = []
    for name in values:
        if name not in _FIELDS:
            near = [_MEANT[name]] if name in _MEANT else get_close_matches(str(name), _FIELDS, n=1, cutoff=0.7)
            hint = f'did you mean "{near[0]}"?' if near else f"known are {', '.join(_FIELDS)}."
            problems.append(f"A record has no field {_short(name)}; {hint} What is your own goes into metadata.")
    return problems


def _texts(values: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in _FIELDS:
        if name in ("tags", "metadata") or name not in values:
            continue
        value = values[name]
        if not isinstance(value, str):
            problems.append(f'"{name}" must be text; {_short(value)} is not.')
        elif "\0" in value or not _is_encodable(value):
            problems.append(f'"{name}" holds a NUL character or half of a surrogate pair; remove it.')
        else:
            fields[name] = value if name == "text" else value.strip()
    return fields


def _tags(value: object, problems: list[str]) -> tuple[str, ...]:
    good = isinstance(value, (list, tuple)) and len(value) <= MAX_TAGS
    tags = value if good and isinstance(value, (list, tuple)) else ()
    for tag in tags:
        good = good and isinstance(tag, str) and 0 < len(tag.strip()) <= MAX_TAG and tag.isprintable()
    if not good:
        problems.append(
            f'"tags" must be a list of up to {MAX_TAGS} texts of 1 to {MAX_TAG} characters; {_short(value)} is not.'
        )
        return ()
    return tuple(dict.fromkeys(one_form(tag.strip()) for tag in tags))


def _metadata(value: object, problems: list[str]) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        problems.append(f'"metadata" must be an object; {_short(value)} is not.')
        return {}
    try:
        raw = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except (TypeError, ValueError):
        problems.append('"metadata" must be JSON: texts, numbers, true, false, null, lists and objects, not too deep.')
        return {}
    if len(raw) > MAX_METADATA_BYTES or b"\\u0000" in raw:
        problems.append(f'"metadata" must take at most {MAX_METADATA_BYTES} bytes, without NUL characters.')
        return {}
    plain: dict[str, Any] = orjson.loads(raw)
    return plain


def _check_identity(fields: dict[str, Any], problems: list[str]) -> None:
    match = _ID.fullmatch(fields.get("id", ""))
    if match is None or not fields["id"].isprintable():
        said = f"{_short(fields['id'])} does not" if fields.get("id") else "this record has none"
        problems.append(
            f'"id" must look like "person:ana_kovac": a type in small letters, a colon and up to 200 characters without '
            f"spaces or quotes; {said}."
        )
    elif fields.setdefault("type", match[1]) != match[1]:
        problems.append(f'"type" is {_short(fields["type"])}, but the id begins with "{match[1]}:"; make them agree.')
    fields.setdefault("type", "")
    namespace = fields.setdefault("namespace", DEFAULT_NAMESPACE)
    if not _WORD.fullmatch(namespace):
        problems.append(f'"namespace" must be a word in small letters such as "studio"; {_short(namespace)} is not.')
    if (namespace == PERSONAL) != bool(fields.get("owner")):
        problems.append(f'A record of the namespace "{PERSONAL}" has an owner (a user\'s id), and no other record has.')
    for name in ("owner", "tenant", "source", "source_type"):
        if len(fields.get(name, "")) > MAX_TITLE or not fields.get(name, "").isprintable():
            problems.append(f'"{name}" must be one line of at most {MAX_TITLE} characters.')


def _check_rest(fields: dict[str, Any], problems: list[str]) -> None:
    if not fields.get("title", "") and not fields.get("text", "").strip():
        problems.append("A record needs a title or a text; both are empty.")
    if len(fields.get("title", "")) > MAX_TITLE:
        problems.append(f'"title" has {len(fields["title"])} characters; at most {MAX_TITLE} are allowed.')
    if _CONTROL.search(fields.get("title", "")):
        problems.append('"title" must be one line without control characters; remove them.')
    if len(fields.get("text", "")) > MAX_TEXT:
        problems.append(f'"text" has {len(fields["text"])} characters; at most {MAX_TEXT} are allowed. Split it.')
    url = fields.get("url", "")
    if url and not is_link(url):
        problems.append(f'"url" must be a web or mail address of at most {MAX_URL} characters; {_short(url)} is not.')
    if fields.get("last_updated"):
        moment = moment_of(fields["last_updated"])
        if moment is None:
            problems.append(
                '"last_updated" must be a date such as 2026-03-29 or a date-time with an offset; '
                f"{_short(fields['last_updated'])} is not."
            )
        else:
            fields["last_updated"] = moment.isoformat().replace("+00:00", "Z")
    if not fields.setdefault("source_type", "document"):
        fields["source_type"] = "document"


def is_link(url: str) -> bool:
    """Whether this is a web or mail address that may be stored and shown."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return False
    whole = len(url) <= MAX_URL and url.isprintable() and " " not in url
    return whole and parts.scheme in _SCHEMES and bool(parts.netloc or parts.scheme == "mailto")


def _is_encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _short(value: object) -> str:
    shown = ascii(value) if not isinstance(value, str) or not value.isprintable() else f'"{value}"'
    return shown if len(shown) <= 60 else shown[:57] + "…"
