"""A real MCP server for tests: `python mcp_server.py stdio` or `http PORT`, over the same tools."""

from __future__ import annotations

import os
import sys
import time

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ImageContent, TextContent

server = MCPServer("box")


@server.tool()
def add(a: int, b: int = 1) -> str:
    """Add two numbers."""
    return str(a + b)


@server.tool()
def fail(path: str) -> str:
    """Fail, as tools do."""
    raise ToolError(f"no file {path}")


@server.tool()
def die(code: int) -> str:
    """End the server at once."""
    os._exit(code)


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "waited"


@server.tool()
def secret() -> str:
    """Tell a secret."""
    return f"{os.environ.get('BOX_KEY', '')} {os.getpid()}"


@server.tool(structured_output=False)
def picture() -> list[TextContent | ImageContent]:
    """Show."""
    return [TextContent(text="look:"), ImageContent(data="AAAA", mime_type="image/png")]


if len(sys.argv) > 3 and os.path.exists(sys.argv[3]):

    @server.tool()
    def late() -> str:
        """Only there after a restart."""
        return "late"


if __name__ == "__main__":
    print(f"hello from the server with {os.environ.get('BOX_KEY', 'no key')}", file=sys.stderr)
    if sys.argv[1] == "broken":
        sys.exit("cannot open the database")
    if sys.argv[1] == "deaf":
        time.sleep(60)
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
