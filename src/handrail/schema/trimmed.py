"""JSON that is kept for longer than a moment.

What `orjson.dumps` returns keeps the whole buffer that it was written in, 4 KiB at the least and twice its own size or more,
whatever `len` and `sys.getsizeof` say. Nobody notices on the way to a socket; kept by the thousand it is most of the memory.
"""

from __future__ import annotations

_join = b"".join


def trimmed(data: bytes) -> bytes:
    """The same bytes in no more memory than they need."""
    return _join((data, b""))  # with one part alone, `join` would give it back as it is
