"""Tools of MCP servers: how servers are reached, kept connected, called, and what they offered.

`snapshot` reads what servers offered and loads nothing else; the other modules load the MCP
library, and only projects with `[[mcp]]` import them.
"""
