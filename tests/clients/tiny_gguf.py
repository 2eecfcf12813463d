"""A tiny language model with random weights, as a GGUF file: enough for the real engine to run within a second.

It knows bytes and nothing else, and says nonsense; but what it writes is held to the same schemas as any other model's.
"""

from __future__ import annotations

import random
import struct
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTH, HEADS, INNER, CONTEXT = 32, 2, 64, 4096
_STRING, _ARRAY, _U32, _I32, _F32, _BOOL = 8, 9, 4, 5, 6, 7
_ALIGNMENT = 32
_LIKELY = frozenset(range(32, 127)) - {ord('"'), ord("\\")}
"""Bytes that it likes to write: what it says is ASCII, and does not end before it is cut."""


def write_tiny_gguf(path: Path, *, seed: int = 7) -> Path:
    """Write the model; the same seed gives the same bytes."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tensors = list(_tensors(len(tokens), random.Random(seed)))
    fields = list(_fields(tokens))
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(fields)) + b"".join(fields)
    offset = 0
    for name, shape, values in tensors:
        sizes = struct.pack(f"<{len(shape)}Q", *shape)
        head += _text(name) + struct.pack("<I", len(shape)) + sizes + struct.pack("<IQ", 0, offset)
        offset += _padded(len(values) * 4)
    with path.open("wb") as file:
        file.write(head + b"\0" * (_padded(len(head)) - len(head)))
        for _, _, values in tensors:
            data = array("f", values).tobytes()
            file.write(data + b"\0" * (_padded(len(data)) - len(data)))
    return path


def _tensors(vocabulary: int, dice: random.Random) -> Iterator[tuple[str, tuple[int, ...], list[float]]]:
    def matrix(name: str, columns: int, rows: int) -> tuple[str, tuple[int, ...], list[float]]:
        return name, (columns, rows), [dice.gauss(0, 0.2) for _ in range(columns * rows)]

    yield matrix("token_embd.weight", WIDTH, vocabulary)
    yield "output_norm.weight", (WIDTH,), [1.0] * WIDTH
    name, shape, values = matrix("output.weight", WIDTH, vocabulary)
    yield name, shape, [value if place // WIDTH - 3 in _LIKELY else 0.0 for place, value in enumerate(values)]
    yield "blk.0.attn_norm.weight", (WIDTH,), [1.0] * WIDTH
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        yield matrix(f"blk.0.{name}.weight", WIDTH, WIDTH)
    yield "blk.0.ffn_norm.weight", (WIDTH,), [1.0] * WIDTH
    yield matrix("blk.0.ffn_gate.weight", WIDTH, INNER)
    yield matrix("blk.0.ffn_up.weight", WIDTH, INNER)
    yield matrix("blk.0.ffn_down.weight", INNER, WIDTH)


def _fields(tokens: list[str]) -> Iterator[bytes]:
    kinds = [2, 3, 3, *[6] * 256]  # unknown, control, control, bytes
    yield _field("general.architecture", _STRING, "llama")
    yield _field("general.name", _STRING, "tiny")
    numbers = {"context_length": CONTEXT, "embedding_length": WIDTH, "block_count": 1, "feed_forward_length": INNER}
    heads = {"attention.head_count": HEADS, "attention.head_count_kv": HEADS, "rope.dimension_count": WIDTH // HEADS}
    for name, value in {**numbers, **heads, "vocab_size": len(tokens)}.items():
        yield _field(f"llama.{name}", _U32, value)
    yield _field("llama.attention.layer_norm_rms_epsilon", _F32, 1e-5)
    yield _field("tokenizer.ggml.model", _STRING, "llama")
    yield _list("tokenizer.ggml.tokens", _STRING, tokens)
    yield _list("tokenizer.ggml.scores", _F32, [0.0] * len(tokens))
    yield _list("tokenizer.ggml.token_type", _I32, kinds)
    yield _field("tokenizer.ggml.bos_token_id", _U32, 1)
    yield _field("tokenizer.ggml.eos_token_id", _U32, 2)
    yield _field("tokenizer.ggml.add_space_prefix", _BOOL, False)


def _field(name: str, kind: int, value: Any) -> bytes:
    return _text(name) + struct.pack("<I", kind) + _value(kind, value)


def _list(name: str, kind: int, values: list[Any]) -> bytes:
    head = struct.pack("<IIQ", _ARRAY, kind, len(values))
    return _text(name) + head + b"".join(_value(kind, value) for value in values)


def _value(kind: int, value: Any) -> bytes:
    if kind == _STRING:
        return _text(value)
    return struct.pack({_U32: "<I", _I32: "<i", _F32: "<f", _BOOL: "<?"}[kind], value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT
