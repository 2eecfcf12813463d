"""One server for the tests that share a project of notes. `given` and `desk` are trusted to ask their user; `laptop` is not."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.mcp.served_project import Served, project, served

from handrail.server.stored_keys import add_key
from handrail.stores import open_store

MAX_RESULT_BYTES = 4_096


@dataclass
class Notes(Served):
    """Its clients: `key` is that of `given`, an operator; `laptop` and `desk` are of the user ana."""

    laptop: str = ""
    desk: str = ""


@pytest.fixture(scope="session")
def notes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Notes]:
    folder = project(tmp_path_factory.mktemp("notes"))

    async def keys() -> list[str]:
        store = open_store(f"sqlite:///{folder / 'handrail.db'}")
        await store.open()
        made = [await add_key(store.keys, name=name, role="user", user="ana") for name in ("laptop", "desk")]
        await store.close()
        return [secret for _, secret in made]

    laptop, desk = asyncio.run(keys())
    settings = {
        "HANDRAIL_MCP_TRUSTED_CLIENTS": "given,desk",
        "HANDRAIL_MCP_MAX_RESULT_BYTES": str(MAX_RESULT_BYTES),
        "HANDRAIL_SERVER_REQUESTS_PER_MINUTE": "1000000",
    }
    with served(folder, **settings) as server:
        yield Notes(server.url, server.process, folder, laptop=laptop, desk=desk)
