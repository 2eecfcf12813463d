"""MCP, both ways: `server` offers a project's tools to MCP clients, `gateway` brings the tools of MCP servers into a project.

Both need the extra `mcp`. Whatever comes over the protocol, from either side, is untrusted, and every call passes the pipeline.
"""
