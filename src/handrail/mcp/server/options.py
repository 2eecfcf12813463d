"""What the MCP server allows itself and its clients. Made from `[mcp]` in the settings, checked once."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields

from handrail.identity.tokens import TokenRules
from handrail.settings import Settings

MCP_CLIENT = "mcpClient"
"""The attribute of a session that names the credential of the client which it belongs to."""
TRACE_CONTEXT = ("traceparent", "tracestate", "baggage")
"""Where a request names the trace that it belongs to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class McpOptions:
    """The names are those of `[mcp]`."""

    user: str = ""
    trusted_clients: tuple[str, ...] = ()
    console: str = ""
    issuer: str = ""
    resource: str = ""
    scopes: tuple[str, ...] = ()
    user_claim: str = "sub"
    roles_claim: str = "roles"
    tenant_claim: str = ""
    task_tools: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)
    max_result_bytes: int = 262_144
    task_seconds: int = 10
    keep_seconds: int = 3_600
    console_project: str = ""
    """The project whose console somebody has to start first; empty where it is known to be there."""
    present: Callable[[str, str], None] | None = field(default=None, compare=False)
    """Puts a held call before its person, by its id and its link, where this process can: it may be the same call again."""

    @classmethod
    def from_settings(
        cls, settings: Settings, *, console: str = "", present: Callable[[str, str], None] | None = None
    ) -> McpOptions:
        """`console`: where this process serves one itself; what the settings say comes before it."""
        own = ("console", "console_project", "present")
        values = {item.name: getattr(settings, f"mcp_{item.name}") for item in fields(cls) if item.name not in own}
        known = settings.mcp_console or console
        address = known or f"http://{settings.server_host}:{settings.server_port}"
        start = "" if known else str(settings.project)
        return cls(**values, console=address, console_project=start, present=present)

    def token_rules(self) -> TokenRules:
        """Which access tokens of the authorization server are believed."""
        return TokenRules(
            issuer=self.issuer,
            audience=self.resource,
            discovery=True,
            scopes=self.scopes,
            user_claim=self.user_claim,
            roles_claim=self.roles_claim,
            tenant_claim=self.tenant_claim,
        )


@dataclass(frozen=True, slots=True)
class Principal:
    """Who makes a call: a user, through a client."""

    user: str | None
    client: str
    """The credential that the client came with: `key:NAME`, `oauth:CLIENT`, or `stdio`."""
    tenant: str = ""
    is_trusted: bool = False
    """Whether this client shows what we ask to a person, and to no model."""
    roles: tuple[str, ...] = ()
    named: str = field(default="", compare=False)
    """How the audit names the credential, where its own name may be that of its user."""


def local_principal(options: McpOptions, user: str | None = None) -> Principal:
    """Whoever started the process is its user: the operating system has seen to that."""
    return Principal(user or options.user or getpass.getuser(), "stdio", is_trusted="stdio" in options.trusted_clients)
