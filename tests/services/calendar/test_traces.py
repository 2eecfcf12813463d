"""Requests to outside services continue the trace of the call that they are made for: the header arrives."""

from contextlib import ExitStack
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from tests.services.calendar.backends import caldav_calendar, google_calendar, open_backend
from tests.services.calendar.bad_proxy import BadProxy, bad_proxy
from tests.services.calendar.test_calendar_conformance import draft
from tests.services.calendar.test_zoom import meetings_of
from tests.services.images.test_image_services import ImageService, opened

from handrail.contract.ports import CallFacts
from handrail.observe.tracing import Tracing


async def book_by_caldav(proxy: BadProxy, request: Any, stack: ExitStack, folder: Path) -> None:
    server = request.getfixturevalue("radicale_server")
    calendar = caldav_calendar(server, url=proxy.url, calendars=server.calendars("primary", "team"))
    try:
        await calendar.create(draft())
    finally:
        await calendar.close()


async def book_by_google(proxy: BadProxy, request: Any, stack: ExitStack, folder: Path) -> None:
    calendar = google_calendar(request.getfixturevalue("google"), url=proxy.url)
    try:
        await calendar.create(draft())
    finally:
        await calendar.close()


async def meet_by_zoom(proxy: BadProxy, request: Any, stack: ExitStack, folder: Path) -> None:
    meetings = meetings_of(proxy.url.rstrip("/"))
    calendar = stack.enter_context(open_backend("embedded", folder, request, meetings=meetings))
    await calendar.create(draft(with_meeting=True))


def draw_by(vendor: str) -> Any:
    async def draw(proxy: BadProxy, request: Any, stack: ExitStack, folder: Path) -> None:
        service = request.getfixturevalue("images")
        service.address = proxy.url.rstrip("/")
        images = opened(folder, vendor, service, request.getfixturevalue("monkeypatch"))
        try:
            await images.generate("a fox")
        finally:
            await images.aclose()

    return draw


@pytest.fixture
def images():
    service = ImageService()
    yield service
    service.close()


def call_facts() -> CallFacts:
    return CallFacts(
        tool="calendar_create_event", is_known=True, version="1.0.0", description=None, call_id="c1", session_id="s1",
        turn=1, connection=1, mode="text", provider=None, clock=perf_counter,
    )  # fmt: skip


WORK = {
    "radicale_server": book_by_caldav,
    "google": book_by_google,
    "zoom": meet_by_zoom,
    "images of openai": draw_by("openai"),
    "images of gemini": draw_by("gemini"),
}


@pytest.mark.parametrize("service", WORK)
async def test_every_request_to_a_service_names_the_trace_that_it_is_made_for(
    service: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    server = request.getfixturevalue(service.partition(" ")[0])
    port = server.port if hasattr(server, "port") else int(server.address.rpartition(":")[2])
    provider = TracerProvider()
    tracing = Tracing(provider, owned=(provider,))
    with ExitStack() as stack:
        stack.callback(tracing.close)
        proxy = stack.enter_context(bad_proxy(port))
        with tracing.execute_tool(None, call_facts()) as made:
            await WORK[service](proxy, request, stack, tmp_path)
        context = made.span.get_span_context()
        named = f"00-{context.trace_id:032x}-{context.span_id:016x}"
        sent = [{name.lower(): value for name, value in headers.items()} for _, _, headers in proxy.requests]
        assert sent
        assert [headers.get("traceparent", "").rpartition("-")[0] for headers in sent] == [named] * len(sent)
