"""The tutorial, from its first block to its last, in an empty folder: files are written, commands run, the order is approved."""

from __future__ import annotations

import asyncio
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.console.browser import launched, opened
from tests.console.served import Served
from tests.docs.pages import ROOT, Block, blocks, shell

from handrail.testing.servers import OpenAIChatServer, Reply, call

PAGE = ROOT / "docs" / "tutorial.md"
KEY_FILE = "--key-file console-key"
LEMON = {"cake": "lemon", "pieces": 2, "customer": "Ana"}
PREVIEW = ("Order 2 × lemon cake for Ana.", "That is 48 euro. 5 are left today.")


def test_every_step_of_the_tutorial(tmp_path: Path) -> None:
    folder, served = tmp_path, 0
    for block in blocks(PAGE):
        if block.file:
            path = folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, encoding="utf-8")
        elif block.language == "console":
            for command, shown in commands(block):
                if f"handrail serve {KEY_FILE}" in command:
                    (approve_in_the_console, approve_what_the_model_asked_for)[served](folder)
                    served += 1
                else:
                    folder = run(command, shown, folder)
    assert served == 2
    assert folder == tmp_path / "bakery"


def commands(block: Block) -> Iterator[tuple[str, str]]:
    """Each command of a console block, and what the page shows below it."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        command, _, shown = part.partition("\n")
        yield command, shown


def run(command: str, shown: str, folder: Path) -> Path:
    """Run a command; where the page shows output, it must be that, with … for anything. The folder that it ends in."""
    command = re.sub(r"^python ", f'"{sys.executable}" ', command)
    done = shell(f"{command}\necho; echo @ $PWD", folder)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    printed, _, ended_in = done.stdout.rpartition("\n@ ")
    pattern = re.escape(shown.strip()).replace("…", ".*")
    assert re.fullmatch(pattern, printed.strip(), re.S) if shown else True, f"{command}\n{printed}"
    return Path(ended_in.strip())


def approve_in_the_console(folder: Path) -> None:
    served = Served(folder, *KEY_FILE.split())
    try:
        if shutil.which("chromium"):
            _fill_in_the_form_and_approve(served.console)
        else:
            _approve_by_the_api(served)
        order = _try(served, "order_status", {"number": 1})
        assert order["data"] == {"number": 1, **LEMON}
        assert _try(served, "order_status", {"number": 2})["error"]["type"] == "NOT_FOUND"
    finally:
        served.close()


def _fill_in_the_form_and_approve(console: str) -> None:
    with launched() as browser, opened(browser, f"{console}&/tools/place_order") as it:
        for label, value in LEMON.items():
            it.page.get_by_label(label).fill(str(value))
        it.page.get_by_role("button", name="Run through the pipeline").click()
        dialog = it.page.get_by_role("dialog")
        for line in PREVIEW:
            dialog.get_by_text(line).wait_for()
        dialog.get_by_role("button", name="Approve").dblclick(no_wait_after=True)
        dialog.wait_for(state="hidden")


def _approve_by_the_api(served: Served) -> None:
    session = served.ask("POST", "/api/sessions", {})
    held = _try(served, "place_order", LEMON, session)
    assert tuple(held["error"]["confirmation_request"]["preview"].split("\n")) == PREVIEW
    page = served.ask("GET", f"/api/sessions/{session['sessionId']}?tokens=true", token=session["token"])
    (request,) = page["confirmations"]
    for _ in range(2):
        path, body = f"/api/confirmations/{request['id']}/approve", {"token": request["token"]}
        assert served.ask("POST", path, body, session["token"])["data"] == {"order": 1}


def _try(served: Served, tool: str, args: dict[str, Any], session: dict[str, Any] | None = None) -> dict[str, Any]:
    session = session or served.ask("POST", "/api/sessions", {})
    body = {"args": args, "sessionId": session["sessionId"]}
    envelope: dict[str, Any] = served.ask("POST", f"/api/tools/{tool}/try", body, session["token"])
    return envelope


def approve_what_the_model_asked_for(folder: Path) -> None:
    async def scene() -> None:
        order = call("place_order", cake="walnut", pieces=1, customer="Ivo")
        script = [Reply(calls=[call("find_cakes")]), Reply(calls=[order]), Reply("I wait for you."), Reply("Ordered.")]
        async with OpenAIChatServer(script) as model:
            environment = {**model.environment, "OPENAI_BASE_URL": model.base_url, "HANDRAIL_AGENT_MODEL": "openai:any"}
            await asyncio.to_thread(_order_and_approve, folder, environment)
            assert "CONFIRMATION_REQUIRED" in repr(model.requests[2].body["messages"][-1])
            late = model.requests[3].body["messages"][-1]["content"]
            assert '"data":{"order":2}' in late

    asyncio.run(scene())


def _order_and_approve(folder: Path, environment: dict[str, str]) -> None:
    served = Served(folder, *KEY_FILE.split(), **environment)
    try:
        session = served.ask("POST", "/api/sessions", {})
        path, token = f"/api/sessions/{session['sessionId']}", session["token"]
        served.ask("POST", f"{path}/messages", {"id": "m1", "text": "Order a walnut cake for Ivo"}, token)
        page = _until(served, path, token, "I wait for you.")
        (request,) = page["confirmations"]
        approved = served.ask("POST", f"/api/confirmations/{request['id']}/approve", {"token": request["token"]}, token)
        assert approved["data"] == {"order": 2}
        _until(served, path, token, "Ordered.")
    finally:
        served.close()


def _until(served: Served, path: str, token: str, text: str) -> dict[str, Any]:
    """The session as a page shows it, as soon as the model has said this."""
    for _ in range(600):
        page: dict[str, Any] = served.ask("GET", f"{path}?tokens=true", token=token)
        if text in repr(page["messages"]) and not page["answering"]:
            return page
        time.sleep(0.05)
    raise AssertionError(f"The model has not said {text!r}: {page['messages']}")
