"""The form that is made from a tool's schema, and where the pipeline's words about its values appear."""

from typing import Any

from tests.console.browser import opened
from tests.console.samples import offer
from tests.console.scripted_server import Script, ScriptedServer


def test_every_kind_of_field_gives_its_kind_of_value(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    given: list[Any] = []
    offer(script, "demo")
    script.tries["demo"] = lambda args: (
        given.append(args),
        {"ok": True, "data": {"fine": True}, "meta": {"duration": 3}},
    )[1]
    with opened(browser, f"{scripted.address}&/tools/demo") as it:
        page = it.page
        page.get_by_label("title").fill("Hello <b>")
        page.get_by_label("size").select_option(label="large")
        page.get_by_label("when").fill("2026-07-01T09:30")
        page.get_by_label("count").fill("4")
        page.get_by_label("share").fill("0.25")
        page.get_by_label("loud").select_option(label="no")
        page.get_by_role("button", name="Add to mails").click()
        page.get_by_label("mails 1", exact=True).fill("ana@example.com")
        page.get_by_role("button", name="Add to mails").click()
        page.get_by_label("mails 2", exact=True).fill("gone@example.com")
        page.get_by_role("button", name="Remove mails 2").click()
        page.get_by_label("url").check()
        page.get_by_label("city").fill("Zagreb")
        page.get_by_role("button", name="Add to steps").click()
        page.get_by_label("name").fill("first")
        page.get_by_label("anything").fill('["x"]')
        page.get_by_label("secret").fill("hush")
        assert page.get_by_label("secret").get_attribute("type") == "password"
        page.get_by_role("button", name="Run through the pipeline").click()
        page.locator(".result .card[data-state=done]").wait_for()
    assert given == [
        {
            "title": "Hello <b>",
            "size": "large",
            "when": "2026-07-01T09:30:00+02:00",
            "count": 4,
            "share": 0.25,
            "loud": False,
            "mails": ["ana@example.com"],
            "fields": ["url"],
            "place": {"city": "Zagreb"},
            "steps": [{"name": "first"}],
            "anything": ["x"],
            "secret": "hush",
        }
    ]


def test_fields_that_were_left_empty_are_not_sent(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    given: list[Any] = []
    offer(script, "demo")
    script.tries["demo"] = lambda args: (given.append(args), {"ok": True, "data": None, "meta": {}})[1]
    with opened(browser, f"{scripted.address}&/tools/demo") as it:
        it.page.get_by_role("button", name="Example 1").click()
        assert it.page.get_by_label("title").input_value() == "Hello"
        it.page.get_by_role("button", name="Run through the pipeline").click()
        it.page.locator(".result .card").wait_for()
        it.page.get_by_label("as JSON", exact=True).check()
        it.page.get_by_label("Arguments as JSON").fill('{"title": "Two", "odd": 1}')
        it.page.get_by_role("button", name="Run through the pipeline").click()
        it.page.locator(".result .card").get_by_text("odd").first.wait_for()
    assert given == [{"title": "Hello", "size": "large"}, {"title": "Two", "odd": 1}]


def test_what_the_pipeline_says_is_wrong_stands_beside_the_field(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    offer(script, "demo")
    details = [
        {"pointer": "/mails/0", "message": "This is no e-mail address.", "keyword": "format"},
        {"pointer": "", "message": '"when" is missing.', "keyword": "required", "property": "when"},
        {"pointer": "", "message": "The whole is odd."},
    ]
    error = {"type": "VALIDATION", "message": "The arguments do not fit.", "details": details}
    script.tries["demo"] = lambda args: {"ok": False, "error": error, "intents": [], "meta": {"duration": 1}}
    with opened(browser, f"{scripted.address}&/tools/demo") as it:
        page = it.page
        page.get_by_role("button", name="Add to mails").click()
        page.get_by_label("mails 1", exact=True).fill("nobody")
        page.get_by_role("button", name="Run through the pipeline").click()
        page.get_by_text("This is no e-mail address.").first.wait_for()
        mail = page.get_by_label("mails 1", exact=True)
        assert mail.get_attribute("aria-invalid") == "true"
        words = page.evaluate(
            "(node) => document.getElementById(node.getAttribute('aria-describedby')).textContent",
            mail.element_handle(),
        )
        assert words == "This is no e-mail address."
        assert page.get_by_label("when").get_attribute("aria-invalid") == "true"
        assert page.evaluate("document.activeElement.getAttribute('aria-invalid')") == "true"
        assert "The whole is odd." in page.get_by_role("alert").inner_text()
        script.tries["demo"] = lambda args: {"ok": True, "data": {}, "meta": {}}
        page.get_by_role("button", name="Run through the pipeline").click()
        page.locator(".result .card[data-state=done]").wait_for()
        assert page.locator(".try [aria-invalid]").count() == 0


def test_words_for_a_model_are_not_said_to_the_person_who_tries_a_tool(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    offer(script, "demo")
    request = script.hold("conf_1", "demo", {"title": "Hello"}, "Say Hello.", 300)
    held = {
        "type": "CONFIRMATION_REQUIRED",
        "message": '"demo" waits for the approval of a person; tell the user what it is about, and do not call it again.',
        "confirmation_request": {name: request[name] for name in ("id", "tool", "args", "preview", "expires_at")},
    }
    looped = {"type": "LOOP_DETECTED", "message": "It was asked twice.", "suggestion": "Tell the user so."}
    with opened(browser, f"{scripted.address}&/tools/demo") as it:
        page = it.page
        for error in (held, looped):
            script.tries["demo"] = lambda args, error=error: {"ok": False, "error": error, "intents": [], "meta": {}}
            page.get_by_label("title").fill("Hello")
            page.get_by_role("button", name="Run through the pipeline").click()
            state = "held" if error is held else "refused"
            page.locator(f".result .card[data-state={state}]").wait_for()
            said = page.get_by_role("alert").inner_text() + page.locator(".result").inner_text()
            assert "tell the user what" not in said
            if error is held:
                assert said.count("It waits for a person's approval.") == 2
            else:
                assert "Advice to the model: Tell the user so." in said
