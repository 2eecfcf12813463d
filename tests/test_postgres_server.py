"""The PostgreSQL of the tests starts wherever the tests are, and whoever runs them."""

import os
import shutil
import tempfile
import traceback
from pathlib import Path

import psycopg
import pytest
from tests import postgres_server
from tests.postgres_server import PostgresServer

IS_ROOT = os.geteuid() == 0
NOBODY = 65_534


@pytest.fixture
def folder():
    made = Path(tempfile.mkdtemp(prefix="hr pg "))
    yield made
    shutil.rmtree(made)


def _starts(folder):
    server = PostgresServer(folder)
    server.initialise()
    server.start()
    try:
        with psycopg.connect(server.url("postgres")) as db:
            assert db.execute("SELECT 1").fetchone() == (1,)
    finally:
        server.stop()


def _starts_as_nobody(folder):
    """In a child that has given up being root. What root alone may read is brought before."""
    programs = postgres_server._programs(folder)
    os.chown(folder, NOBODY, NOBODY)
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            postgres_server._programs = lambda _: programs
            _starts(folder)
        except BaseException:  # noqa: BLE001 - the child must not continue with the tests, whatever it is
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("start", [_starts, *([_starts_as_nobody] if IS_ROOT else [])])
def test_it_starts_in_a_folder_with_a_space(folder, start):
    start(folder)
