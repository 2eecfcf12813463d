"""The servers that calendars of these tests are on, started once for each process that runs tests."""

import pytest
from tests.services.calendar.google_server import google_server
from tests.services.calendar.mail_server import mail_server
from tests.services.calendar.radicale_server import radicale
from tests.services.calendar.zoom_server import zoom_server


@pytest.fixture(scope="session")
def radicale_server(tmp_path_factory):
    with radicale(tmp_path_factory.mktemp("radicale")) as server:
        yield server


@pytest.fixture
def google():
    with google_server() as server:
        yield server
        assert server.violations == []


@pytest.fixture
def zoom():
    with zoom_server() as server:
        yield server
        assert server.violations == []


@pytest.fixture
def mail():
    with mail_server() as server:
        yield server
