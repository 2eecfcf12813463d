"""Writes the table of extras in docs/install.md: what each brings, how many packages, how many megabytes.

`make docs` runs it. Nothing is downloaded: packages are followed through the metadata of what is installed in .venv, which
has every extra in the versions of requirements.lock. Sizes are those of the files without compiled bytecode.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "install.md"
OURS = {"handrail": ROOT / "src" / "handrail", "handrail-reference": ROOT / "src" / "handrail_reference"}
NOT_LISTED = ("dev",)
"""An extra for those who work on Handrail itself."""
BEGIN, END = "<!-- extras: begin -->\n", "<!-- extras: end -->\n"

PURPOSES = {
    "": "build, check and call tools; the runtime with SQLite; `handrail init`, `new`, `build`, `call`",
    "all": "everything above",
    "anthropic": "models of Anthropic",
    "conditions": "conditions in CEL: `availability.condition`, `confirmation.when`",
    "embeddings": "`reference`, with search by meaning",
    "gemini": "models of Google, typed and spoken",
    "identity": "access tokens of people, signed by an authorization server",
    "local": "models in GGUF files, run on this machine",
    "mcp": "`handrail mcp`, and `/mcp` in `handrail serve`: tools for MCP clients, and those of MCP servers",
    "ollama": "models of an Ollama server",
    "openai": "models of OpenAI and of servers that speak its protocol, typed and spoken",
    "otel": "spans for OpenTelemetry",
    "postgres": "the store in PostgreSQL, for several machines",
    "reference": "the reference tools, their services and the demo model",
    "server": "`handrail serve`: HTTP, voice, the console",
    "speech": "a second opinion on spoken confirmations, on this machine",
}


def extras() -> list[str]:
    """The names of the extras, as pyproject.toml has them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [name for name in project["optional-dependencies"] if name not in NOT_LISTED]


def installed_with(name: str, *extra: str) -> dict[str, Distribution]:
    """The distribution and everything that pip would install with it, by canonical name."""
    environment = {key: str(value) for key, value in default_environment().items()}
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(canonicalize_name(name), one) for one in ("", *extra)]
    while waiting:
        package, option = waiting.pop()
        if (package, option) in seen:
            continue
        seen.add((package, option))
        found[package] = distribution(package)
        for text in found[package].requires or ():
            needed = Requirement(text)
            if needed.marker is None or needed.marker.evaluate({**environment, "extra": option}):
                waiting += [(canonicalize_name(needed.name), one) for one in ("", *needed.extras)]
    return found


def size_of(package: Distribution) -> int:
    """Bytes on disk. Ours are installed as links to the source, so their source is measured."""
    source = OURS.get(canonicalize_name(package.name))
    if source is not None:
        files = [path for path in source.rglob("*") if path.is_file()]
    else:
        files = [Path(str(package.locate_file(file))) for file in package.files or ()]
    return sum(path.stat().st_size for path in files if path.suffix != ".pyc" and path.is_file())


def table() -> str:
    rows = ["| install | what it adds | packages | MB |", "| --- | --- | --- | --- |"]
    for extra in ("", *extras()):
        packages = installed_with("handrail", extra)
        # Handrail itself is counted in the megabytes, not among the packages.
        megabytes = sum(map(size_of, packages.values())) / 1e6
        name = f"`handrail[{extra}]`" if extra else "`handrail`"
        rows.append(f"| {name} | {PURPOSES[extra]} | {len(packages) - 1} | {megabytes:.0f} |")
    return "\n".join(rows) + "\n"


def main() -> int:
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    python = ".".join(map(str, sys.version_info[:2]))
    measured = re.sub(r"Python 3\.\d+ on Linux", f"Python {python} on Linux", after)
    PAGE.write_text(f"{before}{BEGIN}{table()}{END}{measured}", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
