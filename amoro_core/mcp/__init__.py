"""What assistants may do over the Model Context Protocol (MCP): each tool is one operation, translated."""
