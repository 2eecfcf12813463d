"""all-MiniLM-L6-v2 in numpy: text to tokens, six layers of attention, the mean of what comes out, made length 1.

The texts of a batch are laid end to end and go through the dense layers together; attention looks at each text alone.
So there is no padding and no mask, and a text's vector does not depend on its neighbours.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits  # type: ignore[import-untyped]

from handrail_reference.services.embeddings.catalog import MINILM
from handrail_reference.services.embeddings.installed import open_pinned
from handrail_reference.services.embeddings.port import EmbeddingError
from handrail_reference.services.embeddings.recent import RecentVectors
from handrail_reference.services.embeddings.wordpiece import WordPiece, read_vocabulary

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

DIMENSIONS = 384
MAX_TOKENS = 256
"""What the model was trained on, its two marks included; the rest of a longer text is not seen."""

_HEADS = 12
_HEAD_SIZE = DIMENSIONS // _HEADS
_LAYERS = 6
_NORM_EPSILON = np.float32(1e-12)
_PACK_TOKENS = 512
"""Tokens that go through the layers together: enough to keep the processor busy, few enough to stay in its cache."""
_GELU_ROWS = 16
_BLOCK_COLUMNS, _BLOCK_ROWS = 64, 40
"""The weights lie in blocks of this many columns, multiplied with this many tokens at a time: products of at most a million
steps, which OpenBLAS does without first making a copy of the weights. For a query that copy takes half of the time."""
_MANY_ROWS = 160
"""For more tokens than this it hardly matters, and a product that is not cut can be shared by several cores."""
_MAX_CHARACTERS = 16_384
"""Text beyond this is cut before it is split into tokens, so that an enormous one costs no more than a long one. It is 64
characters a token, where words have about five; long white space is shortened before."""
_LONG_SPACE = re.compile(r"[ \t\r\n]{2,}")


class MiniLM:
    """The model, loaded. Its weights are only read, so several threads may embed at once."""

    name = f"{MINILM.name}-{MINILM.revision}"
    dimensions = DIMENSIONS

    def __init__(self, folder: Path) -> None:
        _leave_cores_free()
        self._tokenizer = _tokenizer(folder)
        tensors = _tensors(folder)
        # Taken out one by one: what is not kept is given back in small parts, and nobody has to wait for that.
        self._words = tensors.pop("embeddings.word_embeddings.weight")
        # The model knows two kinds of text, for pairs; a single text is all of the first kind.
        places = tensors["embeddings.position_embeddings.weight"][:MAX_TOKENS]
        self._places = places + tensors["embeddings.token_type_embeddings.weight"][0]
        self._first_norm = _norm(tensors, "embeddings.LayerNorm")
        self._layers = [_layer(tensors, f"encoder.layer.{number}") for number in range(_LAYERS)]
        self._recent = RecentVectors()

    def embed(self, texts: Sequence[str]) -> Floats:
        """One unit vector a text, in their order; blocks while it computes."""
        vectors = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        unknown = []
        for place, text in enumerate(texts):
            known = self._recent.get(text)
            if known is None:
                unknown.append(place)
            else:
                vectors[place] = known
        if unknown:
            vectors[unknown] = self._compute([texts[place] for place in unknown])
            for place in unknown:
                self._recent.put(texts[place], vectors[place])
        return vectors

    def _compute(self, texts: Sequence[str]) -> Floats:
        tokens = [self._tokenizer.encode(_readable(text)) for text in texts]
        vectors = np.empty((len(texts), DIMENSIONS), dtype=np.float32)
        for pack in _packs([len(ids) for ids in tokens]):
            vectors[pack] = self._forward([tokens[place] for place in pack])
        if not np.isfinite(vectors).all():
            raise EmbeddingError("MiniLM gave numbers that are none; run `handrail models verify`.")
        return vectors

    def _forward(self, tokens: Sequence[Sequence[int]]) -> Floats:
        lengths = [len(ids) for ids in tokens]
        values = self._words[np.concatenate(tokens)]
        values += np.concatenate([self._places[:length] for length in lengths])
        values = self._first_norm(values)
        for layer in self._layers:
            values = layer(values, lengths)
        starts = np.concatenate(([0], np.cumsum(lengths)[:-1]))
        # The mean and the sum point the same way, and only the direction is kept.
        sums: Floats = np.add.reduceat(values, starts, axis=0)
        sums /= np.linalg.norm(sums, axis=1, keepdims=True)
        return sums


@dataclass(frozen=True, slots=True)
class _Norm:
    weight: Floats
    bias: Floats

    def __call__(self, values: Floats) -> Floats:
        """Each row with mean 0 and variance 1, then scaled and moved; in place."""
        values -= values.mean(axis=1, keepdims=True)
        variance = np.einsum("ij,ij->i", values, values) / np.float32(DIMENSIONS)
        values /= np.sqrt(variance + _NORM_EPSILON)[:, None]
        values *= self.weight
        values += self.bias
        return values


@dataclass(frozen=True, slots=True)
class _Dense:
    blocks: Floats
    """The weights as (slices of the input, blocks of columns, inputs of a slice, columns of a block)."""
    bias: Floats

    def __call__(self, values: Floats) -> Floats:
        slices, _, inputs, columns = self.blocks.shape
        result: Floats = np.empty((len(values), len(self.bias)), dtype=np.float32)
        step = len(values) if len(values) > _MANY_ROWS and _blas_threads() > 1 else _BLOCK_ROWS
        for start in range(0, len(values), step):
            rows = values[start : start + step]
            into = result[start : start + step].reshape(len(rows), -1, columns).transpose(1, 0, 2)
            np.matmul(rows[:, :inputs], self.blocks[0], out=into)
            for place in range(1, slices):
                into += rows[:, place * inputs : (place + 1) * inputs] @ self.blocks[place]
        result += self.bias
        return result


@dataclass(frozen=True, slots=True)
class _Layer:
    attend: _Dense
    """Queries, keys and values of all heads at once; the queries are scaled already."""
    join: _Dense
    join_norm: _Norm
    widen: _Dense
    narrow: _Dense
    narrow_norm: _Norm

    def __call__(self, values: Floats, lengths: Sequence[int]) -> Floats:
        seen = self.join(_attention(self.attend(values), lengths))
        seen += values
        seen = self.join_norm(seen)
        result = self.narrow(_gelu(self.widen(seen)))
        result += seen
        return self.narrow_norm(result)


def _attention(mixed: Floats, lengths: Sequence[int]) -> Floats:
    """What each token takes from the others of its own text, by all heads."""
    seen = np.empty((len(mixed), DIMENSIONS), dtype=np.float32)
    start = 0
    for length in lengths:
        end = start + length
        queries, keys, values = mixed[start:end].reshape(length, 3, _HEADS, _HEAD_SIZE).transpose(1, 2, 0, 3)
        scores = queries @ keys.transpose(0, 2, 1)
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        seen[start:end] = (scores @ values).transpose(1, 0, 2).reshape(length, DIMENSIONS)
        start = end
    return seen


# Abramowitz and Stegun, Handbook of Mathematical Functions, formula 7.1.26: erfc(z) = (a1·t + … + a5·t⁵)·exp(-z²) with
# t = 1 / (1 + p·z), wrong by at most 1.5e-7, which is about what float32 can tell apart.
_ERFC_P = np.float32(0.3275911 / math.sqrt(2))
_ERFC_A = [np.float32(value / 2) for value in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)]


def _gelu(values: Floats) -> Floats:
    """x·Φ(x), in place, with the normal distribution's true Φ: positive part of x, less |x| times the tail beyond |x|.

    A few rows at a time, so that all steps find them in the processor's cache.
    """
    for start in range(0, len(values), _GELU_ROWS):
        block = values[start : start + _GELU_ROWS]
        size = np.abs(block)
        t = size * _ERFC_P
        t += np.float32(1)
        np.reciprocal(t, out=t)
        tail = t * _ERFC_A[0]
        for coefficient in _ERFC_A[1:]:
            tail += coefficient
            tail *= t
        np.multiply(size, size, out=t)
        t *= np.float32(-0.5)
        np.exp(t, out=t)
        tail *= t
        tail *= size
        np.maximum(block, np.float32(0), out=block)
        block -= tail
    return values


def _leave_cores_free() -> None:
    """Let matrix products use half of the cores: the event loop and other sessions need the rest.

    This holds for the whole process; whoever has set the library's own variables has decided otherwise.
    """
    if not any(name in os.environ for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")):
        threadpool_limits(max(1, (os.cpu_count() or 2) // 2), user_api="blas")


@cache
def _blas_threads() -> int:
    return max((pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"), default=1)


def _packs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The places of texts that are computed together, a limited number of tokens at a time."""
    pack: list[int] = []
    total = 0
    for place, length in enumerate(lengths):
        if pack and total + length > _PACK_TOKENS:
            yield pack
            pack, total = [], 0
        pack.append(place)
        total += length
    if pack:
        yield pack


