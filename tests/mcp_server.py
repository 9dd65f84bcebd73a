"""A real MCP server for tests: `python mcp_server.py stdio` or `http PORT`, over the same tools."""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import anyio
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ImageContent, TextContent

server = MCPServer("box")
PIPE = os.fstat(1)
waiting: list[int] = []
everybody = anyio.Event()


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
async def hang_up(seconds: float) -> str:
    """Close the connection and refuse to end."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for fd in range(64):  # the library talks through a copy of stdout
        with suppress(OSError):
            if os.path.samestat(os.fstat(fd), PIPE):
                os.close(fd)
    time.sleep(seconds)  # noqa: ASYNC251 - it hears nothing any more
    return ""


@server.tool()
async def wait(seconds: float) -> str:
    """Wait."""
    await anyio.sleep(seconds)
    return "waited"


@server.tool()
async def meet(count: int) -> str:
    """Wait until so many calls are here at once."""
    waiting.append(count)
    if len(waiting) >= count:
        everybody.set()
    await everybody.wait()
    return "met"


@server.tool()
def secret() -> str:
    """Tell a secret."""
    return f"{os.environ.get('BOX_KEY', '')} {os.getpid()} {' '.join(sys.argv[2:])}"


@server.tool()
def chatter(lines: int, length: int = 1000) -> str:
    """Write much to stderr."""
    for number in range(lines):
        print(f"{number} " + "x" * length, file=sys.stderr)
    return "said"


@server.tool(structured_output=False)
def picture() -> list[TextContent | ImageContent]:
    """Show."""
    return [TextContent(text="look:"), ImageContent(data="AAAA", mime_type="image/png")]


if len(sys.argv) > 3 and Path(sys.argv[3]).exists():

    @server.tool()
    def late() -> str:
        """Only there after a restart."""
        return "late"


if __name__ == "__main__":
    print(f"hello from the server with {os.environ.get('BOX_KEY', 'no key')}", file=sys.stderr)
    if len(sys.argv) > 4 and Path(sys.argv[4]).exists():
        sys.exit(Path(sys.argv[4]).read_text())
    if sys.argv[1] == "broken":
        sys.exit("cannot open the database")
    if sys.argv[1] == "deaf":
        time.sleep(60)
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
