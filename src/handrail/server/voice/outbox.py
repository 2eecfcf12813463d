"""What is on its way to one client. A client that does not keep up loses sound, the oldest first, and never a message.

While the client keeps up nothing waits here: what is sent is written.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from handrail.server.voice.websocket_protocol import Pipe


class SocketOutbox:
    """`max_sound` bytes of sound may wait; `lost` is told the item of each piece that goes beyond it. It is held until the
    first message, `ready`, was sent."""

    __slots__ = (
        "_cells",
        "_held",
        "_lost",
        "_max_sound",
        "_pipe",
        "_sound_bytes",
        "_sounds",
        "_text_bytes",
        "dropped",
    )

    def __init__(self, pipe: Pipe, *, max_sound: int, lost: Callable[[int], None]) -> None:
        self._pipe = pipe
        self._lost = lost
        self._held = True
        self._cells: deque[_Cell] = deque()
        self._sounds: deque[_Cell] = deque()
        self._max_sound = max_sound
        self._sound_bytes = 0
        self._text_bytes = 0
        self.dropped = 0
        """Pieces of sound that the client lost."""

    @property
    def waiting_bytes(self) -> int:
        """Of messages alone."""
        return self._text_bytes

    def release(self, first: bytes) -> None:
        """Send this before everything, and from now on whatever comes."""
        self._pipe.write_text(first)
        self._held = False
        self.flow()

    def text(self, data: bytes) -> None:
        if not self._cells and not self._held and self._pipe.is_writable:
            self._pipe.write_text(data)
            return
        self._cells.append(_Cell(data, None))
        self._text_bytes += len(data)

    def sound(self, item: int, data: bytes) -> None:
        if not self._cells and not self._held and self._pipe.is_writable:
            self._pipe.write_sound(data)
            return
        cell = _Cell(data, item)
        self._cells.append(cell)
        self._sounds.append(cell)
        self._sound_bytes += len(data)
        while self._sound_bytes > self._max_sound:
            oldest = self._sounds.popleft()
            self._drop(oldest)
            self.dropped += 1
            if oldest.item is not None:
                self._lost(oldest.item)

    def flush(self, item: int) -> None:
        """The user interrupted: what is still here of this item and those before is not wanted any more."""
        kept: deque[_Cell] = deque()
        for cell in self._sounds:
            if cell.item is not None and cell.item <= item:
                self._drop(cell)
            else:
                kept.append(cell)
        self._sounds = kept

    def flow(self) -> None:
        """Write what waits, as far as the client takes it."""
        if self._held:
            return
        while self._cells and self._pipe.is_writable:
            cell = self._cells.popleft()
            if cell.item is None:
                self._text_bytes -= len(cell.data)
                self._pipe.write_text(cell.data)
            elif cell.data:
                self._sounds.popleft()
                self._sound_bytes -= len(cell.data)
                self._pipe.write_sound(cell.data)

    def flow_out(self) -> None:
        """The end: write every message that waits, whether the client takes it or not, and no sound."""
        for cell in self._cells:
            if cell.item is None:
                self._pipe.write_text(cell.data)
        self._cells.clear()
        self._sounds.clear()
        self._sound_bytes = self._text_bytes = 0

    def _drop(self, cell: _Cell) -> None:
        self._sound_bytes -= len(cell.data)
        cell.data = b""


class _Cell:
    __slots__ = ("data", "item")

    def __init__(self, data: bytes, item: int | None) -> None:
        self.data = data
        self.item = item
