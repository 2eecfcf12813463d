"""Plain answers to what people ask first, for the starter base: the pages have them too, but spread over tables and sections.

What is stated here is checked against the code by the tests, so that it does not grow old.
"""

from __future__ import annotations

import re

ANSWERS: dict[str, tuple[str, str]] = {
    "providers": (
        "Supported providers, such as OpenAI, Claude, Gemini and Ollama",
        "The supported providers of models are OpenAI (Chat Completions and Responses), Anthropic, Gemini and Ollama. "
        "Claude is used through Anthropic. "
        "Servers that speak OpenAI's format work, too. In voice, Gemini Live and OpenAI Realtime are supported. "
        'The line `model` under `[agent]` in handrail.toml chooses one, such as "anthropic:NAME-OF-THE-MODEL".\n\n'
        "Without a provider the demo model answers. It needs no key and no network.",
    ),
    "port": (
        "The port of handrail serve",
        "The default port of `handrail serve` is 8484, on the address 127.0.0.1. `--port` and `--host` change where the "
        "server listens, and so do `port` and `host` under `[server]` in handrail.toml.",
    ),
    "budget": (
        "The budget of a turn",
        "The budget gate limits how many calls a model may make in one turn: the default budget in voice is 2 retrieval calls "
        "and 3 calls in all per turn. The default budget in text is 5 retrieval calls per turn. A call beyond the budget is "
        "refused with BUDGET_EXCEEDED and a suggestion. `[policy]` in handrail.toml changes the budgets.",
    ),
    "gates": (
        "The gates of a call",
        "A gate is a check that every call passes before its handler runs; a gate that says no refuses the call and says why. "
        "The gates are session, mode, availability, clamp, rate, loop and budget.",
    ),
    "requirements": (
        "What Handrail needs",
        "Handrail needs Python, version 3.11 or newer. Handrail works without internet, with the demo model. "
        "It needs no key, no account, no network and no database server to start: "
        "everything is stored in local files by default. The license of Handrail is MIT.",
    ),
    "tools": (
        "The tools that come with Handrail",
        "The tools that come with Handrail are calendar_create_event, calendar_get_availability, end_voice_session, "
        "extract_contacts, format_datetime, get_tool_guide, ignore_user, image_draft_prompt, image_generate, kb_get, kb_search, "
        "linkedin_lookup, rank_results, send_image, start_voice_session and validate_email. They are called reference tools, "
        "and `reference` under `[tools]` in handrail.toml chooses among them.",
    ),
    "keys": (
        "Where keys go",
        "The API key of a provider goes into the environment, such as OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY. "
        "The key for the server is made at the first start of `handrail serve` and shown once; `make run` keeps its key, which "
        "stays the same. `handrail doctor` says which key is missing.",
    ),
    "calendar_files": (
        "Importing and exporting a calendar",
        "`handrail calendar export` exports a calendar as an iCalendar file, and `handrail calendar import` imports one. "
        "It is possible to have several calendars, each with a name.",
    ),
    "sessions": (
        "How long sessions are kept",
        "A session that is idle is kept in memory for 1800 seconds (`idle_seconds`) and comes back from the store when it is "
        "used again. Conversations are kept for 90 days (`keep_days`).",
    ),
    "voice": (
        "Voice mode",
        "Handrail supports voice. "
        "In voice mode the user speaks and the agent answers aloud; the tools, gates and approvals are the same as in text. "
        "Voice needs no provider: without a live model the client listens and speaks for the text model.",
    ),
    "registry": (
        "What the registry is",
        "The registry is the set of all built tools: `handrail build` checks the tools and writes them into one file, "
        "tool_registry.json, whose version is made of its content. A session keeps the registry that it was opened with.",
    ),
    "new_tool": (
        "Adding a tool: how to write your own",
        "To add a tool, or write your own, run `handrail new NAME`: it writes a folder with schema.json, guide.md and "
        "handler.py that works at once. Then `handrail build` takes the tool into the registry. A tool can also be a function "
        "of your own with `@tool`.",
    ),
    "refusals": (
        "Why a call was refused",
        "`handrail audit why CALL` says why a call was refused: which gate refused it, by which rule and value. The console "
        "shows the same in its audit browser.",
    ),
    "import": (
        "Importing and exporting documents",
        "`handrail kb import PATH` imports documents into the knowledge base: JSON lines, CSV files and folders of Markdown "
        "with front matter. Importing the same documents again does no work. "
        "`handrail kb export` exports the knowledge base again. `handrail kb search`, `kb get`, `kb stats` and `kb delete` look "
        "at single records and remove them.",
    ),
    "model": (
        "Connecting a language model, or changing it",
        "To connect a language model, change it or switch to another one, set the line `model` under `[agent]` in "
        'handrail.toml and start Handrail again: "openai:", "anthropic:", "gemini:" or "ollama:", and the name of the model. '
        'To switch to Claude, set `model` to "anthropic:NAME-OF-THE-MODEL" and put ANTHROPIC_API_KEY into the environment.',
    ),
    "install": (
        "Installing Handrail",
        "To install Handrail, run `pip install .` in the folder of its source, with Python 3.11 or newer; `handrail init NAME` "
        "then makes a project. To try it without installing anything, run `make run`, which sets up an environment of its own.",
    ),
    "tests": (
        "Running the tests",
        "To run the tests of Handrail, run `make test`; it checks style and types as well. To run the tests of your own tools, "
        "run `pytest` in your project: `handrail new` writes one for each tool.",
    ),
    "deploy": (
        "Deploying Handrail",
        "To deploy Handrail, run `handrail build --strict`, make keys with `handrail keys add`, and let a service manager keep "
        "`handrail serve` running behind a reverse proxy with TLS. One process on one machine is the whole deployment.",
    ),
    "licence": (
        "The licence of Handrail",
        "Handrail is free: it is under the MIT licence (license).",
    ),
    "ledger": (
        "What the ledger is",
        "The ledger is the record of every writing call: a call is claimed in it before its handler runs, so that no side effect "
        "happens twice. `handrail ledger list` shows it, and `handrail ledger settle` settles a call whose outcome is not known.",
    ),
    "double_bookings": (
        "How double bookings are stopped",
        "The ledger stops double bookings and prevents duplicates: a writing call is claimed in it before its handler runs, so "
        "that the same call, sent again after a reconnect or because the connection drops, gets the first answer and does not "
        "book twice.",
    ),
    "timeout": (
        "When a tool takes too long",
        "When a tool takes longer than its time limit, it is stopped, times out, and the call ends with TIMEOUT. "
        "The default time limit of a tool is 30 seconds (`timeout_ms`); a tool sets its own with `timeoutMs`.",
    ),
    "approval": (
        "Approving a call: how confirmations work",
        "Confirmations work without the model: "
        "a call of a tool that asks for confirmation is held until a person approves or declines it. "
        "A held call waits 300 seconds for its approval in text and 60 seconds in voice by default; then it expires. "
        "A model cannot approve a call.",
    ),
    "crash": (
        "When the process dies in the middle of a writing call",
        "When the server crashes in the middle of a writing call, such as a booking, its claim stays in the ledger. "
        "An idempotent call is taken over and run again; any other becomes unknown and is never run again by itself. "
        "`handrail ledger settle` settles it once a person has looked.",
    ),
}
"""name → title, text."""
_ROW = re.compile(r"^\s*\|(.+)\|\s*$")
_RULE = re.compile(r"^[\s|:-]+$")
_PLAIN = ("key", "what", "#", "name", "before the colon", "what it does", "what happens then", "meaning", "what it is")


