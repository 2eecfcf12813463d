"""What the audit keeps of a call's input, so that it can be debugged later: what was sent, as it was sent, but not all of it."""

from __future__ import annotations

import json
from typing import Any

INPUT_BYTES = 4096
"""So much of what a provider sent is kept."""
REDACTED = "[redacted]"


def cut_input(raw: Any) -> dict[str, Any]:
    """The fields `input`, and `inputBytes` where it is longer than what is kept. Never raises, whatever a host has given."""
    if isinstance(raw, str):
        text, kept = raw, raw
    else:
        try:
            text, kept = json.dumps(raw, ensure_ascii=False), raw
        except (TypeError, ValueError, RecursionError):
            return {"input": f"(no JSON: {type(raw).__name__})"}
    if len(text) * 4 <= INPUT_BYTES:
        return {"input": kept}
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= INPUT_BYTES:
        return {"input": kept}
    return {"input": data[:INPUT_BYTES].decode("utf-8", "ignore"), "inputBytes": len(data)}
