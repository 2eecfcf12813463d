"""Tools that change while a conversation is open: a real server says so, and the conversation continues with a click."""

from pathlib import Path
from typing import Any

from tests.console.browser import chromium, opened
from tests.console.served import Served
from tests.runtime.kit import FOUND, Tools, reading


def test_a_changed_tool_is_shown_with_what_the_build_found_and_taken_with_a_click(browser: Any, tmp_path: Path) -> None:
    chromium()
    tools = Tools(tmp_path)
    tools.write({"look": (reading(), FOUND)})
    (tmp_path / "handrail.toml").write_text('[agent]\nmodel = "demo"\n', "utf-8")
    served = Served(tmp_path)
    try:
        with opened(browser, served.console) as it:
            page = it.page
            page.fill("#message", "hello")
            page.press("#message", "Enter")
            page.get_by_text("no language model").first.wait_for()
            tools.write({"look": (reading(), "def execute(args, ctx):\n    return nothing_of_that_name\n")})
            page.get_by_text("The tools do not build; the old ones stay").wait_for()
            page.get_by_text("1 finding").click()
            page.get_by_text("error [undefined-name] look").wait_for()
            tools.write({"look": (reading(version="1.1.0"), FOUND)})
            page.get_by_text("Changed: look.").wait_for()
            it.shoot("served-wide-reloaded")
            page.get_by_role("button", name="Continue with the new tools").click()
            page.get_by_text("This conversation continues with the new tools").wait_for()
    finally:
        served.close()
