"""The audit lines of calls that went the short way, put together when they are written: a call only leaves a `CallRecord`.

They have the members that `AuditTrail.audit_call` gives to the line of any other call, made from parts that are JSON already.
"""

from __future__ import annotations

from typing import Any

import orjson

from handrail.contract.ports import CallRecord
from handrail.observe.chain_writer import Entry
from handrail.observe.sealing import looks_like_id, seal_text

_MOST_KNOWN = 1_000
_dumps, _join = orjson.dumps, b"".join
_beginnings: dict[tuple[object, ...], bytes] = {}
"""What the lines of a turn begin with."""
_endings: dict[tuple[str, ...], bytes] = {(): b"}"}
"""What they end with: which arguments were filled in."""


def as_entry(noted: Entry | CallRecord | tuple[Any, ...]) -> Entry:
    """The entry of a record; an entry as it is. The arguments of a record that an `AuditSubject` follows are sealed."""
    if len(noted) == 3:
        return noted
    args = b',"args":%b' % noted[12]
    session_id, _, duration, _, _, when, stamp, turn, connection, mode, provider, call_id, words, defaulted = noted[:14]
    shown = _dumps(call_id)
    named = b',"callId":%b,"idempotencyKey":"provider:%b' % (shown, shown[1:])
    if len(noted) == 15:
        subject, private = noted[14], b'{"args":%b' % words
        if not looks_like_id(call_id):
            named, private = b"", private + named
        if not looks_like_id(provider):
            provider, private = None, private + b',"provider":%b' % _dumps(provider)
        args = b',"sealed":"%b"' % seal_text(subject, private + b"}") if subject.secret else b""
    of = (session_id, turn, connection, mode, provider)
    body = (
        _beginnings.get(of) or _beginning(of),
        stamp,
        named,
        b',"duration":',
        _dumps(duration),
        b',"ok":true,"errorType":null',
        args,
        _endings.get(defaulted) or _ending(defaulted),
    )
    return "execution", when, _join(body)


def _beginning(of: tuple[object, ...]) -> bytes:
    if len(_beginnings) >= _MOST_KNOWN:
        _beginnings.clear()
    named = dict(zip(("sessionId", "turnId", "connection", "mode", "provider"), of, strict=True))
    made = _beginnings[of] = _dumps(named)[1:-1] + b","
    return made


def _ending(defaulted: tuple[str, ...]) -> bytes:
    if len(_endings) >= _MOST_KNOWN:
        _endings.clear()
    made = _endings[defaulted] = b',"defaulted":%b}' % _dumps(defaulted)
    return made
