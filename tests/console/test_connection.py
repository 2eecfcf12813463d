"""The key, the session of a tab, and a stream that breaks off."""

import json
from typing import Any

from tests.console.browser import opened
from tests.console.samples import ANSWER, answered_with_citations
from tests.console.scripted_server import KEY, Script, ScriptedServer


def ask(page: Any, text: str) -> None:
    page.fill("#message", text)
    page.press("#message", "Enter")


def test_the_key_leaves_the_address_at_once_and_stays_in_the_tab(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    with opened(browser, scripted.address) as it:
        it.page.locator(".welcome").wait_for()
        assert it.page.evaluate("location.href") == f"{scripted.origin}/"
        assert it.page.evaluate("history.length") <= 2
        assert it.page.evaluate("JSON.stringify(localStorage)") == "{}"
        it.page.reload()
        it.page.locator(".welcome").wait_for()
    assert not [path for _, path in script.requests if KEY in path]
    assert [path for method, path in script.requests if (method, path) == ("POST", "/api/sessions")] == [
        "/api/sessions"
    ]


def test_without_a_key_a_form_asks_for_it_and_says_when_it_is_wrong(browser: Any, scripted: ScriptedServer) -> None:
    with opened(browser, scripted.origin) as it:
        field = it.page.get_by_label("Key")
        field.fill("wrong")
        it.page.get_by_role("button", name="Enter").click()
        it.page.get_by_text("The server does not know this key.").wait_for()
        it.page.get_by_label("Key").fill(KEY)
        it.page.keyboard.press("Enter")
        it.page.locator(".welcome").wait_for()


def test_a_stream_that_breaks_in_the_middle_of_an_answer_is_resumed_without_loss_or_doubling(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["go"] = answered_with_citations()
    script.pause = 0.05
    with opened(browser, scripted.address) as it:
        ask(it.page, "go")
        it.page.locator(".parts .prose").wait_for()
        script.break_streams(refuse=1)
        it.page.get_by_text("Reconnecting in").wait_for()
        it.page.locator(".cited h3").wait_for()
        it.page.locator(".connection[data-state=live]").wait_for()
        shown = it.page.locator(".parts").inner_text()
        assert it.page.locator(".card").count() == 2
    assert shown.count("is a tool runtime") == 1
    assert "Every call passes the gates" in shown
    resumed = [int(one) for one in script.last_event_ids[1:] if one is not None]
    assert resumed
    assert all(number > 0 for number in resumed)


def test_an_answer_that_is_begun_anew_after_a_restart_replaces_the_broken_one(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["go"] = answered_with_citations()[:9]
    with opened(browser, scripted.address) as it:
        ask(it.page, "go")
        it.page.locator(".parts .prose", has_text="is a tool runtime").wait_for()
        message = it.page.evaluate("import('/console/conversation.js').then((one) => one.conversation.items[0].id)")
        script.break_streams()
        script.emit("turn", {"turn": 1, "messageId": message, "attempt": 2})
        for kind, data in answered_with_citations():
            script.emit(kind, data)
        it.page.locator(".cited h3").wait_for()
        assert it.page.locator(".card").count() == 2
        assert it.page.locator(".parts").inner_text().count("is a tool runtime") == 1
        # After a restart the server may tell a finished turn once more.
        for kind, data in [("turn", {"turn": 1, "messageId": message}), *answered_with_citations()]:
            script.emit(kind, {**data, "rebuilt": True})
        script.emit("text", {"text": "Late word.", "turn": 1})
        it.page.get_by_text("Late word.").wait_for()
        assert it.page.locator(".log").inner_text().count("is a tool runtime") == 1


def test_a_reload_shows_the_conversation_as_it_was(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    card = {
        "type": "tool_finished",
        "callId": "c1",
        "toolId": "kb_search",
        "args": {"query": "x"},
        "ok": True,
        "meta": {"duration": 9},
    }
    script.messages = [
        {"role": "user", "text": "What is it?", "turn": 1, "messageId": "m1", "state": "done"},
        {
            "role": "assistant",
            "text": ANSWER,
            "turn": 1,
            "toolCards": [card],
            "citations": [{"id": "a", "title": "A", "number": 1}],
            "state": "done",
        },
    ]
    script.turn = 1
    with opened(browser, scripted.address) as it:
        it.page.get_by_text("What is it?").wait_for()
        assert it.page.locator(".card").count() == 1
        assert it.page.get_by_role("button", name="Source 1: A").count() == 1
        assert it.page.locator(".bars li").count() == 1


def test_the_parser_of_streams_does_not_mind_where_the_pieces_end(browser: Any, scripted: ScriptedServer) -> None:
    first = ': c\r\n\r\nid: 1\nevent: text\ndata: {"text":"a\\nb"}\n\n'
    stream = first + 'id:2\rdata: {"x":1}\r\rdata: not json\n\nevent: done\ndata: {}\n\n'
    with opened(browser, scripted.address) as it:
        whole, letters = it.page.evaluate(
            """async (text) => {
              const { EventParser } = await import("/console/stream.js");
              const read = (pieces) => {
                const got = [];
                const parser = new EventParser((one) => got.push(one));
                for (const one of pieces) parser.feed(one);
                return JSON.stringify(got);
              };
              return [read([text]), read([...text])];
            }""",
            stream,
        )
    assert json.loads(whole) == json.loads(letters)
    assert [event["type"] for event in json.loads(whole)] == ["text", "message", "done"]
    assert json.loads(whole)[0] == {"type": "text", "id": "1", "data": {"text": "a\nb"}}


def test_a_message_that_could_not_be_sent_says_so_and_is_not_lost(browser: Any, scripted: ScriptedServer) -> None:
    with opened(browser, scripted.address) as it:
        it.page.locator(".welcome").wait_for()
        it.page.route(
            "**/messages", lambda route: route.fulfill(status=503, body='{"error": {"message": "The store is away."}}')
        )
        ask(it.page, "remember me")
        it.page.get_by_text("Not sent: The store is away.").wait_for()
        assert it.page.input_value("#message") == "remember me"
        it.page.unroute("**/messages")
        it.page.press("#message", "Enter")
        it.page.locator(".prose", has_text="Yes.").wait_for()


def test_a_message_whose_first_attempt_was_lost_is_said_once(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    attempts: list[Any] = []

    def lose_the_first(route: Any) -> None:
        attempts.append(route.request.post_data_json["id"])
        if len(attempts) == 1:
            route.abort()
        else:
            route.continue_()

    with opened(browser, scripted.address) as it:
        it.page.locator(".welcome").wait_for()
        it.page.route("**/messages", lose_the_first)
        ask(it.page, "once")
        it.page.locator(".prose", has_text="Yes.").wait_for()
        assert it.page.locator(".by-user").count() == 1
    assert len(attempts) == 2
    assert attempts[0] == attempts[1]
    assert script.said == ["once"]


def test_an_answer_can_be_stopped(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    script.answers["go"] = [("tool_started", {"callId": "c1", "toolId": "kb_search", "args": {}})]
    with opened(browser, scripted.address) as it:
        ask(it.page, "go")
        it.page.locator(".card[data-state=running]").wait_for()
        it.page.get_by_role("button", name="Stop").click()
        script.emit("done", {"text": "", "citations": [], "state": "cancelled"})
        it.page.get_by_text("Stopped.").wait_for()
        it.page.get_by_role("button", name="Send").wait_for()
        it.page.locator(".card").get_by_text("its result follows").wait_for()  # what it came to is not made up
        finished = {"callId": "c1", "toolId": "kb_search", "ok": True, "meta": {"duration": 5.0}, "late": True}
        script.emit("tool_finished", finished)
        it.page.locator(".card[data-state=running]").wait_for(state="detached")
    assert ("POST", "/api/sessions/s-1/cancel") in script.requests


def test_what_was_said_in_another_tab_and_what_was_missed_is_fetched(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    with opened(browser, scripted.address) as it:
        it.page.locator(".connection[data-state=live]").wait_for()
        script.messages = [{"role": "user", "text": "From elsewhere", "turn": 1, "messageId": "m9", "state": "running"}]
        script.emit("turn", {"turn": 1, "messageId": "m9"})
        it.page.get_by_text("From elsewhere").wait_for()
        script.messages[0]["text"] = "And this was missed"
        script.emit("resync", {"lastEventId": 1})
        it.page.get_by_text("And this was missed").wait_for()


def test_an_image_of_this_host_is_asked_for_with_the_key(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.answers["go"] = [
        ("message", {"type": "image", "url": "/images/img_1.png", "caption": "A chart", "engine": "placeholder-card"}),
        ("done", {"text": "Here.", "citations": []}),
    ]
    with opened(browser, scripted.address) as it:
        ask(it.page, "go")
        it.page.get_by_role("img", name="A chart").wait_for()
        it.page.wait_for_function("() => document.querySelector('canvas').width === 3")
        it.page.get_by_text("A placeholder: no image model has drawn this.").wait_for()
