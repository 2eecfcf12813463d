"""The format of MCP tools, as a server lists them."""
