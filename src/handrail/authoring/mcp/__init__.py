"""Tools of MCP servers as definitions: what the project says of a server, what was pinned, and what is made of both.

Nothing here connects to anything or needs the SDK: `handrail.mcp.gateway` asks servers what they offer, and calls them.
"""
