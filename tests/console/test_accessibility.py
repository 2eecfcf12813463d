"""Whether everybody can use it: names, labels, contrast, order, keyboard, small windows, less motion."""

from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, Opened, opened
from tests.console.samples import answered_with_citations, held, measured, offer
from tests.console.scripted_server import Script, ScriptedServer
from tests.console.test_operator import LINES

SMALL = {"width": 320, "height": 640}
LOOKS = [
    pytest.param(WIDE, "light", id="wide-light"),
    pytest.param(WIDE, "dark", id="wide-dark"),
    pytest.param(NARROW, "light", id="narrow-light"),
    pytest.param(SMALL, "dark", id="small-dark"),
]


def furnish(script: Script) -> None:
    """Something to see in every view."""
    script.answers["go"] = answered_with_citations()
    script.answers["book"] = held(script)
    offer(script, "demo")
    offer(
        script,
        "a_tool_with_a_rather_long_name_that_nobody_would_choose",
        switchedOff="being mended",
        sideEffects="writes",
        requiresConfirmation=True,
    )
    script.audit = list(LINES)
    script.unknown = [
        {"key": "0" * 64, "tool": "calendar_create_event", "sessionId": "s-1", "turn": 2, "args": {"title": "x"}}
    ]
    script.metrics = measured()
    error = {
        "type": "VALIDATION",
        "message": "The arguments do not fit.",
        "details": [{"pointer": "/title", "message": "It is too short."}],
    }
    script.tries["demo"] = lambda args: {"ok": False, "error": error, "intents": [], "meta": {"duration": 1}}
    script.tries["kb_get"] = lambda args: {
        "ok": True,
        "data": {
            "records": [{"id": "doc:handrail", "full_text": "# Handrail\n\nIt *is* a [runtime](https://example.com)."}]
        },
    }


def say(it: Opened, text: str) -> None:
    it.page.fill("#message", text)
    it.page.press("#message", "Enter")


def visit(it: Opened) -> Any:
    """Every state of every view, one after the other; gives its name."""
    page = it.page
    page.locator(".welcome").wait_for()
    yield "welcome"
    say(it, "go")
    page.locator(".cited h3").wait_for()
    page.locator(".card summary").first.click()
    yield "answer"
    page.locator(".mark").first.click()
    page.locator(".source-body p").first.wait_for()
    yield "source"
    page.keyboard.press("Escape")
    # An open dialog makes the rest of the page inert: what is typed before it is gone reaches nobody.
    page.get_by_role("dialog").wait_for(state="hidden")
    say(it, "book")
    page.get_by_role("dialog").wait_for()
    page.locator(".exact summary").first.click()
    yield "confirmation"
    page.keyboard.press("Escape")
    yield "held"
    page.evaluate("location.hash = '#/tools'")
    page.locator(".tool-entry").first.wait_for()
    yield "tools"
    page.evaluate("location.hash = '#/tools/demo'")
    page.get_by_role("button", name="Run through the pipeline").click()
    page.locator("[aria-invalid]").first.wait_for()
    yield "tool"
    page.evaluate("location.hash = '#/metrics'")
    page.locator(".hbar").first.wait_for()
    yield "metrics"
    page.evaluate("location.hash = '#/audit'")
    page.locator(".audit-line summary").nth(1).click()
    page.get_by_role("button", name="Why was this refused?").click()
    page.locator(".why:not(:empty)").wait_for()
    yield "audit"
    page.evaluate("location.hash = '#/operate'")
    page.locator(".unknown").wait_for()
    page.locator(".switch").first.click()
    yield "operate"


@pytest.mark.parametrize(("viewport", "scheme"), LOOKS)
def test_no_view_keeps_anybody_out(
    browser: Any, scripted: ScriptedServer, script: Script, viewport: dict[str, int], scheme: str
) -> None:
    furnish(script)
    found = {}
    with opened(browser, scripted.address, viewport=viewport, scheme=scheme) as it:
        for name in visit(it):
            found[name] = obstacles(it.page)
            it.shoot(f"{viewport['width']}-{scheme}-{name}")
    assert {name: what for name, what in found.items() if what} == {}


