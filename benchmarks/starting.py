"""Starting: what `import handrail` and `handrail --help` cost."""

from __future__ import annotations

import subprocess
import sys

from benchmarks.report import Result, interleaved

_NAMES = (
    "Call, Registry, Runtime, Session, ToolComponent, ToolDefinition, ToolError, ToolResponse, ErrorType, hydrate, tool"
)
_FORBIDDEN = (
    "openai",
    "google.genai",
    "anthropic",
    "mcp",
    "starlette",
    "uvicorn",
    "httpx",
    "sqlite3",
    "psycopg",
    "cel",
)


def _python(*arguments: str) -> None:
    subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)


def run() -> list[Result]:
    times = interleaved(
        {
            "bare": lambda: _python("-c", "pass"),
            "validator": lambda: _python("-c", "import jsonschema_rs"),
            "handrail": lambda: _python("-c", "import handrail"),
            "names": lambda: _python("-c", f"from handrail import {_NAMES}"),
            "help": lambda: _python("-m", "handrail", "--help"),
        },
        rounds=15,
    )
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, handrail; print([m for m in {_FORBIDDEN!r} if m in sys.modules])"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    return [
        Result(
            "import handrail / import of the validator",
            times["handrail"] / times["validator"],
            "x",
            3.0,
            f"also loaded: {loaded}",
        ),
        Result(
            "every name of handrail / import of the validator",
            times["names"] / times["validator"],
            "x",
            None,
            "all exports touched",
        ),
        Result("handrail --help / python -c pass", times["help"] / times["bare"], "x", 4.0),
    ]
