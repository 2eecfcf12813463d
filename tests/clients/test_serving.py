"""`handrail serve` answers with whichever model one line of the settings names."""

import asyncio
import json
import os
import sys

import httpx2
import pytest
from tests.clients.kit import PAY, SERVERS, spec
from tests.runtime.kit import PAID, Tools, writing

from handrail.testing.servers import Reply


@pytest.mark.long  # a process with an SDK in it
@pytest.mark.parametrize("kind", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
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
                answer = await asked(told)
        finally:
            if served.returncode is None:
                served.terminate()
            await served.communicate()

    assert answer["choices"][0]["message"]["content"] == "The rent is paid."
    assert tools.started() == [{"q": "rent"}]
    assert provider.problems == []


async def asked(told):
    body = {"model": "handrail", "messages": [{"role": "user", "content": "Pay the rent."}]}
    headers = {"authorization": f"Bearer {told['key']}"}
    async with httpx2.AsyncClient(timeout=60) as client:
        response = await client.post(f"{told['url']}/v1/chat/completions", json=body, headers=headers)
    assert response.status_code == 200, response.text
    return response.json()
