"""Markup, scripts and addresses from tools, models, guides and logs: they are shown as text, and nothing of them runs."""

from typing import Any

from tests.console.browser import Opened, opened
from tests.console.samples import EVERY_KIND, measured, offer
from tests.console.scripted_server import Script, ScriptedServer

EVIL = "<img src=x onerror=alert(1)><script>alert(2)</script><svg onload=alert(3)>"
JAVASCRIPT = "javascript:alert(4)"
MARKDOWN = f"""# Title {EVIL}

{EVIL}

[press]({JAVASCRIPT}) [data](data:text/html,<script>alert(5)</script>) [good](https://example.com/x) <{JAVASCRIPT}> {JAVASCRIPT}

| a | b |
| --- | --- |
| {EVIL} | `{EVIL}` |

- **{EVIL}**
> {EVIL}

```html
{EVIL}
```
"""


def harmless(it: Opened) -> None:
    """Nothing of the text became an element, and no link leads anywhere but to the web or within the page."""
    assert it.page.locator("main script, main img, main svg[onload], dialog script, dialog img").count() == 0
    ways = it.page.evaluate(
        "[...document.querySelectorAll('a[href]')].map((one) => [one.getAttribute('href'), one.target, one.rel])"
    )
    for way, target, rel in ways:
        assert way.startswith(("http://", "https://", "#")), way
        assert target != "_blank" or "noopener" in rel, way
    assert (
        it.page.evaluate("document.querySelectorAll('[onerror], [onload], [onclick], [style*=expression]').length") == 0
    )


