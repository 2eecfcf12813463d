"""How a conversation may begin: only with what the tools of the project can do something about."""

from typing import Any

from tests.console.browser import opened
from tests.console.samples import offer
from tests.console.scripted_server import Script, ScriptedServer


def test_only_what_the_tools_can_do_is_suggested(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    script.facts = {"tools": ["kb_search", "kb_get"]}
    with opened(browser, scripted.address) as it:
        it.page.locator(".idea").first.wait_for()
        assert it.page.locator(".idea").all_inner_texts() == ["What is Handrail?"]


def test_tools_of_the_project_are_offered_in_their_forms_and_not_as_words_that_a_model_may_not_understand(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.facts = {"tools": ["book_visit", "count_words"]}
    offer(script, "book_visit", summary="Books a visit for a guest.", category="action")
    offer(script, "count_words", summary="Counts words.", category="utility")
    offer(script, "of_another_mode", summary="Is not there.", category="action")
    with opened(browser, scripted.address) as it:
        it.page.locator(".idea").first.wait_for()
        assert it.page.locator(".idea").all_inner_texts() == ["Try book_visit: Books a visit for a guest"]
        it.page.locator(".idea").click()
        it.page.get_by_role("button", name="Run through the pipeline").wait_for()
        it.page.get_by_role("heading", name="book_visit").wait_for()
    assert script.said == []


def test_what_a_model_suggests_is_said_by_a_press_and_goes_when_something_was_said(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["go"] = [
        ("text", {"text": "No."}),
        ("done", {"text": "No.", "suggestions": ["Draft a picture", "<b>Start</b> voice"]}),
    ]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "go")
        it.page.press("#message", "Enter")
        it.page.get_by_role("list", name="Suggestions").wait_for()
        assert it.page.locator(".said .idea").all_inner_texts() == ["Draft a picture", "<b>Start</b> voice"]
        it.page.locator(".said .idea").first.click()
        it.page.get_by_role("article", name="You").nth(1).wait_for()
        it.page.get_by_role("list", name="Suggestions").wait_for(state="hidden")
    assert script.said == ["go", "Draft a picture"]
