"""Encryption at rest: AES-256-GCM with a fresh nonce, bound to whom the secret belongs, so that rows cannot be swapped.

There may be several keys. The first seals; every one of them opens what it has sealed. To rotate, put a new key in front, seal
everything anew (`handrail connect --rotate`), and take the old one away.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from handrail.contract.credentials import CredentialError
from handrail.contract.errors import ConfigError, missing_extra

_KEY_BYTES, _NONCE_BYTES = 32, 12


class SealBroken(CredentialError):
    """What was sealed cannot be opened: its key is not here, or the row was changed."""


def new_key() -> str:
    """A key for `HANDRAIL_CREDENTIALS_KEYS`."""
    return base64.urlsafe_b64encode(secrets.token_bytes(_KEY_BYTES)).decode()


class Vault:
    """Seals and opens small JSON documents."""

    def __init__(self, keys: Sequence[str]) -> None:
        try:
            from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415  # an extra
        except ImportError:
            raise missing_extra("Keeping people's credentials", "identity") from None
        decoded = [_decoded(key) for key in keys]
        if not decoded:
            raise ConfigError(
                "Credentials are kept encrypted, and there is no key for that; set HANDRAIL_CREDENTIALS_KEYS "
                "(`handrail connect --new-key` prints one)."
            )
        self._ciphers = {_id_of(key): AESGCM(key) for key in decoded}
        self.key_id = _id_of(decoded[0])
        """Names the key that seals."""

    def __repr__(self) -> str:
        return f"Vault({self.key_id})"

    def seal(self, value: Mapping[str, Any], *subject: str) -> str:
        """`subject` says whose it is; only with the same one it can be opened."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        text = json.dumps(value, separators=(",", ":")).encode()
        sealed = self._ciphers[self.key_id].encrypt(nonce, text, _bound_to(subject))
        return base64.b64encode(nonce + sealed).decode()

    def open(self, sealed: str, key_id: str, *subject: str) -> dict[str, Any]:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # an extra

        cipher = self._ciphers.get(key_id)
        if cipher is None:
            raise SealBroken(
                f'A credential was encrypted with the key "{key_id}", which HANDRAIL_CREDENTIALS_KEYS lacks.'
            )
        try:
            raw = base64.b64decode(sealed, validate=True)
            opened: dict[str, Any] = json.loads(
                cipher.decrypt(raw[:_NONCE_BYTES], raw[_NONCE_BYTES:], _bound_to(subject))
            )
        except (InvalidTag, ValueError):
            raise SealBroken(
                "A credential in the store cannot be read: it was changed, or belongs to somebody else."
            ) from None
        return opened


def _bound_to(subject: Sequence[str]) -> bytes:
    return json.dumps(["handrail", *subject]).encode()


def _id_of(key: bytes) -> str:
    return hashlib.sha256(b"handrail key\0" + key).hexdigest()[:12]


def _decoded(key: str) -> bytes:
    try:
        raw = base64.b64decode(key.strip().replace("-", "+").replace("_", "/"), validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(raw) != _KEY_BYTES:
        raise ConfigError(
            f"A key in HANDRAIL_CREDENTIALS_KEYS must be {_KEY_BYTES} bytes in base64; `handrail connect --new-key` prints one."
        )
    return raw