def in_sentences(markdown: str) -> str:
    """Tables as lists: a line of "key: default 8484; where it listens." can be found and quoted, a row of cells cannot."""
    lines = markdown.splitlines()
    done: list[str] = []
    heads: list[str] = []
    first, fenced = "", False
    for place, line in enumerate(lines):
        fenced ^= line.lstrip().startswith(("```", "~~~"))
        row = None if fenced else _ROW.match(line)
        if row is None:
            heads = []
            done.append(line)
        elif _RULE.match(line):
            continue
        elif not heads and place + 1 < len(lines) and _RULE.match(lines[place + 1]):
            heads, first = _cells(row[1]), ""
        elif not heads:
            done.append(line)
        else:
            cells = _cells(row[1])
            first = cells[0] or first  # a cell that is left empty means the one above
            done += [f"- {told}" for told in _row_sentences(heads, [first, *cells[1:]])]
    return "\n".join(done)


def _cells(row: str) -> list[str]:
    return [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", row)]


def _row_sentences(heads: list[str], cells: list[str]) -> list[str]:
    """A row in words. Keys that share a row, each with its own value, become sentences of their own."""
    keys = re.findall(r"`[^`]+`", cells[0])
    values = [value.strip() for value in cells[1].split(", ")] if len(cells) > 1 else []
    alone = len(keys) > 1 and ", ".join(keys) == cells[0] and len(values) == len(keys)
    rows = [[key, value, *cells[2:]] for key, value in zip(keys, values, strict=True)] if alone else [cells]
    return [_sentence(heads, row) for row in rows]


def _sentence(heads: list[str], cells: list[str]) -> str:
    named = [
        cell if head.lower() in _PLAIN or not head else f"{head} {cell}"
        for head, cell in zip(heads[1:], cells[1:], strict=False)
        if cell
    ]
    return f"{cells[0]}: {'; '.join(named).rstrip('.')}." if named else f"{cells[0]}."
