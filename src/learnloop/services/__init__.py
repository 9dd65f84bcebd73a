"""Local services: processes that learnloop starts before a run and always stops after it."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import anyio
import httpx2

from learnloop.config import ServiceConfig
from learnloop.errors import ConfigError, EndpointError, UserError

_GUARD = Path(__file__).with_name("guard.py")
_POLL_S = 0.05
_STOP_S = 5.0
_TAIL_LINES = 3
_TAIL_CHARACTERS = 300


@dataclass(frozen=True, kw_only=True)
class Service:
    """A running service: its process and the last lines it wrote."""

    name: str
    process: subprocess.Popen[bytes]
    lines: deque[str] = field(default_factory=lambda: deque[str](maxlen=_TAIL_LINES))

    @property
    def tail(self) -> str:
        """Return the last lines of output as one line."""
        return " | ".join(self.lines)[-_TAIL_CHARACTERS:]


@asynccontextmanager
async def running_services(
    services: Sequence[ServiceConfig], folder: Path
) -> AsyncGenerator[Mapping[str, str]]:
    """Start services, wait until each is ready, and stop them all at the end.

    Args:
        services: what to start; commands run in `folder`.
        folder: the project's folder.

    Yields:
        The address of each service by name, such as `http://127.0.0.1:40123`.

    Raises:
        EndpointError: a service ended early or is not ready in time; tells its last output.
        UserError: its port is taken.
        ConfigError: its program does not exist.
    """
    addresses: dict[str, str] = {}
    async with AsyncExitStack() as stack:
        for service in services:
            addresses[service.name] = await stack.enter_async_context(_running(service, folder))
        yield addresses


def service_url(url: str, addresses: Mapping[str, str]) -> str:
    """Return a URL with `{service:NAME}` replaced by that service's address."""
    for name, address in addresses.items():
        url = url.replace(f"{{service:{name}}}", address)
    return url


@asynccontextmanager
async def _running(config: ServiceConfig, folder: Path) -> AsyncGenerator[str]:
    port = _free_port()
    command = [_filled(part, port) for part in config.command]
    ready_url = _filled(config.ready_url, port)
    _check_program(config.name, command[0], folder)
    await _check_port(config.name, ready_url)
    service = _start(config.name, command, folder)
    try:
        await _wait_ready(service, ready_url, config.start_timeout_s)
        place = urlsplit(ready_url)
        yield f"{place.scheme}://{place.netloc}"
    finally:
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(_stop, service.process)


def _filled(text: str, port: int) -> str:
    return text.replace("{port}", str(port)).replace("{python}", sys.executable)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def _check_program(name: str, program: str, folder: Path) -> None:
    # A program with a slash is looked for from the project's folder, where it will be started.
    found = shutil.which(str(folder / program) if os.sep in program else program)
    if found is None:
        raise ConfigError(
            f"program `{program}` not found", where=f"service `{name}`", fix="Install it."
        )


async def _check_port(name: str, ready_url: str) -> None:
    """Refuse a port that somebody else answers on: their answer would look like readiness."""
    place = urlsplit(ready_url)
    try:
        with anyio.fail_after(2):
            stream = await anyio.connect_tcp(place.hostname or "127.0.0.1", place.port or 80)
        await stream.aclose()
    except (OSError, TimeoutError):
        return
    raise _port_taken(name, str(place.port or 80))


def _port_taken(name: str, port: str) -> UserError:
    return UserError(
        f"port {port} is already taken",
        where=f"service `{name}`",
        fix="Stop what holds it, or write `{port}` in `command` and `ready_url`.",
    )


def _start(name: str, command: list[str], folder: Path) -> Service:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", str(_GUARD), *command],
        cwd=folder,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    service = Service(name=name, process=process)
    threading.Thread(target=_drain, args=(service,), daemon=True, name=f"drain-{name}").start()
    return service


def _drain(service: Service) -> None:
    """Read everything the service writes, so that it never blocks, and keep the last lines."""
    assert service.process.stderr is not None
    with suppress(ValueError), service.process.stderr as stream:
        for raw in stream:
            if line := raw.decode("utf-8", "replace").strip():
                service.lines.append(line)


async def _wait_ready(service: Service, url: str, timeout_s: float) -> None:
    deadline = time.monotonic() + timeout_s
    async with httpx2.AsyncClient(trust_env=False, timeout=2.0) as client:
        while service.process.poll() is None:
            if (answer := await _answer(client, url)) == "HTTP 200":
                return
            if time.monotonic() > deadline:
                raise EndpointError(
                    f"not ready after {timeout_s:g} s: {answer} from {url}{_last_words(service)}",
                    where=f"service `{service.name}`",
                    fix="Let it answer GET with 200 there, or raise its `start_timeout_s`.",
                )
            await anyio.sleep(_POLL_S)
    await anyio.sleep(_POLL_S)  # lets the drain thread read what was written last
    _raise_early_end(service, url)


async def _answer(client: httpx2.AsyncClient, url: str) -> str:
    try:
        return f"HTTP {(await client.get(url)).status_code}"
    except (httpx2.HTTPError, httpx2.InvalidURL):
        return "no answer"


def _raise_early_end(service: Service, url: str) -> None:
    if "already in use" in service.tail.lower():
        raise _port_taken(service.name, str(urlsplit(url).port))
    raise EndpointError(
        f"ended with code {service.process.returncode} before it was ready{_last_words(service)}",
        where=f"service `{service.name}`",
    )


def _last_words(service: Service) -> str:
    return f"; it last wrote: {service.tail}" if service.tail else " and wrote nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Close the guard's input, which ends the whole group, and make sure of it."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    with suppress(subprocess.TimeoutExpired):
        process.wait(timeout=_STOP_S)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
