"""A real HTTP server on loopback whose answers a test decides."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast


@dataclass(kw_only=True)
class Seen:
    """One request as it arrived."""

    path: str
    headers: Mapping[str, str]
    data: dict[str, Any]


@dataclass(kw_only=True)
class Answer:
    """What the server says; `body` that is not bytes is sent as JSON."""

    status: int = 200
    body: object = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


Decide = Callable[[Seen], Answer]


@dataclass(kw_only=True)
class Loopback:
    """A running server and what it was asked."""

    url: str
    seen: list[Seen] = field(default_factory=list[Seen])


@contextmanager
def serving(decide: Decide) -> Generator[Loopback]:
    """Serve on a free port of 127.0.0.1 while the block runs."""
    requests: list[Seen] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            length = int(self.headers.get("content-length", "0"))
            data = cast("dict[str, Any]", json.loads(self.rfile.read(length)))
            seen = Seen(path=self.path, headers=dict(self.headers.items()), data=data)
            requests.append(seen)
            answer = decide(seen)
            body = (
                answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
            )
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Stay quiet."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that hangs up is part of some tests."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield Loopback(url=f"http://127.0.0.1:{server.server_address[1]}/tool", seen=requests)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
