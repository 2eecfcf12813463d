"""Which extras of Handrail are installed: read from the package's own metadata, so that no second list can differ."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError, requires, version

_NAME = re.compile(r"[A-Za-z0-9._-]+")
_EXTRA = re.compile(r"""extra == ["']([a-z0-9-]+)["']""")
_COLLECTIONS = ("all", "dev")


def installed_extras() -> dict[str, bool]:
    """Each extra by its name, and whether every package of it is there. `all` and the developers' own are not among them."""
    needed: dict[str, list[str]] = {}
    for requirement in requires("handrail") or ():
        extra, name = _EXTRA.search(requirement), _NAME.match(requirement)
        if extra is not None and name is not None and name[0] != "handrail" and extra[1] not in _COLLECTIONS:
            needed.setdefault(extra[1], []).append(name[0])
    return {extra: all(map(_is_there, names)) for extra, names in sorted(needed.items())}


def _is_there(package: str) -> bool:
    try:
        version(package)
    except PackageNotFoundError:
        return False
    return True
