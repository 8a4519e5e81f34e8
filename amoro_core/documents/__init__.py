"""Documents: what `-o json`, the REST API and the MCP tools give for a message, and their schemas."""