def test_what_models_and_tools_say_stays_text(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    error = {"type": EVIL, "message": EVIL, "suggestion": EVIL, "details": [{"pointer": EVIL, "message": EVIL}]}
    cited = [
        {"number": 1, "id": EVIL, "title": EVIL, "url": JAVASCRIPT},
        {"number": 2, "id": "b", "title": "B", "url": "//evil.example/x"},
    ]
    meta = {"duration": 1, "clamped": [EVIL], "budget": {EVIL: 3, "retrieval": 2}}
    script.answers["go"] = [
        ("tool_started", {"callId": "c1", "toolId": EVIL, "args": {EVIL: EVIL, "list": [EVIL], "deep": {"x": EVIL}}}),
        ("progress", {"callId": "c1", "text": EVIL}),
        (
            "tool_finished",
            {"callId": "c1", "toolId": EVIL, "ok": True, "data": {"x": EVIL}, "meta": meta, "citations": cited},
        ),
        ("tool_started", {"callId": "c2", "toolId": "two", "args": EVIL}),
        ("tool_refused", {"callId": "c2", "toolId": "two", "ok": False, "gate": EVIL, "error": error, "meta": {}}),
        ("message", {"type": "image", "url": JAVASCRIPT, "caption": EVIL}),
        ("message", {"type": "timeout", "farewellMessage": EVIL, "timeoutUntil": EVIL}),
        ("message", {"type": EVIL, "text": EVIL}),
        ("text", {"text": MARKDOWN + "[1] [2]"}),
        ("error", {"message": EVIL}),
        ("done", {"text": MARKDOWN + "[1] [2]", "citations": cited}),
    ]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", f"go {EVIL}")
        it.page.fill("#message", "go")
        it.page.press("#message", "Enter")
        it.page.locator(".cited h3").wait_for()
        for card in it.page.locator(".card summary").all():
            card.click()
        harmless(it)
        assert it.page.locator(".prose table td").first.inner_text() == EVIL
        assert it.page.locator(".card").first.inner_text().count("<script>") >= 3
        assert it.page.get_by_role("link", name="good").get_attribute("href") == "https://example.com/x"
        script.tries["kb_get"] = lambda args: {
            "ok": True,
            "data": {"records": [{"id": EVIL, "type": EVIL, "full_text": MARKDOWN}]},
        }
        it.page.locator(".cited .source").first.click()
        it.page.locator("dialog .source-body h3, dialog .source-body table").first.wait_for()
        harmless(it)


def test_what_a_confirmation_shows_stays_text(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    hidden = {"pay\u202eto": "bob\u202e\u2066evil", "deep": {"x": "a\u200bb\u0000c"}, "list": ["\u2069z"]}
    blank = {"filler\u3164": "a\u2800b\u034fc\ufe0f", "spaces": "a\u00a0b\u3000c", "tag": "\U000e0041", "own": "\ue000"}
    preview = EVIL + "\n[press](javascript:alert(6)) pay\u3164\u202eeve"
    script.hold("conf_1", EVIL, {EVIL: EVIL, "to": [EVIL], **hidden, **blank}, preview)
    script.answers["go"] = [("confirmation", {"id": "conf_1"})]
    with opened(browser, scripted.address) as it:
        it.page.fill("#message", "go")
        it.page.press("#message", "Enter")
        it.page.get_by_role("dialog").wait_for()
        it.page.get_by_text("The exact arguments").click()
        assert it.page.locator(".preview").inner_text().startswith(EVIL)
        exact = it.page.locator("dialog .facts").inner_text()
        for written in ("pay\\u{202e}to", "bob\\u{202e}\\u{2066}evil", "a\\u{200b}b\\u0000c", "\\u{2069}z"):
            assert written in exact
        for written in (
            "filler\\u{3164}",
            "a\\u{2800}b\\u{34f}c\\u{fe0f}",
            "a\\u{a0}b\\u{3000}c",
            "\\u{e0041}",
            "\\u{e000}",
        ):
            assert written in exact
        assert "pay\\u{3164}\\u{202e}eve" in it.page.locator(".preview").inner_text()
        harmless(it)


def test_what_guides_logs_and_numbers_say_stays_text(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    schema = {
        **EVERY_KIND,
        "properties": {EVIL: {"type": "string", "description": EVIL}, "pick": {"enum": [EVIL]}},
        "required": [EVIL],
    }
    offer(
        script, EVIL, guide=MARKDOWN, parameters=schema, description=EVIL, summary=EVIL, switchedOff=EVIL, category=EVIL
    )
    script.audit = [
        {
            "event": EVIL,
            "ts": EVIL,
            "toolId": EVIL,
            "callId": EVIL,
            "ok": False,
            "errorType": EVIL,
            "gate": EVIL,
            "args": {"x": EVIL},
        }
    ]
    script.why = EVIL
    script.unknown = [{"key": EVIL, "tool": EVIL, "args": {"x": EVIL}, "sessionId": EVIL}]
    script.metrics = measured(EVIL)
    with opened(browser, scripted.address) as it:
        page = it.page
        page.locator("[data-place=tools]").click()
        page.locator(".tool-entry").click()
        page.locator(".guide table").wait_for()
        harmless(it)
        page.locator("[data-place=audit]").click()
        page.locator(".audit-line summary").click()
        page.get_by_role("button", name="Why was this refused?").click()
        page.locator(".why", has_text="<script>").wait_for()
        harmless(it)
        page.locator("[data-place=metrics]").click()
        page.locator(".hbar").first.wait_for()
        harmless(it)
        page.locator("[data-place=operate]").click()
        page.locator(".unknown").wait_for()
        page.locator(".switch").first.wait_for()
        harmless(it)


def test_markdown_gives_the_elements_that_it_describes(browser: Any, scripted: ScriptedServer) -> None:
    text = (
        "# One\n\ntwo *three* **four** `five` [six](/seven) https://eight.example/9.\n\n1. ten\n2. eleven\n   - twelve\n\n"
        "> thirteen\n\n~~~\n<b>\n~~~\n\n---\n\n* a\n* b\n\nsnake_case_name and 2 * 3 * 4 [7] `` ` ``"
    )
    with opened(browser, scripted.address) as it:
        made = it.page.evaluate(RENDER, text)
    assert made == (
        "<h3>One</h3><p>two <em>three</em> <strong>four</strong> <code>five</code> "
        f'<a href="{scripted.origin}/seven" target="_blank" rel="noopener noreferrer nofollow">six</a> '
        '<a href="https://eight.example/9" target="_blank" rel="noopener noreferrer nofollow">https://eight.example/9</a>.</p>'
        "<ol><li>ten</li><li>eleven<ul><li>twelve</li></ul></li></ol><blockquote><p>thirteen</p></blockquote>"
        '<pre class="json" tabindex="0" role="group" aria-label="code"><code>&lt;b&gt;</code></pre><hr>'
        "<ul><li>a</li><li>b</li></ul><p>snake_case_name and 2 * 3 * 4 [7] <code> ` </code></p>"
    )


def test_markdown_ends_on_texts_that_were_made_to_keep_it_busy(browser: Any, scripted: ScriptedServer) -> None:
    texts = [
        "`" * 20_000,
        "**a" * 10_000,
        "[" * 20_000,
        "> " * 5_000 + "x",
        "- " * 5_000 + "x",
        "| " * 5_000 + "\n|-|",
        "_a" * 10_000,
        "```\n" * 2_000,
    ]
    with opened(browser, scripted.address) as it:
        for text in texts:
            assert isinstance(it.page.evaluate(RENDER, text), str)


RENDER = """async (text) => {
  const { markdown } = await import("/console/markdown.js");
  const holder = document.createElement("div");
  holder.append(...markdown(text));
  return holder.innerHTML;
}"""
