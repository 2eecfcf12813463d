"""The folder that images are kept in: a file per image, named by the hash of its content, written whole or not at all.

Beside them `owners` says whose they are, by empty files in a folder for each owner, who is known by a hash. An image that two
people have had drawn is there once, and is kept for each.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from PIL import Image

from handrail.errors import ErrorType, ToolError

MAX_IMAGES = 10_000
"""A model that draws without end must not fill the disk."""
_ID = re.compile(r"img_[0-9a-f]{32}")
_SIGNATURE = b"\x89PNG\r\n\x1a\n"


class ImageFolder:
    """Its methods touch the disk: call them in a thread."""

    __slots__ = ("_max_images", "_owners", "_path")

    def __init__(self, path: Path, max_images: int = MAX_IMAGES) -> None:
        self._path = path
        self._owners = path / "owners"
        self._max_images = max_images

    def save(self, picture: bytes) -> str:
        """The id of this image; one that is there already is not written again."""
        image_id = f"img_{sha256(picture).hexdigest()[:32]}"
        target = self._path / f"{image_id}.png"
        try:
            if target.is_file() and target.stat().st_size == len(picture):
                return image_id
            self._make_room(1)
            self._write(target, picture)
        except OSError as error:
            raise _unstored(error) from error
        return image_id

    def check_room(self, count: int) -> None:
        """Whether this number of images can be kept, before they are paid for."""
        try:
            self._make_room(count)
            with tempfile.TemporaryFile(dir=self._path):
                pass
        except OSError as error:
            raise _unstored(error) from error

    def _make_room(self, count: int) -> None:
        self._path.mkdir(parents=True, exist_ok=True)
        if sum(1 for _ in self._path.glob("*.png")) + count > self._max_images:
            raise ToolError(
                ErrorType.PERMANENT,
                f"No more images can be kept: the folder may have {self._max_images}, and an operator has to remove some.",
            )

    def keep_for(self, owner: str, image_ids: Iterable[str]) -> None:
        """Note whose these are."""
        folder = self._owners / _digest(owner)
        folder.mkdir(parents=True, exist_ok=True)
        for image_id in image_ids:
            if _ID.fullmatch(image_id):
                (folder / image_id).touch(mode=0o600)

    def of(self, owner: str) -> set[str]:
        """The images of an owner."""
        folder = self._owners / _digest(owner)
        return {path.name for path in folder.iterdir()} if folder.is_dir() else set()

    def forget(self, owner: str, image_ids: Iterable[str]) -> int:
        """Delete these images, but for those of other owners, and who this one was; how many were deleted."""
        shutil.rmtree(self._owners / _digest(owner), ignore_errors=True)
        others = {path.name for path in self._owners.glob("*/*")}
        paths = [path for path in map(self.path_of, sorted({*image_ids} - others)) if path is not None]
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def path_of(self, image_id: object) -> Path | None:
        """Where the image of this id lies; None if there is none. Any text may be asked for: only ids name files."""
        if not isinstance(image_id, str) or not _ID.fullmatch(image_id):
            return None
        path = self._path / f"{image_id}.png"
        return path if path.is_file() else None

    def look_at(self, image_id: object) -> tuple[int, int, str] | None:
        """Width, height and what drew it, by the file's own word; None as for `measure`."""
        measures, path = self.measure(image_id), self.path_of(image_id)
        if measures is None or path is None:
            return None
        try:
            with Image.open(path, formats=("PNG",)) as opened:
                said = str(opened.info.get("Software", ""))
        except (OSError, SyntaxError, ValueError):
            said = ""
        return *measures, said.removeprefix("Handrail ") or "unknown"

    def measure(self, image_id: object) -> tuple[int, int] | None:
        """Width and height of an image; None if there is none, or the file is not an image any more."""
        path = self.path_of(image_id)
        if path is None:
            return None
        try:
            with path.open("rb") as file:
                head = file.read(24)
        except OSError:
            return None
        if len(head) < 24 or not head.startswith(_SIGNATURE):
            return None
        width, height = struct.unpack(">II", head[16:24])
        return width, height

    def _write(self, target: Path, picture: bytes) -> None:
        # Made by `mkstemp`, so that nobody but the owner may read it: what is drawn may be private.
        handle, name = tempfile.mkstemp(dir=self._path, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(picture)
            Path(name).replace(target)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise


def _unstored(error: OSError) -> ToolError:
    why = error.strerror or type(error).__name__
    return ToolError(ErrorType.TRANSIENT, f"The image could not be stored ({why}); try again later.", retryable=True)


def _digest(owner: str) -> str:
    return sha256(owner.encode("utf-8", "surrogatepass")).hexdigest()
