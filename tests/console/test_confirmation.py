"""The confirmation dialog in a real browser, against a server that counts what it was asked."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, Opened, opened
from tests.console.samples import MEETING, PREVIEW, held
from tests.console.scripted_server import Script, ScriptedServer


def ask(page: Any, text: str = "book") -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def wait_until(it: Opened, holds: Callable[[], bool]) -> None:
    """Let the page continue until something is so."""
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


def test_arguments_that_are_empty_are_shown_as_what_they_are(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    args = {
        "title": "",
        "attendees": [],
        "notes": None,
        "rooms": ["a", ""],
        "names": ["Roe, Ana", "Bo"],
        "tags": ["x", "y"],
    }
    script.answers["book"] = held(script)
    script.planned["conf_1"]["args"] = args
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_text("The exact arguments").click()
        rows = it.page.locator(".exact .facts > div").all()
        shown = {row.locator("dt").inner_text(): row.locator("dd").inner_text() for row in rows}
        assert shown == {
            "title": '""',
            "attendees": "[]",
            "notes": "null",
            "rooms": '["a",""]',
            "names": '["Roe, Ana","Bo"]',
            "tags": "x, y",
        }


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
                    return node.checkVisibility() && box.left < toast.right && toast.left < box.right
                      && box.top < toast.bottom && toast.top < box.bottom;
                  }));
                }""",
                [heading, ".bars li", ".composer", ".bubble", ".card", "h1, h2, h3"],
            )
            assert covered == [], viewport


# ------------------------------------------------------------------------- only what comes after the question answers it
def paused(it: Opened) -> None:
    """From here on time passes for the page only when the test says so."""
    it.page.clock.pause_at(datetime.now() + timedelta(seconds=5))


def middle_of_approve(it: Opened, script: Script) -> tuple[float, float]:
    """Where the button is going to be: as seen once, before the request was put aside."""
    ask(it.page)
    box = it.page.get_by_role("button", name="Approve").bounding_box()
    it.page.keyboard.press("Escape")
    del script.confirmations["conf_1"]
    script.emit("confirmation_closed", {"id": "conf_1", "outcome": "declined"})
    it.page.locator(".held-line").wait_for(state="detached")
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


def test_a_double_click_that_began_before_the_dialog_does_not_approve(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        it.page.clock.install()
        place = middle_of_approve(it, script)
        paused(it)
        script.confirmations["conf_2"] = script.hold("conf_2", "calendar_create_event", MEETING, PREVIEW)
        it.page.mouse.move(*place)
        it.page.mouse.down()
        it.page.mouse.up()
        script.emit("confirmation", script.planned["conf_2"])
        approve = it.page.get_by_role("dialog").get_by_role("button", name="Approve")
        approve.wait_for()
        assert approve.get_attribute("aria-disabled") == "true"
        it.page.mouse.down(click_count=2)
        it.page.mouse.up(click_count=2)
        it.page.clock.run_for(50)
        it.page.mouse.down()  # and one that begins before the answer counts, and ends when it does
        it.page.clock.run_for(1000)
        assert approve.get_attribute("aria-disabled") is None
        it.page.mouse.up()
        it.page.clock.run_for(1000)
        assert script.approvals == []
        it.page.mouse.click(*place)
        wait_until(it, lambda: script.approvals == ["approve conf_2"])


def test_a_key_that_was_held_down_since_before_the_dialog_does_not_approve(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "book")
        it.page.focus("#message")
        it.page.keyboard.down("Enter")
        approve = it.page.get_by_role("dialog").get_by_role("button", name="Approve")
        approve.focus()
        it.page.locator(".confirm .primary:not([aria-disabled])").wait_for()
        for _ in range(3):
            it.page.keyboard.down("Enter")  # the key repeats itself
        it.page.keyboard.up("Enter")
        it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
        assert script.approvals == []
        it.page.keyboard.press("Enter")
        wait_until(it, lambda: script.approvals == ["approve conf_1"])


def test_the_space_bar_and_a_screen_reader_approve_what_was_shown(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = [*held(script)[:3], *held(script, "conf_2")]
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.locator(".confirm .primary:not([aria-disabled])").focus()
        it.page.keyboard.press("Space")
        wait_until(it, lambda: script.approvals == ["approve conf_1"])
        it.page.get_by_text("was carried out").first.wait_for()
        it.page.locator(".confirm .primary:not([aria-disabled])").evaluate("button => button.click()")
        wait_until(it, lambda: script.approvals == ["approve conf_1", "approve conf_2"])


def test_facts_that_change_in_front_of_the_person_are_read_before_an_answer_counts(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        it.page.clock.install()
        ask(it.page)
        approve = it.page.get_by_role("dialog").get_by_role("button", name="Approve")
        it.page.locator(".confirm .primary:not([aria-disabled])").wait_for()
        paused(it)
        box = approve.bounding_box()
        changed = {"preview": f"{PREVIEW}\nClashes with 1 taken.", "token": "t-2", "replacedBy": "conf_9"}
        script.confirmations["conf_1"] = {**script.planned["conf_1"], **changed}
        script.emit("confirmation", script.confirmations["conf_1"])
        it.page.get_by_text("Clashes with 1 taken.").wait_for()
        it.page.get_by_text("This has changed since it was first shown.").wait_for()
        it.page.get_by_text("A newer request has replaced this one.").wait_for()
        it.page.mouse.click(box["x"] + 5, approve.bounding_box()["y"] + 5)
        assert script.approvals == []
        it.page.clock.run_for(1000)
        it.shoot("confirmation-changed")
        assert obstacles(it.page) == []
        approve.click()
        wait_until(it, lambda: script.approvals == ["approve conf_1"])
    assert script.tokens == ["t-2"]


def test_a_request_that_was_put_aside_is_looked_at_again_when_it_is_reviewed(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    with opened(browser, scripted.address) as it:
        ask(it.page)
        it.page.get_by_role("dialog").wait_for()
        it.page.keyboard.press("Escape")
        script.confirmations["conf_1"] = {
            **script.planned["conf_1"],
            "preview": f"{PREVIEW}\nClashes with 1 taken.",
            "token": "t-2",
        }
        it.page.get_by_role("button", name="Review", exact=True).click()
        it.page.get_by_text("Clashes with 1 taken.").wait_for()
        it.page.get_by_role("dialog").get_by_role("button", name="Approve").click()
        wait_until(it, lambda: script.approvals == ["approve conf_1"])
    assert (script.looks, script.tokens) == (["conf_1"], ["t-2"])
