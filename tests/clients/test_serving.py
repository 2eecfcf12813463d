"""`handrail serve` answers with whichever model one line of the settings names."""

import asyncio
import json
import os
import sys
from contextlib import asynccontextmanager

import httpx2
import pytest
from tests.clients.kit import PAY, SERVERS, spec
from tests.clients.test_ids_of_a_message import counting_anew
from tests.runtime.kit import PAID, Tools, writing

from handrail.app import open_agent, open_registry, open_runtime
from handrail.clients import text_client
from handrail.server.assembly import assemble
from handrail.server.key_ring import Key, KeyRing, hash_of
from handrail.server.options import Options
from handrail.settings import load_settings
from handrail.testing.servers import Reply

KINDS = ("openai", "openai-responses", "anthropic", "gemini", "ollama")


@pytest.mark.parametrize("kind", KINDS)
async def test_one_line_of_the_settings_chooses_who_answers(kind, tmp_path, monkeypatch):
    """The server with all of its parts but the process and the socket; nothing else in the project differs."""
    tools = Tools(tmp_path)
    tools.write({"pay": (writing(), PAID)})
    tools.build()
    client = text_client(kind)
    async with SERVERS[kind]([Reply("", [PAY]), Reply("The rent is paid.")]) as provider:
        monkeypatch.setenv(client.address_variable, provider.base_url)
        for name, value in provider.environment.items():
            monkeypatch.setenv(name, value)
        project = f'[agent]\nmodel = "{spec(kind)}"\n\n[store]\nurl = "memory:"\n'
        (tmp_path / "handrail.toml").write_text(project, "utf-8")
        async with served_here(tmp_path) as http:
            answer = await asked(http)

    assert answer["choices"][0]["message"]["content"] == "The rent is paid."
    assert tools.started() == [{"q": "rent"}]
    assert provider.problems == []
    assert len(provider.requests) == 2


async def test_two_requests_of_one_session_pay_twice_though_the_model_counts_its_calls_anew(tmp_path, monkeypatch):
    tools = Tools(tmp_path)
    tools.write({"pay": (writing(), PAID)})
    tools.build()
    answers = [Reply("", [PAY]), Reply("The rent is paid.")]
    async with counting_anew("openai", answers * 2) as provider:
        for name, value in {"OPENAI_BASE_URL": provider.base_url, **provider.environment}.items():
            monkeypatch.setenv(name, value)
        (tmp_path / "handrail.toml").write_text('[agent]\nmodel = "openai:m"\n\n[store]\nurl = "memory:"\n', "utf-8")
        async with served_here(tmp_path) as http:
            body = {"model": "handrail", "messages": [{"role": "user", "content": "Pay the rent."}]}
            first = await http.post("/v1/chat/completions", json=body, headers={"idempotency-key": "r1"})
            named = {"x-handrail-session": first.headers["x-handrail-session"]}
            named["x-session-token"] = first.headers["x-handrail-session-token"]
            again = await http.post("/v1/chat/completions", json=body, headers={**named, "idempotency-key": "r1"})
            second = await http.post("/v1/chat/completions", json=body, headers={**named, "idempotency-key": "r2"})

    words = [one.json()["choices"][0]["message"]["content"] for one in (first, again, second)]
    assert words == ["The rent is paid."] * 3
    assert tools.started() == [{"q": "rent"}, {"q": "rent"}], "a request that is sent again is not a second wish"
    assert provider.problems == []


@asynccontextmanager
async def served_here(folder):
    """A client of the server that this project's settings make."""
    settings = load_settings(folder, {})
    runtime = open_runtime(settings, open_registry(settings))
    agent = open_agent(settings, runtime, listen=False)
    secret = "hr_a_key_of_this_test_0001"
    made = assemble(
        runtime,
        agent,
        keys=KeyRing((Key(name="ana", hash=hash_of(secret), role="user", user="ana"),)),
        options=Options.from_settings(settings),
    )
    headers = {"authorization": f"Bearer {secret}"}
    transport = httpx2.ASGITransport(made.app)
    async with (
        made.app.router.lifespan_context(made.app),
        httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=60) as http,
    ):
        yield http


@pytest.mark.long  # a process with an SDK in it
@pytest.mark.parametrize("kind", KINDS)
async def test_the_server_answers_with_the_model_that_the_settings_name(kind, tmp_path):
    tools = Tools(tmp_path)
    tools.write({"pay": (writing(), PAID)})
    async with SERVERS[kind]([Reply("", [PAY]), Reply("The rent is paid.")]) as provider:
        line = f'model = "{spec(kind)}"\nbase_url = "{provider.base_url}"'
        (tmp_path / "handrail.toml").write_text(f"[agent]\n{line}\n", "utf-8")
        served = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "handrail", "serve", "--json", "--port", "0"),
            cwd=tmp_path,
            env={**os.environ, **provider.environment},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(60):
                told = json.loads(await served.stdout.readline() or b"{}")
                assert told, (await served.stderr.read()).decode()
                headers = {"authorization": f"Bearer {told['key']}"}
                async with httpx2.AsyncClient(timeout=60, base_url=told["url"], headers=headers) as http:
                    answer = await asked(http)
        finally:
            if served.returncode is None:
                served.terminate()
            await served.communicate()

    assert answer["choices"][0]["message"]["content"] == "The rent is paid."
    assert tools.started() == [{"q": "rent"}]
    assert provider.problems == []


async def asked(http):
    body = {"model": "handrail", "messages": [{"role": "user", "content": "Pay the rent."}]}
    response = await http.post("/v1/chat/completions", json=body)
    assert response.status_code == 200, response.text
    return response.json()
