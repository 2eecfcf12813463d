"""What a server answered → an envelope: marked as external, bounded, and only in forms that we know.

`data` is the structured content of a tool that says what that is; of any other it is the list of content blocks. Whether the
structured content fits its schema is checked where every tool's data is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from handrail.contract.envelope import ToolFailure, ToolResponse
from handrail.contract.errors import ErrorType

EXTERNAL: Mapping[str, Any] = {"external": True}
_MAX_BLOCKS = 1_000
_MAX_ERROR_CHARACTERS = 2_000
_MAX_DATA_CHARACTERS = 900_000
"""What is longer is cut here, before it is measured and cut to the tool's own limit as any other data."""
_LINK_FIELDS = ("uri", "name", "title", "description", "mimeType", "size")


def response_of(result: Mapping[str, Any], *, tool_id: str, structured: bool, writes: bool) -> ToolResponse:
    """The envelope for the result of `tools/call`."""
    blocks = result.get("content")
    content = blocks if isinstance(blocks, list) else []
    if result.get("isError") is True:
        text = " ".join(block["text"] for block in content if _is_text(block))
        return failed(ErrorType.PERMANENT, _cut(text, _MAX_ERROR_CHARACTERS) or f'"{tool_id}" failed.', partial=writes)
    data = result.get("structuredContent")
    if structured:
        if "structuredContent" not in result:
            message = f'"{tool_id}" gave no structured result, though it says that it does.'
            return failed(ErrorType.PERMANENT, message, partial=writes)
        return _given(data)
    return _given({"content": _blocks(content)})


def failed(
    kind: ErrorType, message: str, *, partial: bool, retryable: bool = False, retry_after: float | None = None
) -> ToolResponse:
    """A failure that is no word of ours alone."""
    failure = ToolFailure(kind, _sound(message), retryable, partial, retry_after=retry_after)
    return ToolResponse(False, None, failure, (), EXTERNAL)


def _given(data: Any) -> ToolResponse:
    return ToolResponse(True, data, None, (), EXTERNAL)


def _blocks(content: list[Any]) -> list[dict[str, Any]]:
    kept: list[dict[str, Any]] = []
    left = _MAX_DATA_CHARACTERS
    for block in content[:_MAX_BLOCKS]:
        if not isinstance(block, Mapping):
            continue
        made = _block(block)
        if _is_text(made):
            made["text"] = _cut(made["text"], left)
            left -= len(made["text"])
        kept.append(made)
        if left <= 0:
            break
    return kept


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    kind = block.get("type")
    if kind == "text" and isinstance(block.get("text"), str):
        return {"type": "text", "text": _sound(block["text"])}
    if kind == "resource_link":
        return {"type": "resource_link", **{key: _short(block[key]) for key in _LINK_FIELDS if key in block}}
    if kind == "resource" and isinstance(block.get("resource"), Mapping):
        inner = block["resource"]
        shown = {key: _short(inner[key]) for key in ("uri", "mimeType") if key in inner}
        if isinstance(inner.get("text"), str):
            return {"type": "text", "text": _sound(inner["text"]), **shown}
        return {"type": "resource", **shown, **_left_out(inner.get("blob"))}
    # A model is not helped by the letters of a picture or a sound.
    shown = {"mimeType": _short(block["mimeType"])} if "mimeType" in block else {}
    return {"type": _short(kind), **shown, **_left_out(block.get("data"))}


def _left_out(data: Any) -> dict[str, Any]:
    return {"omittedBytes": len(data) * 3 // 4} if isinstance(data, str) else {}


def _is_text(block: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _short(value: Any) -> Any:
    return _cut(_sound(value), 1_000) if isinstance(value, str) else value if isinstance(value, (int, float)) else None


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def _sound(text: str) -> str:
    """Text that can be written as UTF-8: half a surrogate pair cannot."""
    return text.encode("utf-8", "replace").decode("utf-8") if not text.isascii() else text
