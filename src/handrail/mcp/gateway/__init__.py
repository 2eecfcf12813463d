"""The MCP gateway: tools of other servers, pinned by hash, called through the one pipeline."""
