"""The line that says which model answers, and choosing another: one click of an operator, and nothing before it."""

from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import LOOKS, opened
from tests.console.scripted_server import Script, ScriptedServer

from handrail.clients.model_choice import WAYS

DEMO = {
    "model": "demo",
    "demo": True,
    "reason": "no language model is connected",
    "sentence": "Answered by the demo model: no language model is connected.",
    "ways": list(WAYS),
    "offers": [{"model": "openai:gpt-5-mini", "reason": "OPENAI_API_KEY is set", "vendor": "api.openai.com"}],
}


@pytest.mark.parametrize(("name", "viewport", "scheme"), LOOKS)
def test_one_click_connects_a_model_that_was_offered_and_one_goes_back(
    browser: Any, scripted: ScriptedServer, script: Script, name: str, viewport: dict[str, int], scheme: str
) -> None:
    script.model = DEMO
    with opened(browser, scripted.address, viewport=viewport, scheme=scheme) as it:
        line = it.page.locator(".answered-by")
        line.get_by_text("Answered by: demo model (no language model is connected)").wait_for()
        assert it.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert obstacles(it.page) == []
        line.get_by_role("button", name="Connect…").click()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("OPENAI_API_KEY is set. Using it sends what is said to api.openai.com").wait_for()
        assert dialog.locator(".ways li").count() == 3
        assert obstacles(it.page) == []
        it.shoot(f"model-{name}-offers")
        assert script.models_chosen == []
        dialog.get_by_role("button", name="Use openai:gpt-5-mini").click()
        line.get_by_text("Answered by: openai:gpt-5-mini").wait_for()
        assert script.models_chosen == ["openai:gpt-5-mini"]
        line.get_by_role("button", name="Change…").click()
        it.page.get_by_role("button", name="Use the demo model").wait_for()


BROKEN = "Ollama at http://127.0.0.1:11434 does not work: it answers with the status 500"


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({**DEMO, "broken": BROKEN}, f"Answered by: demo model (no language model is connected; {BROKEN})"),
        ({**DEMO, "model": "none", "demo": False, "broken": ""}, "Nobody answers: no language model is connected"),
    ],
    ids=["broken-ollama", "no-model"],
)
def test_a_broken_ollama_and_no_model_at_all_are_told_apart(
    browser: Any, scripted: ScriptedServer, script: Script, model: dict[str, Any], words: str
) -> None:
    script.model = model
    with opened(browser, scripted.address, viewport={"width": 390, "height": 844}) as it:
        it.page.locator(".answered-by").get_by_text(words, exact=True).wait_for()
        assert it.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        it.shoot(f"model-narrow-{'broken' if model['broken'] else 'none'}")
        it.page.get_by_role("button", name="Connect…").click()
        assert it.page.locator(".ways li").count() == 3


def test_a_model_that_cannot_be_used_is_explained_where_it_was_chosen(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.model = DEMO
    script.model_problem = 'The model "openai:gpt-5-mini" needs the extra "openai".'
    with opened(browser, scripted.address) as it:
        it.page.get_by_role("button", name="Connect…").click()
        it.page.get_by_role("button", name="Use openai:gpt-5-mini").click()
        it.page.get_by_role("alert").get_by_text(script.model_problem).wait_for()
        assert it.page.get_by_role("button", name="Use openai:gpt-5-mini").is_enabled()
        it.page.get_by_role("button", name="Close").click()
        it.page.get_by_text("Answered by: demo model").wait_for()


def test_whoever_is_no_operator_sees_the_ways_and_no_offer(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.model, script.is_operator = DEMO, False
    with opened(browser, scripted.address) as it:
        it.page.get_by_role("button", name="Connect…").click()
        it.page.locator(".ways li").first.wait_for()
        assert it.page.locator(".offers").count() == 0


def test_a_server_that_does_not_say_who_answers_has_no_line(browser: Any, scripted: ScriptedServer) -> None:
    with opened(browser, scripted.address) as it:
        it.page.locator(".welcome").wait_for()
        assert not it.page.locator(".answered-by").is_visible()
