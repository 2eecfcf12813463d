"""What operators see and do, and what others do not."""

from typing import Any

from tests.console.browser import opened
from tests.console.samples import MEETING, counted, measured, offer
from tests.console.scripted_server import Script, ScriptedServer

LINES = [
    {
        "event": "execution",
        "ts": "2026-11-16T04:27:03Z",
        "sessionId": "s-1",
        "callId": "c1",
        "toolId": "kb_search",
        "ok": True,
        "duration": 5,
    },
    {
        "event": "refusal",
        "ts": "2026-11-16T04:27:04Z",
        "sessionId": "s-1",
        "callId": "c2",
        "toolId": "kb_get",
        "ok": False,
        "errorType": "BUDGET_EXCEEDED",
        "gate": "budget",
    },
    {"event": "session_start", "ts": "2026-11-16T04:27:05Z", "sessionId": "s-2", "ok": True},
]


def test_a_key_without_the_role_sees_no_operator_views_but_why(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.is_operator = False
    with opened(browser, f"{scripted.address}&/audit") as it:
        it.page.locator(".welcome").wait_for()
        assert it.page.locator("nav a").all_inner_texts() == ["Chat", "Tools"]
        it.page.get_by_text("need a key with the operator role").wait_for()
    assert [path for _, path in script.requests if path.startswith("/api/audit")] == []


def test_the_audit_can_be_filtered_and_explains_a_refusal(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.audit = list(LINES)
    with opened(browser, f"{scripted.address}&/audit") as it:
        page = it.page
        lines = page.locator(".audit-line")
        lines.first.wait_for()
        assert [one.split("\n")[1] for one in lines.all_inner_texts()] == ["session_start", "refusal", "execution"]
        page.get_by_label("Outcome").select_option("bad")
        assert lines.count() == 1
        lines.first.locator("summary").click()
        page.get_by_role("button", name="Why was this refused?").click()
        page.get_by_text('It was refused by the gate "budget".').wait_for()
        page.get_by_label("Outcome").select_option("")
        page.get_by_label("Tool").fill("kb_search")
        assert lines.count() == 1
        page.get_by_label("Tool").fill("")
        page.get_by_role("button", name="This session").click()
        page.get_by_text("2 lines").wait_for()
    assert any(path.startswith("/api/audit?") and "session=s-1" in path for _, path in script.requests)


def test_an_unknown_outcome_is_settled_with_what_was_found_out(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.unknown = [
        {
            "key": "k/1",
            "tool": "calendar_create_event",
            "sessionId": "s-1",
            "turn": 2,
            "args": MEETING,
            "createdAt": 1_794_800_000_000,
        }
    ]
    with opened(browser, f"{scripted.address}&/operate") as it:
        page = it.page
        page.get_by_label("What you found out").fill("seen in the calendar")
        page.get_by_role("button", name="It took effect").click()
        page.get_by_text("Every outcome is known.").wait_for()
    assert script.settled == [("k/1", {"state": "succeeded", "note": "seen in the calendar"})]


def test_a_tool_is_switched_off_with_a_reason_and_on_again(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    offer(script, "demo")
    with opened(browser, f"{scripted.address}&/operate") as it:
        page = it.page
        switch = page.get_by_role("switch", name="demo")
        switch.click()
        page.get_by_role("textbox", name="Why?").fill("being mended")
        page.keyboard.press("Enter")
        page.locator(".switch-line", has_text="off").wait_for()
        assert switch.get_attribute("aria-checked") == "false"
        page.locator("[data-place=tools]").click()
        page.locator(".tool-entry .badge", has_text="switched off").wait_for()
        page.locator("[data-place=operate]").click()
        page.get_by_role("switch", name="demo").click()
        page.locator(".switch-word", has_text="on").wait_for()
    assert script.switched == [("demo", "being mended"), ("demo", None)]


def test_the_metrics_are_drawn_and_told_as_tables(browser: Any, scripted: ScriptedServer, script: Script) -> None:
    script.metrics = measured()
    with opened(browser, f"{scripted.address}&/metrics") as it:
        page = it.page
        page.get_by_text('Responses of "kb_search" are long.').wait_for()
        assert page.get_by_role("img", name="Latency: kb_search half under 3 ms, 95 of 100 under 40 ms").count() == 1
        page.locator("[data-plot=calls] summary").click()
        assert page.locator("[data-plot=calls] tbody tr").all_inner_texts() == ["kb_search\t12\tVALIDATION 2"]


def test_a_session_shows_how_full_its_model_s_window_is_and_a_full_one_is_warned_of(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.metrics = measured()
    with opened(browser, f"{scripted.address}&/metrics") as it:
        warnings = it.page.get_by_role("list", name="Warnings")
        warnings.get_by_text("A session used 95% of its model's context window, more than 90%.").wait_for()
        rows = it.page.get_by_role("region", name="Open sessions").locator("tbody tr")
        assert [row.split("\t")[::4] for row in rows.all_inner_texts()] == [
            ["s-1", "6,000"],
            ["s-2", "121,000 of 128,000"],
        ]


def test_how_tools_were_used_over_days_stands_below_the_live_numbers(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    script.metrics = measured()
    script.stats = {"tool": [counted(tool="kb_search")], "day": [counted(day="2026-11-17"), counted(day="2026-11-18")]}
    with opened(browser, f"{scripted.address}&/metrics") as it:
        section = it.page.get_by_role("region", name="All processes")
        days = "2026-11-17 40, 10 not ok; 2026-11-18 40, 10 not ok"
        section.get_by_role("img", name=f"Calls by day: {days}").wait_for()
        assert section.locator(".tiles dd").all_inner_texts() == ["80", "8", "12", "4", "50", "4,800"]
        row = section.get_by_role("group", name="Tools", exact=True).locator("tbody tr")
        assert row.inner_text().split("\t")[:5] == ["kb_search", "40", "4", "6", "2"]
        script.stats = {"tool": [], "day": []}
        section.get_by_label("Days").select_option("30 days")
        section.get_by_text("No call is counted since 2026-11-11.").wait_for()
    assert script.stats_since == ["7d", "7d", "30d", "30d"]


def test_on_a_phone_a_line_of_the_audit_has_its_tool_below_in_one_piece(
    browser: Any, scripted: ScriptedServer, script: Script
) -> None:
    facts = {"ts": "2026-11-17T10:01:00Z", "toolId": "calendar_create_event", "callId": "c1", "duration": 42.5}
    script.audit = [{"event": "confirmation_requested", "ok": False, "errorType": "CONFIRMATION_REQUIRED", **facts}]
    with opened(browser, scripted.address, viewport={"width": 360, "height": 800}) as it:
        it.page.locator(".welcome").wait_for()
        it.page.evaluate("location.hash = '#/audit'")
        name = it.page.locator(".audit-line .tool-name")
        name.wait_for()
        kind, tool = it.page.locator(".audit-line .event-name").bounding_box(), name.bounding_box()
        assert tool["y"] >= kind["y"] + kind["height"] / 2
        assert tool["height"] < 1.6 * kind["height"], "on one line"
