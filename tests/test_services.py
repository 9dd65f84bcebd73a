"""Services start, answer, and never outlive learnloop."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import anyio
import httpx2
import pytest

from learnloop.config import ServiceConfig
from learnloop.errors import ConfigError, EndpointError, UserError
from learnloop.services import running_services, service_url

SERVER = """
import http.server, os, subprocess, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers(); self.wfile.write(os.getcwd().encode())
    def log_message(self, *a): pass
if "--child" in sys.argv:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open("child.pid", "w").write(str(child.pid))
open("server.pid", "w").write(str(os.getpid()))
print("noise " * 5000, file=sys.stderr)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def make(folder: Path, *extra: str, port: str = "{port}", **settings: object) -> ServiceConfig:
    (folder / "server.py").write_text(SERVER)
    command = ("{python}", "server.py", port, *extra)
    return ServiceConfig(name="tools", command=command, **settings)  # pyright: ignore[reportArgumentType]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    stat = Path(f"/proc/{pid}/stat")
    return not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] != "Z"


def gone(pid: int, within_s: float = 8.0) -> bool:
    deadline = time.monotonic() + within_s
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


def start_and_raise(config: ServiceConfig, folder: Path) -> UserError:
    async def go() -> None:
        async with running_services([config], folder):
            pass

    with pytest.raises(UserError) as caught:
        anyio.run(go)
    return caught.value


def test_a_service_runs_in_the_project_folder_and_is_gone_after_the_block(tmp_path: Path):
    async def go() -> int:
        async with running_services([make(tmp_path)], tmp_path) as addresses:
            async with httpx2.AsyncClient(trust_env=False) as client:
                reply = await client.get(addresses["tools"] + "/health")
            assert reply.text == str(tmp_path)
            pid = int((tmp_path / "server.pid").read_text())
            assert alive(pid)
            return pid

    assert gone(anyio.run(go), within_s=0)


def test_what_a_service_started_goes_with_it_even_after_an_error(tmp_path: Path):
    async def go() -> None:
        async with running_services([make(tmp_path, "--child")], tmp_path):
            raise RuntimeError("the run failed")

    with pytest.raises(RuntimeError, match="the run failed"):
        anyio.run(go)
    assert gone(int((tmp_path / "server.pid").read_text()), within_s=1)
    assert gone(int((tmp_path / "child.pid").read_text()), within_s=1)


def test_cancelling_stops_the_service(tmp_path: Path):
    async def go() -> None:
        with anyio.CancelScope() as scope:
            async with running_services([make(tmp_path)], tmp_path):
                scope.cancel()
                await anyio.sleep_forever()

    anyio.run(go)
    assert gone(int((tmp_path / "server.pid").read_text()), within_s=1)


def test_kill_9_of_the_owner_leaves_no_orphan(tmp_path: Path):
    make(tmp_path)
    owner = """
import anyio, pathlib, sys
from learnloop.config import ServiceConfig
from learnloop.services import running_services
async def go():
    service = ServiceConfig(name="t", command=("{python}", "server.py", "{port}", "--child"))
    async with running_services([service], pathlib.Path(sys.argv[1])):
        print("up", flush=True)
        await anyio.sleep_forever()
anyio.run(go)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", owner, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as out:
        assert out.readline() == "up\n"
    pids = [int((tmp_path / f"{n}.pid").read_text()) for n in ("server", "child")]
    assert all(alive(pid) for pid in pids)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert all(gone(pid) for pid in pids)


def test_a_service_that_ends_early_is_told_with_its_last_words(tmp_path: Path):
    command = ("{python}", "-c", "import sys; sys.exit('no index at data/index.db')")
    error = start_and_raise(ServiceConfig(name="tools", command=command), tmp_path)
    assert isinstance(error, EndpointError)
    assert error.line() == (
        "service `tools`: ended with code 1 before it was ready; "
        "it last wrote: no index at data/index.db"
    )


def test_a_service_that_is_never_ready_is_stopped_and_named(tmp_path: Path):
    config = make(tmp_path, start_timeout_s=0.5)
    (tmp_path / "server.py").write_text("import time; time.sleep(600)")
    error = start_and_raise(config, tmp_path)
    assert isinstance(error, EndpointError)
    assert "not ready after 0.5 s: no answer from http://127.0.0.1:" in error.line()
    assert "`start_timeout_s`" in error.line()


def test_a_taken_port_is_one_line_with_exit_code_1(tmp_path: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        config = make(tmp_path, port=str(port), ready_url=f"http://127.0.0.1:{port}/health")
        error = start_and_raise(config, tmp_path)
    assert error.exit_code == 1
    assert error.line() == (
        f"service `tools`: port {port} is already taken. "
        "Stop what holds it, or write `{port}` in `command` and `ready_url`."
    )


def test_a_port_taken_in_the_command_alone_is_seen_in_its_last_words(tmp_path: Path):
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        error = start_and_raise(make(tmp_path, port=str(holder.getsockname()[1])), tmp_path)
    assert error.exit_code == 1
    assert "already taken" in error.line()


def test_a_missing_program_is_a_configuration_error(tmp_path: Path):
    config = ServiceConfig(name="tools", command=("no-such-program", "{port}"))
    error = start_and_raise(config, tmp_path)
    assert isinstance(error, ConfigError)
    assert error.line() == "service `tools`: program `no-such-program` not found. Install it."


def test_service_references_become_addresses():
    addresses = {"tools": "http://127.0.0.1:4000"}
    assert service_url("{service:tools}/search", addresses) == "http://127.0.0.1:4000/search"
    assert service_url("https://example.org/x", addresses) == "https://example.org/x"
