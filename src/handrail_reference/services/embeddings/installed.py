"""Models on disk: one folder a model, its files as the catalogue pins them. Reads and checks; `install` writes."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from handrail.errors import ConfigError
from handrail_reference.services.embeddings.catalog import EmbeddingModel, ModelFile

Progress = Callable[[int, int], None]
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Damage:
    """One file of an installed model that is not as it was published, and in what way."""

    file: str
    message: str


def folder_of(model: EmbeddingModel, models: Path) -> Path:
    return models / model.name


def is_installed(model: EmbeddingModel, models: Path) -> bool:
    """Is it there? Its folder has its name only once it was whole; whether it still is, reading it tells."""
    return folder_of(model, models).is_dir()


class PinnedFile:
    """A file of an installed model, read once from its beginning on."""

    def __init__(self, source: FileIO, size: int) -> None:
        self._source = source
        self._size = size
        self._digest = hashlib.sha256()

    def read(self, size: int) -> bytes:
        """Exactly `size` bytes; `ValueError` where there are fewer."""
        data = bytearray(min(size, self._size + 1))  # no memory for what a damaged file says of itself
        self.fill(memoryview(data))
        return bytes(data)

    def fill(self, target: memoryview) -> None:
        """The next bytes, as many as the target takes. Other threads continue meanwhile, between the pieces and in them."""
        while target:
            count = self._source.readinto(target[:_PIECE_BYTES])
            if not count:
                raise ValueError("the file is over")
            self._digest.update(target[:count])
            target = target[count:]

    def finish(self) -> str:
        """The hash of the whole file, whatever of it was wanted."""
        rest = memoryview(bytearray(_PIECE_BYTES))
        while count := self._source.readinto(rest):
            self._digest.update(rest[:count])
        return self._digest.hexdigest()


@contextmanager
def open_pinned(model: EmbeddingModel, folder: Path, name: str) -> Iterator[PinnedFile]:
    """A file whose bytes, when the block is left, were the pinned ones; else a `ConfigError` says how to mend it."""
    file = model.file(name)
    mend = f"run `handrail models install {model.name}`"
    path = folder / name
    try:
        with path.open("rb", buffering=0) as source:
            size = path.stat().st_size
            if size != file.size:
                raise ConfigError(f'"{path}" is {size} bytes long, not {file.size}; {mend} to replace it.')
            pinned = PinnedFile(source, size)
            failed: Exception | None = None
            try:
                yield pinned
            except Exception as error:  # noqa: BLE001 - damaged bytes may mean anything; whether they are, the hash tells
                failed = error
            if pinned.finish() != file.sha256:
                raise ConfigError(f'"{path}" is damaged: it does not have its published hash; {mend} to replace it.')
            if failed is not None:
                raise failed
    except FileNotFoundError:
        raise ConfigError(f'The model "{model.name}" is not installed in "{folder.parent}"; {mend}.') from None
    except OSError as error:
        raise ConfigError(f'"{path}" cannot be read ({error.strerror}); {mend} to replace it.') from None


def damages(model: EmbeddingModel, models: Path, progress: Progress | None = None) -> list[Damage]:
    """Everything that is wrong with an installed model, by the full hash of every file."""
    found = []
    done = 0
    for file in model.files:
        problem = _damage(folder_of(model, models) / file.name, file)
        if problem is not None:
            found.append(Damage(file=file.name, message=problem))
        done += file.size
        if progress is not None:
            progress(done, model.size)
    return found


def _damage(path: Path, file: ModelFile) -> str | None:
    try:
        with path.open("rb") as source:
            size = path.stat().st_size
            if size != file.size:
                return f"is {size} bytes long, not {file.size}"
            digest = hashlib.file_digest(source, "sha256").hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None if digest == file.sha256 else "does not have its published hash"


def remove(model: EmbeddingModel, models: Path) -> bool:
    """Delete an installed model; was there anything to delete?"""
    folder = folder_of(model, models)
    if not folder.is_dir():
        return False
    # Renamed first: a removal that is interrupted leaves no half of a model under its name.
    aside = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=models))
    folder.rename(aside / "old")
    shutil.rmtree(aside)
    return True