def _readable(text: str) -> str:
    """The text as the tokenizer can take it: not endless, and half characters replaced."""
    short = text if len(text) <= _MAX_CHARACTERS else _LONG_SPACE.sub(" ", text[: 64 * _MAX_CHARACTERS])
    return short[:_MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _tokenizer(folder: Path) -> WordPiece:
    with open_pinned(MINILM, folder, "tokenizer.json") as file:
        data = file.read(MINILM.file("tokenizer.json").size)
    return WordPiece(read_vocabulary(data), max_tokens=MAX_TOKENS)


def _tensors(folder: Path) -> dict[str, Floats]:
    """The weights by name.

    The safetensors format is the length of a JSON header, the header, and the numbers of one tensor after the other. Each is
    read into memory of its own: to give back that of the whole file at once would keep other threads waiting, as the format's
    own library does.
    """
    tensors = {}
    with open_pinned(MINILM, folder, "model.safetensors") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        header.pop("__metadata__", None)
        for name, tensor in sorted(header.items(), key=lambda entry: entry[1]["data_offsets"]):
            values = np.empty(tensor["shape"], dtype={"F32": "<f4", "I64": "<i8"}[tensor["dtype"]])
            file.fill(values.data.cast("B"))
            tensors[name] = values
    return tensors


def _norm(tensors: dict[str, Floats], name: str) -> _Norm:
    return _Norm(tensors.pop(f"{name}.weight"), tensors.pop(f"{name}.bias"))


def _dense(tensors: dict[str, Floats], name: str) -> _Dense:
    return _in_blocks(tensors.pop(f"{name}.weight"), tensors.pop(f"{name}.bias"))


def _in_blocks(weight: Floats, bias: Floats) -> _Dense:
    """The layer of a weight of (outputs, inputs), as the file has it."""
    outputs, inputs = weight.shape
    apart = weight.reshape(outputs // _BLOCK_COLUMNS, _BLOCK_COLUMNS, inputs // DIMENSIONS, DIMENSIONS)
    return _Dense(np.ascontiguousarray(apart.transpose(2, 0, 3, 1)), bias)


def _layer(tensors: dict[str, Floats], name: str) -> _Layer:
    scale = np.float32(1 / math.sqrt(_HEAD_SIZE))
    attend = []
    for kind in ("weight", "bias"):
        query, key, value = (tensors.pop(f"{name}.attention.self.{part}.{kind}") for part in ("query", "key", "value"))
        attend.append(np.concatenate([query * scale, key, value]))
    return _Layer(
        attend=_in_blocks(*attend),
        join=_dense(tensors, f"{name}.attention.output.dense"),
        join_norm=_norm(tensors, f"{name}.attention.output.LayerNorm"),
        widen=_dense(tensors, f"{name}.intermediate.dense"),
        narrow=_dense(tensors, f"{name}.output.dense"),
        narrow_norm=_norm(tensors, f"{name}.output.LayerNorm"),
    )
