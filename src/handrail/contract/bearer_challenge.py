"""`WWW-Authenticate: Bearer` (RFC 6750): what a protected server says to a request that it refuses. The server may be anybody."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

SCOPE = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_PARAMETER = re.compile(r'(?<![\w-])([A-Za-z_][A-Za-z0-9_-]*+)\s*+=\s*+(?:"((?:[^"\\]|\\.)*+)"|([^\s,"]++))')
"""Possessive, so that a long header is gone through once."""
_MAX_HEADER, _MAX_SCOPES, _MAX_SCOPE = 8_192, 100, 200


def challenge_in(header: str) -> dict[str, str]:
    """The parameters of a challenge, by their names in small letters; empty if it is no such thing."""
    kind, _, rest = header.strip().partition(" ")
    if kind.lower() != "bearer" or len(header) > _MAX_HEADER:
        return {}
    return {
        name.lower(): re.sub(r"\\(.)", r"\1", quoted) if quoted else bare
        for name, quoted, bare in _PARAMETER.findall(rest)
    }


def scopes_in(header: str) -> tuple[str, ...]:
    """The scopes that a request lacked; empty if it was refused for anything else."""
    found = challenge_in(header)
    return usable_scopes(found.get("scope", "").split()) if found.get("error") == "insufficient_scope" else ()


def usable_scopes(named: Sequence[Any]) -> tuple[str, ...]:
    """Those that a request can carry, at most a hundred."""
    fitting = (one for one in named[:_MAX_SCOPES] if isinstance(one, str) and len(one) <= _MAX_SCOPE)
    return tuple(one for one in fitting if SCOPE.fullmatch(one))
