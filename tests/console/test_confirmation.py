"""The confirmation dialog in a real browser, against a server that counts what it was asked."""

from collections.abc import Callable
from typing import Any

from tests.console.browser import NARROW, WIDE, Opened, opened
from tests.console.samples import held
from tests.console.scripted_server import Script, ScriptedServer


def ask(page: Any, text: str = "book") -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def wait_until(it: Opened, holds: Callable[[], bool]) -> None:
    """Let the page go on until something is so."""
    for _ in range(400):
        if holds():
            return
        it.page.wait_for_timeout(25)
    raise AssertionError("it did not come to be so")


def test_two_presses_of_approve_are_one_request_and_run_it_once(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    script.approvals_may_go_on.clear()
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("button", name="Approve").dblclick()
        wait_until(it, lambda: len(script.approvals) > 0)
        script.approvals_may_go_on.set()
        it.page.get_by_text("Approved: calendar_create_event was carried out.").first.wait_for()
        it.page.locator(".card[data-state=done]").wait_for()
    assert script.approvals == ["approve conf_1"]
    assert script.carried_out == 1


def test_a_reload_between_two_approvals_still_runs_it_once(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    script.approvals_may_go_on.clear()
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("button", name="Approve").click()
        wait_until(it, lambda: len(script.approvals) == 1)
        it.page.reload()
        it.page.get_by_role("button", name="Approve").click()
        wait_until(it, lambda: len(script.approvals) == 2)
        script.approvals_may_go_on.set()
        it.page.get_by_text("was carried out").first.wait_for()
    assert len(script.approvals) == 2
    assert script.carried_out == 1


def test_an_open_request_is_shown_again_after_a_reload_with_its_new_token(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("dialog").wait_for()
        it.page.reload()
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("Attendees (1): ana@example.com").wait_for()
        dialog.get_by_role("button", name="Decline").click()
        it.page.get_by_text("Declined: calendar_create_event was not run.").first.wait_for()
    assert script.approvals == ["decline conf_1"]
    assert script.carried_out == 0


def test_a_request_that_was_put_aside_waits_in_the_conversation(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("dialog").wait_for()
        it.page.keyboard.press("Escape")
        assert it.page.get_by_role("dialog").count() == 0
        it.page.get_by_role("button", name="Review", exact=True).click()
        it.page.get_by_role("dialog").get_by_role("button", name="Approve").wait_for()
    assert script.approvals == []


def test_keys_that_were_meant_for_the_composer_decide_nothing(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("dialog").wait_for()
        for key in ("Enter", "Space", "y"):
            it.page.keyboard.press(key)
        it.page.wait_for_timeout(200)
        assert it.page.get_by_role("dialog").count() == 1
    assert script.approvals == []


def test_after_its_time_a_request_cannot_be_approved(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    script.answers["book"] = held(script, seconds=1.2)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        dialog = it.page.get_by_role("dialog")
        dialog.get_by_text("The time is over; nothing was run.").wait_for()
        assert dialog.get_by_role("button", name="Approve").count() == 0
        dialog.get_by_role("button", name="Close").click()
        assert it.page.locator(".held-line").count() == 0
    assert script.approvals == []


def test_on_a_phone_each_of_the_exact_arguments_stays_on_its_line(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address, viewport=NARROW) as it:
        ask(it.page)
        it.page.get_by_text("The exact arguments").click()
        it.page.get_by_text("2026-11-17T15:30:00+01:00").wait_for()
        lines = """[...document.querySelectorAll(".exact dd")].map((one) => {
          const text = document.createRange();
          text.selectNodeContents(one);
          return new Set([...text.getClientRects()].map((box) => Math.round(box.top))).size;
        })"""
        assert it.page.evaluate(lines) == [1, 1, 1, 1]


def test_two_requests_are_shown_one_after_the_other(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    first, second = held(script, "conf_1"), held(script, "conf_2")
    script.answers["book"] = [*first[:3], *second]
    with opened(browser, scripted.address) as it:
        ask(it.page)
        for _ in range(2):
            it.page.get_by_role("button", name="Approve").click()
            it.page.get_by_text("was carried out").first.wait_for()
            it.page.wait_for_timeout(150)
        assert it.page.get_by_role("dialog").count() == 0
    assert sorted(script.approvals) == ["approve conf_1", "approve conf_2"]


def test_the_focus_is_inside_the_dialog_and_returns_to_the_composer(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("dialog").wait_for()
        for _ in range(8):
            it.page.keyboard.press("Tab")
            assert focus_is_in_dialog_or_browser(it)
        it.page.keyboard.press("Escape")
        assert it.page.evaluate("document.activeElement.id") == "message"


def focus_is_in_dialog_or_browser(it: Opened) -> bool:
    inside: bool = it.page.evaluate(
        "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
    )
    return inside


def test_a_notice_is_shown_once_and_covers_neither_the_turn_nor_the_composer(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    for viewport in (WIDE, {"width": 900, "height": 800}, NARROW):
        script.answers["book"] = held(script)
        script.approvals_may_go_on.clear()
        decided = len(script.approvals)
        with opened(browser, scripted.address, viewport=viewport) as it:
            ask(it.page)
            it.page.get_by_role("button", name="Approve").dblclick()
            wait_until(it, lambda before=decided: len(script.approvals) > before)
            script.approvals_may_go_on.set()
            it.page.locator(".toast").first.wait_for()
            it.page.wait_for_timeout(100)
            assert it.page.locator(".toast").count() == 1
            heading = ".inspector h2" if viewport is WIDE else ".inspector summary"
            covered = it.page.evaluate(
                """(selectors) => {
                  const toast = document.querySelector(".toast").getBoundingClientRect();
                  return selectors.filter((one) => [...document.querySelectorAll(one)].some((node) => {
                    const box = node.getBoundingClientRect();
                    return box.width && box.left < toast.right && toast.left < box.right
                      && box.top < toast.bottom && toast.top < box.bottom;
                  }));
                }""",
                [heading, ".bars li", ".composer"],
            )
            assert covered == [], viewport
