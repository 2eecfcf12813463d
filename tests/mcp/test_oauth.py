"""`/mcp` as an OAuth resource server: the metadata is public, a right token opens it again and again, a wrong one does not."""

import asyncio
from pathlib import Path

import httpx2
from tests.mcp.served_project import CLIENT, project, served
from tests.mcp.server.test_tokens import RESOURCE, issuer, token

__all__ = ["issuer"]


async def test_a_token_opens_mcp_alone_and_a_refusal_says_who_gives_tokens(tmp_path: Path, issuer: str) -> None:
    settings = {"HANDRAIL_MCP_ISSUER": issuer, "HANDRAIL_MCP_RESOURCE": RESOURCE, "HANDRAIL_MCP_SCOPES": "tools"}
    with served(project(tmp_path), **settings) as server:
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": "tools/list",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": CLIENT}}

        async def post(client: httpx2.AsyncClient, given: str | None) -> httpx2.Response:
            more = {} if given is None else {"Authorization": f"Bearer {given}"}
            return await client.post(server.mcp, json=body, headers={**headers, **more})

        async with httpx2.AsyncClient(timeout=30) as client:
            found = await client.get(f"{server.url}/.well-known/oauth-protected-resource/mcp")
            assert found.json()["authorization_servers"] == [issuer]
            assert found.json()["resource"] == RESOURCE
            good = token(issuer)
            answers = await asyncio.gather(*(post(client, good) for _ in range(80)))
            assert {answer.status_code for answer in answers} == {200}
            elsewhere = await client.get(f"{server.url}/api/tools", headers={"Authorization": f"Bearer {good}"})
            assert elsewhere.status_code == 401
            for wrong in (None, "nonsense", token(issuer, aud="https://elsewhere.example.com/mcp")):
                refused = await post(client, wrong)
                assert refused.status_code == 401
                assert "/.well-known/oauth-protected-resource/mcp" in refused.headers["www-authenticate"]
            narrow = await post(client, token(issuer, scope="other"))
            assert narrow.status_code == 403
            assert 'error="insufficient_scope", scope="tools"' in narrow.headers["www-authenticate"]
            evil = await client.post(server.mcp, json=body, headers={**headers, "Origin": "https://evil.example.com"})
            assert evil.status_code == 403
