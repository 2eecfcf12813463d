"""The `images` capability: `generate` draws and keeps, `find` gives back what is kept. Work is done in threads of its own."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from handrail.errors import ConfigError, ErrorType, ToolError
from handrail_reference.services.images.card import ENGINE, SIZES, Size
from handrail_reference.services.images.folder import ImageFolder
from handrail_reference.services.images.image_engine import PLACEHOLDER, ImageEngine, PlaceholderEngine, already_paid
from handrail_reference.services.images.lettering import Lettering

_LOG = logging.getLogger("handrail.images")
MAX_PROMPT = 1000
MAX_AT_ONCE = 4
_KEYS = {"openai": "OPENAI_API_KEY", "gemini": "GEMINI_API_KEY"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """An image that is kept. `engine` says what made it; `url` is where the server gives it out."""

    id: str
    url: str
    width: int
    height: int
    engine: str
    usage: Mapping[str, int] = field(default_factory=dict)
    """What the request for it cost by the service's own account, such as `totalTokens`; on the first image of a request."""

    @property
    def is_placeholder(self) -> bool:
        """No image model has drawn it."""
        return self.engine == ENGINE


class Images:
    """Images of one engine, kept in a folder."""

    __slots__ = ("_engine", "_folder", "_pool", "session_attributes")

    def __init__(
        self,
        folder: ImageFolder,
        lettering: Lettering,
        *,
        paid: bool = False,
        engine: ImageEngine | None = None,
    ) -> None:
        """Without an `engine`, placeholders are drawn with this `lettering`."""
        self._folder = folder
        self.session_attributes: Mapping[str, bool] = {"paid_images": True} if paid else {}
        """The host's word about every session, for the conditions of tools: whether a person has to approve each image."""
        # One thread: a font is not made for two at a time, and a card takes tens of megabytes while it is drawn.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="handrail-images")
        self._engine: ImageEngine = engine or PlaceholderEngine(lettering, self._pool)

    async def generate(self, prompt: str, *, size: Size = "square", count: int = 1) -> list[Picture]:
        """Draw `count` images of a prompt. The same placeholders are kept once."""
        if not prompt.strip():
            raise ToolError(ErrorType.VALIDATION, "The prompt is blank; say what the image shows.")
        if size not in SIZES or len(prompt) > MAX_PROMPT or not 0 < count <= MAX_AT_ONCE:
            raise ToolError(
                ErrorType.VALIDATION,
                f"An image has a prompt of up to {MAX_PROMPT} characters, one of the sizes {', '.join(SIZES)}, "
                f"and is drawn up to {MAX_AT_ONCE} times.",
            )
        is_service = not isinstance(self._engine, PlaceholderEngine)
        if is_service:
            await asyncio.to_thread(self._folder.check_room, count)
        drawing = await self._engine.draw(prompt, size, count)
        try:
            kept = await asyncio.to_thread(lambda: [self._keep(one) for one in drawing.pictures])
        except ToolError as error:
            raise (already_paid(error) if is_service else error) from None
        return [
            _picture(image_id, measures, self._engine.name, {} if number else drawing.usage)
            for number, (image_id, measures) in enumerate(kept)
        ]

    async def find(self, image_id: str) -> Picture | None:
        """The image of this id; None if there is none."""
        found = await asyncio.to_thread(self._folder.look_at, image_id)
        return None if found is None else _picture(image_id, found[:2], found[2])

    def path_of(self, image_id: object) -> Path | None:
        """The file of an image, for a server that gives it out."""
        return self._folder.path_of(image_id)

    async def keep_for(self, user: str | None, tenant: str, ids: Collection[str]) -> None:
        """Note who had these images drawn, so that they go with that user. They are there without that."""
        try:
            await asyncio.to_thread(self._folder.keep_for, _owner(user, tenant), ids)
        except OSError as error:
            _LOG.warning("Whose the images %s are could not be noted: %s", ", ".join(ids), error)

    def images_of(self, user: str, tenant: str) -> set[str]:
        """The images that a user had drawn."""
        return self._folder.of(_owner(user, tenant))

    def forget_images(self, ids: Collection[str], user: str | None = None, tenant: str = "") -> int:
        """Delete images that only this forgotten user had drawn or was shown; how many there were."""
        return self._folder.forget(_owner(user, tenant), ids)

    async def aclose(self) -> None:
        """Let the engine go, and give the threads back; what is being drawn is finished."""
        await self._engine.close()
        self.close()

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _keep(self, picture: bytes) -> tuple[str, tuple[int, int]]:
        image_id = self._folder.save(picture)
        measures = self._folder.measure(image_id)
        if measures is None:
            raise ToolError(
                ErrorType.TRANSIENT, "The image could not be stored; try again later.", partial_side_effects=True
            )
        return image_id, measures


def open_images(
    project: Path,
    *,
    directory: str = "images",
    font: str = "",
    paid: bool | None = None,
    engine: str = PLACEHOLDER,
    api_key_env: str = "",
    base_url: str = "",
    seconds: int = 120,
) -> Images:
    """The service `images`; `ConfigError` if a setting cannot be used.

    `directory` is where drawn images are kept. `engine` draws them: `placeholder`, `openai:gpt-image-1`, or `gemini:` and one of
    its image models. Its key is in the environment variable `api_key_env` (OPENAI_API_KEY or GEMINI_API_KEY); `seconds` is how
    long it may take. `paid`: images cost money, so a person approves each (`session.paid_images` in conditions); every engine but
    the placeholder is paid unless this says otherwise. `font` is a TrueType or OpenType file for placeholder cards.
    """
    folder = project / directory
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f'"directory" in [services.images] names "{folder.name}", which is a file; name a folder.')
    made = _engine(engine, api_key_env, base_url, seconds)
    lettering = Lettering(str(project / font) if font else "")
    return Images(ImageFolder(folder), lettering, paid=made is not None if paid is None else paid, engine=made)


def _engine(name: str, variable: str, base_url: str, seconds: int) -> ImageEngine | None:
    if name == PLACEHOLDER:
        return None
    vendor, _, model = name.partition(":")
    if vendor not in _KEYS or not model:
        raise ConfigError(
            f'"engine" in [services.images] must be "placeholder", "openai:gpt-image-1" or "gemini:MODEL"; {name!r} is not.'
        )
    variable = variable or _KEYS[vendor]
    key = os.environ.get(variable, "").strip()
    if not key:
        raise ConfigError(f'The image engine "{name}" needs a key in the environment variable "{variable}".')
    if vendor == "openai":
        from handrail_reference.services.images.openai_engine import OpenAIEngine  # noqa: PLC0415 - only who uses it

        return OpenAIEngine(model, api_key=key, base_url=base_url, seconds=seconds)
    from handrail_reference.services.images.gemini_engine import GeminiEngine  # noqa: PLC0415

    return GeminiEngine(model, api_key=key, base_url=base_url, seconds=seconds)


def _owner(user: str | None, tenant: str) -> str:
    return f"{tenant}\0{user}" if user is not None else ""


def _picture(image_id: str, measures: tuple[int, int], engine: str, usage: Mapping[str, int] | None = None) -> Picture:
    width, height = measures
    url = f"/images/{image_id}.png"
    return Picture(id=image_id, url=url, width=width, height=height, engine=engine, usage=usage or {})