def test_the_finder_finds(browser: Any, scripted: ScriptedServer) -> None:
    bad = """() => {
      const main = document.querySelector("main");
      main.replaceChildren();
      const add = (tag, props = {}, text = "") => {
        const one = Object.assign(document.createElement(tag), props, { textContent: text });
        main.append(one);
        return one;
      };
      add("h3", {}, "Too deep");
      add("input", { type: "text", placeholder: "no label" });
      add("button");
      add("p", { id: "twice" }, "x").style.color = "#bbb";
      add("p", { id: "twice" }, "x");
      add("div", {}, "wide").style.width = "4000px";
      add("img", { src: "/console/icon.svg" });
    }"""
    with opened(browser, scripted.address) as it:
        it.page.locator(".welcome").wait_for()
        it.page.evaluate(bad)
        found = " / ".join(obstacles(it.page))
    for part in (
        "first heading is H3",
        "no label",
        "no name",
        "2 elements have the id twice",
        "contrast 1.",
        "wide in a",
        "no alternative text",
    ):
        assert part in found


def test_the_whole_round_goes_by_keyboard_and_the_focus_is_always_seen(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    furnish(script)
    with opened(browser, scripted.address) as it:
        page = it.page
        page.locator(".welcome").wait_for()
        assert page.evaluate("document.activeElement.id") == "message"
        page.keyboard.type("book")
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        press_until(it, "Approve")
        page.locator(".confirm .primary:not([aria-disabled])").wait_for()  # nobody has read it sooner
        page.keyboard.press("Enter")
        page.get_by_text("was carried out").first.wait_for()
        press_until(it, "Skip to the content")
        press_until(it, "Tools")
        page.keyboard.press("Enter")
        page.locator(".tool-entry").first.wait_for()
        press_until(it, "demo")
        page.keyboard.press("Enter")
        page.locator(".try").wait_for()
        press_until(it, "title")
        page.keyboard.type("By keyboard")
        press_until(it, "Run through the pipeline")
        page.keyboard.press("Enter")
        page.locator("[aria-invalid]").first.wait_for()
    assert script.carried_out == 1


FOCUS = """() => {
  const node = document.activeElement;
  if (!node || node === document.body) return ["", true];
  const label = node.labels?.[0];
  const words = label ? (label.firstElementChild ?? label) : (node.querySelector("code") ?? node);
  const around = node.closest(".composer") ?? node;
  const style = getComputedStyle(around);
  const ringed = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  const shaded = around !== node && style.boxShadow !== "none";
  const name = (label ? null : node.getAttribute("aria-label")) ?? words.textContent;
  return [name.trim(), ringed || shaded || node.tagName === "MAIN"];
}"""


def press_until(it: Opened, name: str) -> None:
    """Tab on until the element of this name has the focus; each on the way shows that it has it."""
    for _ in range(80):
        it.page.keyboard.press("Tab")
        found, seen = it.page.evaluate(FOCUS)
        assert seen, f"the focus on {found!r} cannot be seen"
        if found == name:
            return
    raise AssertionError(f"{name!r} cannot be reached with the Tab key")


def test_the_theme_can_be_chosen_and_is_kept(browser: Any, scripted: ScriptedServer) -> None:
    colour = "getComputedStyle(document.body).backgroundColor"
    with opened(browser, scripted.address, scheme="dark") as it:
        it.page.locator(".welcome").wait_for()
        dark = it.page.evaluate(colour)
        it.page.get_by_role("button", name="Theme: as the system has it").click()
        light = it.page.evaluate(colour)
        assert light != dark
        it.page.reload()
        it.page.locator(".welcome").wait_for()
        assert it.page.evaluate(colour) == light
        it.page.get_by_role("button", name="Theme: light").click()
        assert it.page.evaluate(colour) == dark


@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_for_those_who_asked_for_less_motion(
    browser: Any, scripted: ScriptedServer, script: Script, motion: str
) -> None:
    script.answers["go"] = [("tool_started", {"callId": "c1", "toolId": "kb_search", "args": {}})]
    with opened(browser, scripted.address, motion=motion) as it:
        say(it, "go")
        it.page.locator(".card[data-state=running]").wait_for()
        assert bool(it.page.evaluate("document.getAnimations().length")) is (motion == "no-preference")


def test_what_happens_is_told_to_screen_readers(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    furnish(script)
    with opened(browser, scripted.address) as it:
        say(it, "go")
        it.page.locator("#announce", has_text="Answer: **Handrail** is a tool runtime").wait_for(state="attached")
        assert it.page.get_by_role("log", name="Conversation").count() == 1
        assert it.page.get_by_role("meter", name="Look-ups left").get_attribute("aria-valuetext") == "3 of 5 left"
        steps = it.page.locator(".bars li").all_inner_texts()
        assert any("kb_search" in step and "done" in step and "42 ms" in step for step in steps)
