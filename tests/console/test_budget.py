"""What is left of a turn's budget, beside the conversation: the limits of the mode it is in, counted anew in each turn."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from tests.console.browser import Opened, opened
from tests.console.served import Served


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    made = Served(tmp_path_factory.mktemp("budget"))
    yield made
    made.close()


def shows(it: Opened, *lines: str) -> None:
    """Wait until the meters say exactly this; `*` stands for a number that depends on the machine."""
    patterns = [re.escape(f"{line} left").replace(r"\*", "[0-9,]+") for line in lines]
    it.page.wait_for_function(
        """patterns => {
            const shown = [...document.querySelectorAll('.meter-value')].map((one) => one.textContent);
            return shown.length === patterns.length && patterns.every((one, at) => new RegExp(`^${one}$`).test(shown[at]));
        }""",
        arg=patterns,
    )


def say(it: Opened, text: str, answers: int) -> None:
    it.page.fill("#message", text)
    it.page.press("#message", "Enter")
    it.page.wait_for_function(
        "count => document.querySelectorAll('.by-model .status:empty').length === count", arg=answers
    )


def test_the_budget_is_that_of_the_mode_and_begins_anew_with_each_turn(browser: Any, served: Served) -> None:
    with opened(browser, served.console) as it:
        shows(it, "5 of 5")
        say(it, "What is Handrail?", 1)
        shows(it, "4 of 5")
        it.page.locator(".talk-button").click()
        it.page.locator(".voice-bar[data-state=listening]").wait_for()
        shows(it, "2 of 2", "3 of 3", "1,500 of 1,500 ms")
        say(it, "What is Handrail?", 2)
        shows(it, "1 of 2", "2 of 3", "* of 1,500 ms")
        say(it, "hello", 3)
        shows(it, "2 of 2", "3 of 3", "1,500 of 1,500 ms")
        it.page.locator(".talk-button").click()
        shows(it, "5 of 5")
