"""Whatever a service does, the model and the person get one sentence, by the pipeline and behind an approval."""

import pytest
from tests.services.calendar.approved_calls import (
    CANCEL,
    CREATE,
    UPDATE,
    built,
    open_google_world,
    open_host,
    open_world,
)
from tests.services.calendar.bad_proxy import broken_body, closed_before, html, status
from tests.services.calendar.test_google_faults import refusal
from tests.services.sentences import is_one_sentence, told

from handrail.contract.errors import ErrorType

BOOKING = {
    "title": "Design review",
    "start_time": "2026-01-13T14:00:00+01:00",
    "end_time": "2026-01-13T15:00:00+01:00",
    "attendees": ["ana@example.com", "ivo@example.com"],
}
LATER = {"start_time": "2026-01-13T16:00:00+01:00"}
LONG_REFUSAL = (
    "550-5.1.1 There is no such account. Please try it with\r\n550 5.1.1 another one. Learn more at example.com"
)


@pytest.fixture(scope="session")
def artifact(tmp_path_factory):
    return built(tmp_path_factory.mktemp("sentences"))


def dav(method, *faults):
    return lambda world: world.dav_proxy.plan(method, *faults)


def zoom(method, *faults):
    return lambda world: world.zoom_proxy.plan(method, *faults)


def mail(*answers, **refused):
    def plan(world):
        world.mail.answers = list(answers)
        world.mail.refused = {f"{name}@example.com": text for name, text in refused.items()}

    return plan


def both(*plans):
    def plan(world):
        for one in plans:
            one(world)

    return plan


FULL = dav("PUT", status(507))
BOOKINGS = {
    "wrong password": (dav("PUT", status(401)), "sign-in"),
    "denied": (dav("PUT", status(403)), "denies"),
    "too large": (dav("PUT", status(413)), "of this size"),
    "busy": (dav("PUT", status(429, Retry_After="3")), "too often"),
    "no room": (FULL, "no room"),
    "failed": (dav("PUT", status(500)), "failed (500)"),
    "not available": (dav("PUT", status(503)), "not available"),
    "html": (dav("PUT", html, html), "is no calendar"),
    "gone": (dav("PUT", closed_before, closed_before), "failed unexpectedly"),
    "zoom: sign-in": (zoom("POST", status(400)), "sign-in"),
    "zoom: scopes": (zoom("POST", None, status(400, b'{"code": 4711}')), "right scopes"),
    "zoom: too often": (zoom("POST", None, status(429)), "too often"),
    "zoom: broken off": (zoom("POST", None, broken_body(429)), "too often"),
    "zoom: refused": (
        zoom("POST", None, status(400, b'{"code": 300, "message": "No. Never."}')),
        "refused the meeting",
    ),
    "zoom: failed": (zoom("POST", None, status(500)), "failed unexpectedly"),
    "zoom: not listed": (zoom("GET", status(503)), "failed (503)"),
    "zoom: left behind": (both(FULL, zoom("DELETE", status(500), status(500))), "could not be removed, so remove it"),
    "mail: refused": (mail("554 Looks like spam. Go away."), "554 Looks like spam"),
    "mail: later": (mail("451 Try later."), "451 Try later"),
    "mail: nobody": (mail(ana=LONG_REFUSAL, ivo=LONG_REFUSAL), "550 5.1.1 There is no such account"),
    "mail: the event stays": (
        both(mail("554 No."), dav("DELETE", status(500), status(500))),
        "but nobody was invited, so remove it by hand",
    ),
    "mail: the meeting stays": (
        both(mail("554 No."), zoom("DELETE", status(500), status(500))),
        "could not be removed, so remove it by hand",
    ),
}


@pytest.mark.parametrize("name", BOOKINGS)
async def test_a_booking_that_fails_is_told_in_one_sentence(name, radicale_server, artifact, tmp_path):
    plan, says = BOOKINGS[name]
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path) as host:
            request = await host.held(CREATE, BOOKING)
            plan(world)
            answer = await host.runtime.approve(request["id"], token=request["token"])
            assert says in told(answer)
            if answer.error.type is ErrorType.INTERNAL:
                again = told(await host.runtime.approve(request["id"], token=request["token"]))
                assert again.startswith('It is not known whether "calendar_create_event" has run')


@pytest.mark.parametrize("starttls", [True, False], ids=["encryption", "address"])
async def test_a_mail_server_that_cannot_be_used_is_told_in_one_sentence(starttls, radicale_server, artifact, tmp_path):
    with open_world(radicale_server) as world:
        world.settings |= {"mail_security": "starttls"} if starttls else {"mail_port": 9}
        async with open_host(world, artifact, tmp_path) as host:
            request = await host.held(CREATE, BOOKING)
            told(await host.runtime.approve(request["id"], token=request["token"]))


@pytest.mark.parametrize("tool", [UPDATE, CANCEL])
@pytest.mark.parametrize("fault", [status(403), status(500), status(507), html], ids=["403", "500", "507", "html"])
async def test_a_change_that_fails_is_told_in_one_sentence(tool, fault, radicale_server, artifact, tmp_path):
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path) as host:
            _, made = await host.approved(CREATE, BOOKING)
            args = {"event_id": made["event_id"], **(LATER if tool == UPDATE else {})}
            request = await host.held(tool, args)
            world.dav_proxy.plan("PUT", fault, fault)
            told(await host.runtime.approve(request["id"], token=request["token"]))
            request = await host.held(tool, {**args, "etag": "stale"})
            assert "has changed since" in told(await host.runtime.approve(request["id"], token=request["token"]))
            request = await host.held(tool, {**args, "event_id": "primary:nothing"})
            assert "is not in the calendar" in told(await host.runtime.approve(request["id"], token=request["token"]))


async def test_what_could_not_be_done_beside_a_change_is_a_sentence_each(radicale_server, artifact, tmp_path):
    with open_world(radicale_server) as world:
        async with open_host(world, artifact, tmp_path) as host:
            _, made = await host.approved(CREATE, BOOKING)
            world.mail.refused = {"ivo@example.com": LONG_REFUSAL}
            world.zoom_proxy.plan("PATCH", status(500), status(500))
            _, moved = await host.approved(UPDATE, {"event_id": made["event_id"], **LATER})
            world.mail.answers = ["554 No. Not now."]
            world.zoom_proxy.plan("DELETE", status(500), status(500))
            _, gone = await host.approved(CANCEL, {"event_id": made["event_id"]})
            for found in (moved, gone):
                assert len(found["warnings"]) == 2
                for text in found["warnings"]:
                    assert is_one_sentence(text.removesuffix(".") + "."), text


GOOGLE = {
    "revoked": refusal(401, "authError"),
    "another scope": refusal(403, "insufficientPermissions"),
    "not shared": refusal(403, "forbidden"),
    "rate": refusal(429, "rateLimitExceeded", Retry_After="11"),
    "full": refusal(403, "calendarUsageLimitsExceeded"),
    "failed": refusal(500, "backendError"),
    "away": refusal(503, "backendError"),
    "bad request": refusal(400, "invalid"),
    "html": html,
}


@pytest.mark.parametrize("name", GOOGLE)
async def test_a_booking_that_google_does_not_take_is_told_in_one_sentence(name, artifact, tmp_path):
    with open_google_world(tmp_path) as world:
        world.settings["meetings"] = "none"
        async with open_host(world, artifact, tmp_path) as host:
            request = await host.held(CREATE, BOOKING)
            world.proxies[0].plan("POST", GOOGLE[name], GOOGLE[name])
            told(await host.runtime.approve(request["id"], token=request["token"]))
