"""The reference tools that come with Handrail: folders as an author would write them, which a project may take in.

`[tools] reference` names them. In the artifact they are marked as Handrail's own and found again in whatever place the
package is installed, so no path of this machine is written down.
"""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from handrail.authoring.directory import read_folder, tool_folders
from handrail.authoring.source import ToolSource
from handrail.contract.errors import ConfigError

ALL = "*"


def reference_root() -> Path:
    """Where the installed package keeps its tools."""
    return Path(__file__).parent.parent / "tools"


def read_reference(names: Sequence[str]) -> list[ToolSource]:
    """The reference tools with these ids, each once; `*` means all. An unknown one is a `ConfigError`."""
    if not names:
        return []
    known = {folder.replace("-", "_"): folder for folder in tool_folders(reference_root())}
    chosen = {name.replace("-", "_"): name for name in names if name != ALL}
    for tool_id, name in chosen.items():
        if tool_id not in known:
            raise ConfigError(_unknown(name, tool_id, list(known)))
    wanted = known if ALL in names else chosen
    return [read_folder(reference_root(), known[tool_id], origin="handrail") for tool_id in sorted(wanted)]


def _unknown(name: str, tool_id: str, known: list[str]) -> str:
    near = get_close_matches(tool_id, known, n=1)
    hint = f'did you mean "{near[0]}"?' if near else f"there are {', '.join(known)}."
    return f'"reference" in [tools] names "{name}", which is no reference tool; {hint}'
