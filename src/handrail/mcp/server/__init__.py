"""The MCP server: a client's `tools/call` → `Session.call` → the envelope as `structuredContent`; over stdio and HTTP."""
