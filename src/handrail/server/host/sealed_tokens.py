"""Who opened a conversation, so that the same key finds it again: its secret, sealed with the key that it was opened with.

A session's secret is shown once and stored as a hash. Here it is kept a second time, mixed with bits that only the API key's own
secret gives, of which the server has nothing but a hash: whoever reads the disk learns neither of the two.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import shake_256


def seal(secret: str, session_id: str, token: str) -> str:
    """The session's token, readable only with the secret of the API key."""
    return urlsafe_b64encode(_mixed(secret, session_id, token.encode())).decode()


def unseal(secret: str, session_id: str, sealed: str) -> str:
    return _mixed(secret, session_id, urlsafe_b64decode(sealed)).decode("utf-8", "replace")


def _mixed(secret: str, session_id: str, text: bytes) -> bytes:
    # Each session has bits of its own, and none of them follow from the key's hash, which is on disk.
    bits = shake_256(b"\0".join((b"handrail session", secret.encode("utf-8", "surrogatepass"), session_id.encode())))
    return bytes(one ^ other for one, other in zip(text, bits.digest(len(text)), strict=True))
