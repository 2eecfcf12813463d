"""The `images` capability: `generate` draws and keeps, `find` gives back what is kept. Work is done in threads of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.images.card import ENGINE, SIZES, Size, draw_card
from handrail_reference.services.images.folder import ImageFolder
from handrail_reference.services.images.lettering import Lettering

MAX_PROMPT = 1000
MAX_AT_ONCE = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image that is kept. `engine` says what made it; `url` is where the server gives it out."""

    id: str
    url: str
    width: int
    height: int
    engine: str


class Images:
    """Draft cards, kept in a folder."""

    __slots__ = ("_folder", "_lettering", "_pool", "session_attributes")

    def __init__(self, folder: ImageFolder, lettering: Lettering, *, paid: bool = False) -> None:
        self._folder = folder
        self.session_attributes: Mapping[str, bool] = {"paid_images": True} if paid else {}
        """The host's word about every session, for the conditions of tools: whether a person has to approve each image."""
        self._lettering = lettering
        self._pool: ThreadPoolExecutor | None = None

    async def generate(self, prompt: str, *, size: Size = "square", count: int = 1) -> list[Picture]:
        """Draw `count` images of a prompt. The same prompt gives the same images, which are kept once."""
        if not prompt.strip():
            raise ToolError(ErrorType.VALIDATION, "The prompt is blank; say what the image shows.")
        if size not in SIZES or len(prompt) > MAX_PROMPT or not 0 < count <= MAX_AT_ONCE:
            raise ToolError(
                ErrorType.VALIDATION,
                f"An image has a prompt of up to {MAX_PROMPT} characters, one of the sizes {', '.join(SIZES)}, "
                f"and is drawn up to {MAX_AT_ONCE} times.",
            )
        if self._pool is None:
            # One thread: a font is not made for two at a time, and a card takes tens of megabytes while it is drawn.
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="handrail-images")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, self._generate, prompt, size, count)

    async def find(self, image_id: str) -> Picture | None:
        """The image of this id; None if there is none."""
        found = await asyncio.to_thread(self._folder.measure, image_id)
        return None if found is None else _picture(image_id, *found)

    def path_of(self, image_id: object) -> Path | None:
        """The file of an image, for a server that gives it out."""
        return self._folder.path_of(image_id)

    def forget_images(self, ids: Collection[str]) -> int:
        """Delete images that only a forgotten user's conversations showed; how many there were."""
        paths = [path for path in map(self._folder.path_of, sorted(ids)) if path is not None]
        for path in paths:
            path.unlink(missing_ok=True)
        return len(paths)

    def close(self) -> None:
        """Give the threads back; what is being drawn is finished."""
        if self._pool is not None:
            self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def _generate(self, prompt: str, size: Size, count: int) -> list[Picture]:
        cards = [draw_card(prompt, size, number, count, self._lettering) for number in range(1, count + 1)]
        return [_picture(self._folder.save(card), *SIZES[size]) for card in cards]


def open_images(project: Path, *, directory: str = "images", font: str = "", paid: bool = False) -> Images:
    """The service `images`; `ConfigError` if the font that the settings name cannot be used.

    `directory` is where drawn images are kept. `font` is a TrueType or OpenType file for draft cards; empty means the small one
    that comes with the drawing library. `paid`: images cost money, so a person approves each (`session.paid_images` in
    conditions).
    """
    folder = project / directory
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f'"directory" in [services.images] names "{folder.name}", which is a file; name a folder.')
    return Images(ImageFolder(folder), Lettering(str(project / font) if font else ""), paid=paid)


def _picture(image_id: str, width: int, height: int) -> Picture:
    return Picture(id=image_id, url=f"/images/{image_id}.png", width=width, height=height, engine=ENGINE)
