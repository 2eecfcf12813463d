"""A placeholder card: the prompt set as a poster, which says of itself that no image model has drawn it.

The same prompt, size and place in the series always give the same bytes: colours and shapes come from a hash of the prompt.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from hashlib import sha256
from io import BytesIO
from typing import Literal

from PIL import Image, ImageDraw
from PIL.PngImagePlugin import PngInfo

from handrail_reference.services.images.lettering import Cell, Colour, Lettering, Line, line_height

Size = Literal["square", "portrait", "landscape"]
SIZES: dict[str, tuple[int, int]] = {"square": (1024, 1024), "portrait": (768, 1152), "landscape": (1152, 768)}
ENGINE = "placeholder-card"
SAYS = "A placeholder card of the prompt. No image model has drawn this."

_PAPER: Colour = (253, 252, 249)
_INK: Colour = (33, 37, 46)
_FAINT: Colour = (112, 117, 128)
# Top and bottom of the background, and the accent.
_PALETTES: Sequence[tuple[Colour, Colour, Colour]] = (
    ((24, 62, 92), (86, 154, 173), (20, 93, 120)),
    ((88, 40, 84), (214, 122, 122), (146, 52, 94)),
    ((32, 74, 62), (152, 181, 112), (38, 108, 78)),
    ((66, 50, 120), (128, 148, 214), (82, 66, 160)),
    ((120, 58, 34), (231, 176, 96), (164, 82, 36)),
    ((40, 46, 60), (134, 146, 164), (66, 78, 104)),
)
_TEXT_SIZES = (84, 72, 62, 54, 47, 41, 36, 31, 27, 24, 21)
_MARGIN, _PAD, _HEAD, _FOOT = 52, 56, 92, 92


def draw_card(prompt: str, size: Size, number: int, total: int, lettering: Lettering) -> bytes:
    """The card as PNG. `number` of `total`: the cards of one request differ in colour and shapes."""
    width, height = SIZES[size]
    seed = sha256(f"{number}\0{prompt}".encode("utf-8", "surrogatepass")).digest()
    palette = _PALETTES[(sha256(prompt.encode("utf-8", "surrogatepass")).digest()[0] + number - 1) % len(_PALETTES)]
    picture = _ground(width, height, palette, seed)
    canvas = ImageDraw.Draw(picture)
    _write_frame(canvas, (width, height), size, (number, total), palette[2], lettering)
    _write_prompt(canvas, (width, height), prompt, lettering)
    facts = PngInfo()
    facts.add_text("Software", f"Handrail {ENGINE}")
    facts.add_text("Comment", SAYS)
    out = BytesIO()
    picture.save(out, "PNG", pnginfo=facts)
    return out.getvalue()


def _ground(width: int, height: int, palette: tuple[Colour, Colour, Colour], seed: bytes) -> Image.Image:
    """The background with its circles and the sheet of paper: drawn twice as large, so that edges come out smooth."""
    top, bottom, _ = palette
    twice = (width * 2, height * 2)
    slope = Image.linear_gradient("L").resize((width, height))
    ground = Image.composite(Image.new("RGB", (width, height), bottom), Image.new("RGB", (width, height), top), slope)
    glow = Image.new("L", twice, 0)
    pen = ImageDraw.Draw(glow)
    for x, y, radius, strength in _circles(seed):
        r = radius * min(twice)
        pen.ellipse((x * twice[0] - r, y * twice[1] - r, x * twice[0] + r, y * twice[1] + r), fill=strength)
    ground.paste((255, 255, 255), mask=glow.reduce(2))
    for offset, colour, strength in ((10, (0, 0, 0), 46), (0, _PAPER, 255)):
        sheet = Image.new("L", twice, 0)
        edge = (2 * _MARGIN, 2 * (_MARGIN + offset), 2 * (width - _MARGIN), 2 * (height - _MARGIN + offset))
        ImageDraw.Draw(sheet).rounded_rectangle(edge, 56, fill=strength)
        ground.paste(colour, mask=sheet.reduce(2))
    return ground


def _circles(seed: bytes) -> Iterator[tuple[float, float, float, int]]:
    for place in range(0, 20, 4):
        x, y, radius, strength = seed[place : place + 4]
        yield x / 255, y / 255, 0.06 + radius / 255 * 0.3, 16 + strength // 8


def _write_frame(
    canvas: ImageDraw.ImageDraw,
    area: tuple[int, int],
    size: Size,
    series: tuple[int, int],
    accent: Colour,
    lettering: Lettering,
) -> None:
    """What the card says of itself, above and below the prompt."""
    width, height = area
    left, right = _MARGIN + _PAD, width - _MARGIN - _PAD
    top, bottom = _MARGIN + 44, height - _MARGIN - 38
    label = lettering.cells("PLACEHOLDER")[0]
    wide = lettering.width(label, 22)
    canvas.rounded_rectangle((left, top, left + wide + 40, top + 42), 21, fill=accent)
    lettering.draw(canvas, (left + 20, top + 29), label, 22, _PAPER)
    if series[1] > 1:
        count = lettering.cells(f"{series[0]} of {series[1]}")[0]
        lettering.draw(canvas, (right - lettering.width(count, 22), top + 29), count, 22, _FAINT)
    canvas.line((left, bottom - 36, right, bottom - 36), fill=(224, 222, 216), width=2)
    measure = lettering.cells(f"{size}  {width} x {height}")[0]
    edge = lettering.width(measure, 18)
    lettering.draw(canvas, (left, bottom), lettering.cells(SAYS)[0], 18, _FAINT)
    if lettering.width(lettering.cells(SAYS)[0], 18) + edge + 24 < right - left:
        lettering.draw(canvas, (right - edge, bottom), measure, 18, _FAINT)


def _write_prompt(canvas: ImageDraw.ImageDraw, area: tuple[int, int], prompt: str, lettering: Lettering) -> None:
    width, height = area
    room = (width - 2 * (_MARGIN + _PAD), height - 2 * _MARGIN - _HEAD - _FOOT - 40)
    size, lines = _fitted(prompt, room, lettering)
    block = line_height(size) * len(lines)
    y = _MARGIN + _HEAD + 20 + (room[1] - block) / 2 + size
    for line in lines:
        lettering.draw(canvas, (_MARGIN + _PAD, y), line, size, _INK)
        y += line_height(size)


def _fitted(prompt: str, room: tuple[int, int], lettering: Lettering) -> tuple[int, list[Line]]:
    """The largest size in which the whole prompt has room; what has none even in the smallest is cut, and that is said."""
    paragraphs = lettering.cells(prompt.strip())

    def fits(size: int) -> bool:
        return len(lettering.wrap(paragraphs, size, room[0])) * line_height(size) <= room[1]

    place = bisect_left(_TEXT_SIZES, True, key=fits)
    size = _TEXT_SIZES[min(place, len(_TEXT_SIZES) - 1)]
    lines = lettering.wrap(paragraphs, size, room[0])
    if place < len(_TEXT_SIZES):
        return size, lines
    max_lines = int(room[1] // line_height(size)) - 1
    left_out = sum(len(line) for line in lines[max_lines:])
    note: list[Cell] = lettering.cells(f"… and {left_out} more characters")[0]
    return size, [*lines[:max_lines], note]
