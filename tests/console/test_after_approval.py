"""What a turn shows when it continues after an approval: its costs are added up, and what waited is marked as settled."""

from typing import Any

from tests.console.browser import opened
from tests.console.samples import held
from tests.console.scripted_server import Script, ScriptedServer

DONE = "Done. It is in your calendar."


def approved(it: Any, script: Script) -> None:
    first = held(script)
    told = {"rounds": 2, "usage": {"inputTokens": 1000, "outputTokens": 50}}
    script.answers["book"] = [*first[:-1], ("usage", told["usage"]), ("done", {**first[-1][1], **told})]
    it.page.fill("#message", "book")
    it.page.press("#message", "Enter")
    it.page.get_by_role("button", name="Approve").click()
    it.page.get_by_text("was carried out").first.wait_for()
    usage = {"inputTokens": 200, "outputTokens": 7}
    script.emit("text", {"text": DONE})
    script.emit("usage", usage)
    script.emit("done", {"text": DONE, "late": True, "rounds": 1, "usage": usage})
    it.page.locator(".prose", has_text=DONE).wait_for()


def test_what_an_approval_costs_is_added_to_what_the_turn_has_cost(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    with opened(browser, scripted.address) as it:
        approved(it, script)
        it.page.locator(".costs", has_text="3 rounds · 1,200 tokens in · 57 out").wait_for()


def test_words_that_said_it_waits_are_marked_as_settled_once_it_is(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    with opened(browser, scripted.address) as it:
        approved(it, script)
        settled = it.page.locator(".prose.settled")
        assert settled.count() == 1
        assert settled.inner_text().split("\n\n") == [
            "Said before you approved it:",
            "It is created when you approve it.",
        ]
        assert "settled" not in it.page.locator(".prose", has_text=DONE).get_attribute("class")


def test_what_is_said_after_one_approval_is_not_marked_by_the_next(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["book"] = held(script, "conf_1")
    script.answers["no, at four"] = held(script, "conf_2")
    with opened(browser, scripted.address) as it:
        for words in ("book", "no, at four"):
            it.page.fill("#message", words)
            it.page.press("#message", "Enter")
            it.page.get_by_role("dialog").wait_for()
            it.page.locator(".by-model .status:empty").last.wait_for(state="attached")
            it.page.keyboard.press("Escape")
        for place in (1, 0):  # first the newer one, and then the older as well
            it.page.get_by_role("button", name="Review", exact=True).nth(place).click()
            it.page.get_by_role("button", name="Approve").click()
            it.page.get_by_text("was carried out").first.wait_for()
            if place:
                script.emit("text", {"text": DONE})
                script.emit("done", {"text": DONE, "late": True})
                it.page.locator(".prose", has_text=DONE).wait_for()
        settled = it.page.locator(".prose.settled")
        settled.nth(1).wait_for()
        assert settled.count() == 2
        assert it.page.locator(".prose:not(.settled)").all_inner_texts() == [DONE]


def test_a_call_that_ended_while_the_page_was_loaded_is_shown_as_done_when_its_end_is_told(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    *_, (_, card), (_, words), _ = held(script)
    script.messages = [
        {"role": "user", "text": "book", "turn": 1, "messageId": "m-1", "state": "done"},
        {"role": "assistant", "turn": 1, "messageId": "m-1", "state": "done", "toolCards": [card], **words},
    ]
    with opened(browser, scripted.address) as it:
        it.page.locator(".settled-when", has_text="Said before its time was over:").wait_for()
        done = {"callId": "2:late", "toolId": card["toolId"], "confirmationId": "conf_1", "ok": True, "data": {}}
        script.emit("tool_finished", done)
        script.emit("text", {"text": DONE})
        script.emit("done", {"text": DONE, "late": True})
        it.page.locator(".prose", has_text=DONE).wait_for()
        assert it.page.locator(".card").count() == 1
        assert it.page.locator(".card").get_attribute("data-state") == "done"
        assert it.page.locator(".settled-when").all_inner_texts() == ["Said before you approved it:"]


def test_an_end_that_was_shown_already_is_not_shown_again(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    """The session was read while the end of its last turn was being stored, which is told afterwards."""
    ended = {"turn": 1, "messageId": "m-1", "state": "done"}
    script.messages = [{"role": "user", "text": "book", **ended}, {"role": "assistant", "text": DONE, **ended}]
    script.facts = {"answering": "m-1", "turn": 1}
    with opened(browser, scripted.address) as it:
        it.page.locator(".prose", has_text=DONE).wait_for()
        script.emit("done", {"text": DONE, "messageId": "m-1", "state": "done"})
        it.page.get_by_role("button", name="Send").wait_for()
        assert it.page.locator(".prose", has_text=DONE).count() == 1
