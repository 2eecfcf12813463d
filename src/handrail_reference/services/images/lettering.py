"""Lettering of a placeholder card: any text, set in one font, with nothing hidden and nothing silently dropped.

What the font has is drawn. A letter that it lacks is drawn without its marks if that leaves letters that the font has
("č" as "c"), and otherwise as a small box with its code, so that nobody takes a blank for the prompt.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import ImageDraw, ImageFont

from handrail.errors import ConfigError
from handrail.text import escaped

Colour = tuple[int, int, int]

_LOOK = 40
"""The size at which letters are looked for."""
_PLAIN = ImageFont.Layout.BASIC
_BOX_WIDTH = 0.86
_LINE = 1.32
_NEVER = "\U0010fffe"
"""A code that no font has a letter for: what is drawn for it is the font's sign for "missing"."""
_SPELT = (
    {"ß": "ss", "æ": "ae", "Æ": "AE", "œ": "oe", "Œ": "OE", "þ": "th", "Þ": "Th", "→": "->"}
    | {"€": "EUR", "£": "GBP", "©": "(c)", "®": "(r)", "°": "deg"}
    | dict(zip("øØđĐłŁðÐıħĦ", "oOdDlLdDihH", strict=True))
    | dict(zip("–—−•·×«»„‚", '---**x"""\'', strict=True))
)


@dataclass(frozen=True, slots=True)
class Cell:
    """A letter of the font, or the code of one that it lacks."""

    text: str
    code: str = ""

    @property
    def is_space(self) -> bool:
        return not self.code and self.text == " "


Line = Sequence[Cell]


class Lettering:
    """One font, in any size. `path` names a font file; empty means the one that comes with the drawing library."""

    __slots__ = ("_cells", "_fonts", "_missing", "_path", "_widths")

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._fonts: dict[int, ImageFont.FreeTypeFont] = {}
        self._cells: dict[str, tuple[Cell, ...]] = {}
        self._widths: dict[tuple[str, int], float] = {}
        try:
            self._missing = bytes(self.font(_LOOK).getmask(_NEVER))
        except (OSError, ValueError) as error:
            raise ConfigError(f'The font "{Path(path).name}" cannot be used: {error}.') from error

    def font(self, size: int) -> ImageFont.FreeTypeFont:
        found = self._fonts.get(size)
        if found is None:
            # Plain left-to-right placing, whatever the machine has installed: the same prompt gives the same picture.
            found = ImageFont.truetype(self._path, size, layout_engine=_PLAIN) if self._path else _bundled(size)
            self._fonts[size] = found
        return found

    def cells(self, text: str) -> list[list[Cell]]:
        """The paragraphs of a text, as cells. Control and bidirectional characters are written out."""
        lines = unicodedata.normalize("NFC", text).replace("\r\n", "\n").replace("\t", " ").split("\n")
        return [[cell for letter in escaped(line) for cell in self._cells_of(letter)] for line in lines]

    def width(self, line: Line, size: int) -> float:
        return sum(self._width(cell, size) for cell in line)

    def wrap(self, paragraphs: Sequence[Line], size: int, width: float) -> list[Line]:
        """Lines no wider than this: broken at spaces, and inside a word only where it is wider than a line."""
        return [line for paragraph in paragraphs for line in self._wrapped(paragraph, size, width)]

    def draw(self, canvas: ImageDraw.ImageDraw, at: tuple[float, float], line: Line, size: int, ink: Colour) -> None:
        """One line; `at` is its left end on the baseline."""
        x, y = at
        run = ""
        for cell in (*line, Cell("", "end")):
            if not cell.code:
                run += cell.text
                continue
            if run:
                canvas.text((x, y), run, fill=ink, font=self.font(size), anchor="ls")
                x += sum(self._letter(letter, size) for letter in run)
                run = ""
            if cell.text:
                self._draw_code(canvas, (x, y), cell.code, size, ink)
                x += self._width(cell, size)

    def _draw_code(
        self, canvas: ImageDraw.ImageDraw, at: tuple[float, float], code: str, size: int, ink: Colour
    ) -> None:
        x, y = at
        left, right = x + size * 0.05, x + size * (_BOX_WIDTH - 0.05)
        canvas.rounded_rectangle((left, y - size * 0.74, right, y + size * 0.08), size * 0.1, outline=ink, width=1)
        half = (len(code) + 1) // 2
        small = max(6, round(size * (0.36 if half < 3 else 0.28)))
        for row, part in enumerate((code[:half], code[half:])):
            place = ((left + right) / 2, y - size * (0.4 if row == 0 else 0.02))
            canvas.text(place, part, fill=ink, font=self.font(small), anchor="ms")

    def _wrapped(self, paragraph: Line, size: int, room: float) -> Iterator[Line]:
        line: list[Cell] = []
        used = 0.0
        for word in _words(paragraph):
            if used + self.width(word, size) > room and line and not word[0].is_space:
                yield _trimmed(line)
                line, used = [], 0.0
            for cell in word:
                wide = self._width(cell, size)
                if used + wide > room and line:
                    yield _trimmed(line)
                    line, used = [], 0.0
                if line or not cell.is_space:
                    line.append(cell)
                    used += wide
        yield _trimmed(line)

    def _width(self, cell: Cell, size: int) -> float:
        return _BOX_WIDTH * size if cell.code else self._letter(cell.text, size)

    def _letter(self, letter: str, size: int) -> float:
        # Measured in each size: small letters are fitted to whole points, so they are not in proportion.
        width = self._widths.get((letter, size))
        if width is None:
            width = self._widths[letter, size] = self.font(size).getlength(letter)
        return width

    def _cells_of(self, letter: str) -> tuple[Cell, ...]:
        found = self._cells.get(letter)
        if found is None:
            found = self._cells[letter] = tuple(self._made(letter))
        return found

    def _made(self, letter: str) -> Iterator[Cell]:
        if letter.isspace():
            yield Cell(" ")
        elif self._has(letter):
            yield Cell(letter)
        else:
            spelt = _SPELT.get(letter) or "".join(
                part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part)
            )
            if spelt and spelt != letter and all(self._has(part) for part in spelt):
                yield from (Cell(part) for part in spelt)
            else:
                yield Cell("?", f"{ord(letter):04X}")

    def _has(self, letter: str) -> bool:
        return letter == " " or bytes(self.font(_LOOK).getmask(letter)) != self._missing


def line_height(size: int) -> float:
    return size * _LINE


def _words(paragraph: Line) -> Iterator[list[Cell]]:
    """Runs of spaces and of everything else, in turn."""
    run: list[Cell] = []
    for cell in paragraph:
        if run and run[-1].is_space != cell.is_space:
            yield run
            run = []
        run.append(cell)
    if run:
        yield run


def _trimmed(line: list[Cell]) -> list[Cell]:
    end = len(line)
    while end and line[end - 1].is_space:
        end -= 1
    return line[:end]


def _bundled(size: int) -> ImageFont.FreeTypeFont:
    """The font that comes with the drawing library."""
    font = ImageFont.load_default(size)
    if not isinstance(font, ImageFont.FreeTypeFont):
        raise OSError("the drawing library was built without FreeType")
    return font.font_variant(layout_engine=_PLAIN)
