"""The OpenAPI document says what the routes do: held against the table of routes, and by schemathesis against a server."""

import asyncio
import os
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
import requests
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from requests.adapters import BaseAdapter, HTTPAdapter
from schemathesis import Case, GenerationMode, openapi
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from tests.server.kit import OPERATOR, USER, bearer, put_together

from handrail.server.api.application import ROUTES
from handrail.server.api.openapi import document
from handrail.server.options import Options
from handrail.server.uvicorn_server import bound, make_server

EXAMPLES = 300 if os.environ.get("HANDRAIL_TEST_PROFILE") == "long" else 20
SCHEMA = openapi.from_dict(document())
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def test_the_document_and_the_table_of_routes_name_the_same():
    routes = {(method, path.replace(":path", "")) for method, path, _ in ROUTES}
    described = {(method.upper(), path) for path, item in document()["paths"].items() for method in item}
    assert routes == described


class WithoutPools(BaseAdapter):
    """Sends as requests does. schemathesis counts the connections of an `HTTPAdapter` in a way that fails where urllib3-future,
    which `caldav` brings, stands in the place of urllib3."""

    def __init__(self) -> None:
        super().__init__()
        self._adapter = HTTPAdapter()

    def send(self, request, **options):
        return self._adapter.send(request, **options)

    def close(self) -> None:
        self._adapter.close()


class Running:
    """A server in a thread of its own, for clients that block."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.http = requests.Session()
        self.http.mount("http://", WithoutPools())
        self.http.mount("https://", WithoutPools())
        self.failures: list[str] = []

    def fresh_session(self) -> tuple[str, str]:
        answer = requests.post(f"{self.url}/api/sessions", json={}, headers=bearer(USER), timeout=20).json()
        return answer["sessionId"], answer["token"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("served")
    options = replace(Options(), port=0, stream_seconds=0, requests_per_minute=10_000_000, max_streams=10_000)
    socket = bound(options)
    started = threading.Event()
    servers = []

    async def serve() -> None:
        made, _, _ = put_together(folder, options=options, audited=True)
        server = make_server(made.app, options, made.sessions.drain, started.set)
        servers.append(server)
        await server.serve(sockets=[socket])

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(30)
    here = Running(f"http://127.0.0.1:{socket.getsockname()[1]}")
    yield here
    here.http.close()
    servers[0].should_exit = True
    thread.join(30)


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_that_the_document_allows_or_forbids_is_a_server_error(running, label):
    operation = OPERATIONS[label]
    strategies = [operation.as_strategy(generation_mode=GenerationMode.POSITIVE)]
    if operation.body or operation.query or operation.headers:
        strategies.append(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE))

    @settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
    @given(case=st.one_of(*strategies), known=st.booleans(), key=st.sampled_from([OPERATOR, USER]))
    def holds(case: Case, known: bool, key: str) -> None:
        if known and "session" in (case.path_parameters or {}):
            session, token = running.fresh_session()
            case.path_parameters["session"] = session
            case.headers = {**(case.headers or {}), "X-Session-Token": token}
        headers = {**bearer(key), "Connection": "close"}
        response = case.call(base_url=running.url, session=running.http, headers=headers, timeout=20)
        case.validate_response(response, checks=CHECKS, headers=headers)

    holds()


def test_a_user_s_name_with_a_line_break_is_an_answer_that_the_document_has(running):
    headers = {**bearer(OPERATOR), "Connection": "close"}
    answer = running.http.delete(f"{running.url}/api/users/a%0Ab", headers=headers, timeout=20)
    assert str(answer.status_code) in OPERATIONS["DELETE /api/users/{user}"].definition.raw["responses"]
