"""Reads the beginning of a GGUF file: whether it is one, and how long a text its model was trained on."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from handrail.contract.errors import ConfigError

_MAGIC = b"GGUF"
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MAX_KEYS = 1_000
_MAX_TEXT = 1 << 16


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """What the file says of itself."""

    architecture: str
    context_length: int | None


def read_header(path: Path) -> GgufHeader:
    """The header of a file; `ConfigError` in one sentence if it cannot be read or is no GGUF file."""
    try:
        with path.open("rb") as file:
            return _read(file)
    except FileNotFoundError:
        raise ConfigError(f'There is no model file "{path}"; check the path after "local:".') from None
    except IsADirectoryError:
        raise ConfigError(f'"{path}" is a folder; name the GGUF file in it.') from None
    except OSError as error:
        raise ConfigError(f'The model file "{path}" cannot be read ({error.strerror}).') from None
    except (struct.error, ValueError, KeyError):
        raise ConfigError(f'"{path.name}" is not a GGUF file, or it is damaged; download it again.') from None


def _read(file: BinaryIO) -> GgufHeader:
    if file.read(4) != _MAGIC:
        raise ValueError("no GGUF")
    version, _, keys = struct.unpack("<IQQ", file.read(20))
    if not 2 <= version <= 100:
        raise ValueError("another version, or another byte order")
    architecture, context = "", None
    for _ in range(min(keys, _MAX_KEYS)):
        key = _text(file)
        if key.startswith("tokenizer."):
            break  # the vocabulary, which is long; what is wanted here stands before it
        value = _value(file, _number(file, "I"))
        if key == "general.architecture":
            architecture = str(value)
        elif key == f"{architecture}.context_length":
            context = int(value)
    if not architecture:
        raise ValueError("no architecture")
    return GgufHeader(architecture, context)


def _number(file: BinaryIO, kind: str) -> Any:
    size = struct.calcsize(f"<{kind}")
    return struct.unpack(f"<{kind}", file.read(size))[0]


def _text(file: BinaryIO) -> str:
    length = _number(file, "Q")
    if length > _MAX_TEXT:
        raise ValueError("a text that is none")
    return file.read(length).decode("utf-8")


def _value(file: BinaryIO, kind: int) -> Any:
    if kind == _STRING:
        return _text(file)
    if kind == _ARRAY:
        of, length = _number(file, "I"), _number(file, "Q")
        if length > _MAX_TEXT:
            raise ValueError("a list that is none")
        return [_value(file, of) for _ in range(length)]
    return _number(file, _SCALARS[kind])
