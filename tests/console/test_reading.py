"""Where the reader stands in a long conversation: at the newest after a reload, and where they were after another view."""

from typing import Any

import pytest
from tests.console.accessibility import obstacles
from tests.console.browser import NARROW, WIDE, opened
from tests.console.samples import held, offer
from tests.console.scripted_server import Script, ScriptedServer

FROM_THE_END = (
    "(() => { const s = document.querySelector('.scroller'); return s.scrollHeight - s.scrollTop - s.clientHeight; })()"
)
COVERED = """(() => {
  const toast = document.querySelector(".toast").getBoundingClientRect();
  return [...document.querySelectorAll("h1, h2, h3, .rail a, .composer")].filter((node) => {
    const box = node.getBoundingClientRect();
    return node.checkVisibility() && box.width > 2 && box.left < toast.right && toast.left < box.right
      && box.top < toast.bottom && toast.top < box.bottom;
  }).map((node) => node.outerHTML.slice(0, 80));
})()"""
TOP = "document.querySelector('.scroller').scrollTop"


def long_talk(script: Script, turns: int = 30) -> None:
    for turn in range(1, turns + 1):
        script.messages.append({"role": "user", "turn": turn, "messageId": f"m-{turn}", "text": f"Question {turn}"})
        answer = {"role": "assistant", "turn": turn, "text": f"Answer {turn}. " * 12, "state": "done"}
        script.messages.append(answer)
    script.turn = turns


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_long_conversation_opens_at_its_newest_message(
    browser: Any, scripted: ScriptedServer, script: Script, viewport: dict[str, int]
) -> None:
    long_talk(script)
    with opened(browser, scripted.address, viewport=viewport) as it:
        it.page.get_by_text("Question 30").wait_for()
        assert it.page.evaluate(TOP) > 0
        assert it.page.evaluate(FROM_THE_END) < 4
        it.page.reload()
        it.page.get_by_text("Question 30").wait_for()
        assert it.page.evaluate(TOP) > 0
        assert it.page.evaluate(FROM_THE_END) < 4


def test_the_reader_finds_their_place_again_after_another_view(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    long_talk(script)
    with opened(browser, scripted.address) as it:
        it.page.get_by_text("Question 30").wait_for()
        it.page.evaluate("document.querySelector('.scroller').scrollTop = 700")
        it.page.get_by_role("link", name="Tools").click()
        it.page.get_by_role("heading", name="Tools").first.wait_for()
        it.page.get_by_role("link", name="Chat").click()
        it.page.get_by_text("Question 30").wait_for()
        assert it.page.evaluate(TOP) == 700


def test_who_left_at_the_end_comes_back_to_the_end_with_what_was_said_meanwhile(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    long_talk(script)
    script.pause = 0.3
    script.answers["go"] = [("text", {"text": "Late words. " * 200}), ("done", {"text": "Late words. " * 200})]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "go")
        it.page.press("#message", "Enter")
        it.page.get_by_role("link", name="Audit").click()
        it.page.get_by_role("heading", name="Audit").wait_for()
        it.page.wait_for_function("() => document.getElementById('announce').textContent.includes('Late words')")
        it.page.get_by_role("link", name="Chat").click()
        it.page.locator(".scroller").get_by_text("Late words").first.wait_for()
        assert it.page.evaluate(TOP) > 0
        assert it.page.evaluate(FROM_THE_END) < 4


def test_an_empty_conversation_is_read_from_its_beginning_in_the_smallest_window(
    browser: Any, scripted: ScriptedServer
) -> None:
    with opened(browser, scripted.address, viewport={"width": 320, "height": 520}) as it:
        it.page.locator(".idea").last.wait_for()
        assert it.page.evaluate(FROM_THE_END) > 0, "there is more than fits"
        assert it.page.evaluate(TOP) == 0
        it.page.locator("[data-place=tools]").click()
        it.page.locator("[data-place=chat]").click()
        it.page.locator(".idea").last.wait_for()
        assert it.page.evaluate(TOP) == 0


def test_a_long_name_of_a_tool_is_broken_only_between_its_words(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script)
    lines = """() => {
      const [lines, text] = [new Map(), document.createRange()];
      for (const node of document.querySelector(".card .tool-name").childNodes)
        for (let place = 0; place < node.textContent.length; place += 1) {
          text.setStart(node, place);
          text.setEnd(node, place + 1);
          const top = Math.round(text.getBoundingClientRect().top);
          lines.set(top, (lines.get(top) ?? "") + node.textContent[place]);
        }
      return [...lines.values()];
    }"""
    with opened(browser, scripted.address, viewport={"width": 320, "height": 640}) as it:
        it.page.fill("#message", "book")
        it.page.press("#message", "Enter")
        it.page.get_by_role("dialog").wait_for()
        found = it.page.evaluate(lines)
        assert len(found) > 1
        assert "".join(found) == "calendar_create_event"
        assert all(line.endswith("_") for line in found[:-1]), found


def test_a_label_between_two_lists_belongs_to_neither(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    text = "- one\n- two\n  and a half\nNext week:\n- three\n**Later**\n1. four\nfive\n\nThat is all."
    script.answers["list"] = [("text", {"text": text}), ("done", {"text": text})]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "list")
        it.page.press("#message", "Enter")
        it.page.get_by_text("That is all.", exact=True).wait_for()
        parts = "[...document.querySelectorAll('.prose > *')].map((one) => [one.tagName, one.innerText])"
        assert it.page.evaluate(parts) == [
            ["UL", "one\ntwo\nand a half"],
            ["P", "Next week:"],
            ["UL", "three"],
            ["P", "Later"],
            ["OL", "four\nfive"],
            ["P", "That is all."],
        ]


@pytest.mark.parametrize("viewport", [NARROW, {"width": 900, "height": 800}], ids=["narrow", "middle"])
def test_a_notice_covers_no_title_of_any_view(
    browser: Any, scripted: ScriptedServer, script: Script, viewport: dict[str, int]
) -> None:
    offer(script, "demo")
    with opened(browser, scripted.address, viewport=viewport) as it:
        for place in ("operate", "tools", "metrics", "audit", "chat"):
            it.page.locator(f"[data-place={place}]").click()
            it.page.locator(f"main[data-view={place}]").wait_for()
            if place == "operate":
                it.page.get_by_role("switch", name="demo").click()
                it.page.get_by_role("textbox", name="Why?").fill("for a test")
                it.page.keyboard.press("Enter")
            it.page.locator(".toast").wait_for()
            assert it.page.evaluate(COVERED) == [], place
        assert obstacles(it.page) == []
        it.shoot(f"notice-{viewport['width']}")


def test_a_turn_that_failed_says_what_the_server_says(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    words = 'The provider of "openai:x" refused the key; check OPENAI_API_KEY.'
    script.answers["go"] = [
        ("error", {"message": words, "retryable": False}),
        ("done", {"text": "", "state": "failed"}),
    ]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "go")
        it.page.press("#message", "Enter")
        it.page.locator(".status .problem", has_text=words).wait_for()
        said = {"role": "user", "turn": 1, "messageId": "m-1", "text": "go"}
        script.messages = [said, {"role": "assistant", "turn": 1, "state": "failed", "error": {"message": words}}]
        it.page.reload()
        it.page.locator(".status .problem", has_text=words).wait_for()
