"""Which extras of Handrail are installed: read from the packages' own metadata, so that no second list can differ."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)\s*(\[(?P<extras>[^\]]*)\])?")
_EXTRA = re.compile(r"""extra == ["']([a-z0-9-]+)["']""")
_ELSEWHERE = re.compile(
    r"\b(python_version|python_full_version|sys_platform|platform_\w+|os_name|implementation_\w+)\b"
)
"""What a requirement says that may not hold for this machine; only pip can tell, so it is not asked for here."""
_COLLECTIONS = ("all", "dev")


def installed_extras() -> dict[str, bool]:
    """Each extra by its name, and whether every package of it is there. `all` and the developers' own are not among them."""
    extras = {extra for extra, _ in _requirements("handrail") if extra not in _COLLECTIONS}
    return {extra: _is_complete("handrail", extra) for extra in sorted(extras)}


def _requirements(package: str) -> Iterator[tuple[str, str]]:
    """The extras of a package, each with a requirement that it has."""
    for requirement in requires(package) or ():
        extra = _EXTRA.search(requirement)
        if extra is not None and _ELSEWHERE.search(requirement) is None:
            yield extra[1], requirement


def _is_complete(package: str, extra: str) -> bool:
    """Whether what an extra needs is installed, with what the extras of those packages need."""
    return all(_is_there(requirement) for named, requirement in _requirements(package) if named == extra)


def _is_there(requirement: str) -> bool:
    found = _REQUIREMENT.match(requirement)
    if found is None:
        return True
    try:
        version(found["name"])
    except PackageNotFoundError:
        return False
    wanted = [one.strip() for one in (found["extras"] or "").split(",") if one.strip()]
    return all(_is_complete(found["name"], one) for one in wanted)
