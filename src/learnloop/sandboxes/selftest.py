"""Attacks on a sandbox: each is a program that tries to break out, and a look from outside whether it did.

A probe that could not be tried counts as broken: nothing is known to hold that was not seen to hold.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from learnloop.errors import SandboxError
from learnloop.sandbox import Job, Limits, Ran, Sandbox

_SECRET = "learnloop-selftest-secret"
_TRIED, _BROKEN = b"TRIED", b"BROKEN"


@dataclass(frozen=True, kw_only=True)
class Host:
    """What the probes attack: things of the host that are there while they run."""

    folder: Path
    tcp_port: int
    udp_port: int
    abstract: str
    sleeper: int
    heard: Callable[[], bool]


def _tried_in_vain(ran: Ran, _: Host) -> bool:
    return _TRIED in ran.stdout and _BROKEN not in ran.stdout


@dataclass(frozen=True, kw_only=True)
class Probe:
    """One attack.

    Attributes:
        name: what is attacked.
        program: Python source; it prints TRIED when the attack failed, BROKEN when it succeeded. What
            it needs to know of the host is in capitals.
        limits: those it runs under.
        holds: a look from outside; by default what the program prints decides.
        full_only: whether only namespaces can hold it.
    """

    name: str
    program: str
    limits: Limits = field(default_factory=lambda: Limits(wall_s=5, cpu_s=2, memory_mb=256))
    holds: Callable[[Ran, Host], bool] = _tried_in_vain
    full_only: bool = False


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What came of one attack: whether the sandbox held, and in words what was seen."""

    name: str
    held: bool
    seen: str
    full_only: bool


PROBES: tuple[Probe, ...] = (
    Probe(
        name="tcp out",
        program="""
import socket
for place in (("127.0.0.1", TCP), ("1.1.1.1", 53)):
    try:
        socket.create_connection(place, 1).send(b"x")
        print("BROKEN")
    except OSError: pass
print("TRIED")""",
    ),
    Probe(
        name="udp out",
        program="""
import socket
try:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.sendto(b"SECRET", ("127.0.0.1", UDP))
except OSError: pass
print("TRIED")""",
        holds=lambda ran, host: _TRIED in ran.stdout and not host.heard(),
    ),
    Probe(
        name="abstract unix socket",
        program="""
import socket
try:
    socket.socket(socket.AF_UNIX).connect("\\0" + "ABSTRACT")
    print("BROKEN")
except OSError: pass
print("TRIED")""",
    ),
    Probe(
        name="host folder",
        program="""
try:
    print("BROKEN", open("FOLDER/open.txt").read())
except OSError: pass
print("TRIED")""",
    ),
    Probe(
        name="host home",
        program="""
import os
for place in ("/root", "/home"):
    try:
        if os.listdir(place): print("BROKEN", place)
    except OSError: pass
print("TRIED")""",
    ),
    Probe(
        name="other processes",
        program="""
import os
try: seen = [p for p in os.listdir("/proc") if p.isdigit()]
except OSError: seen = []
print("BROKEN" if str(SLEEPER) in seen else "TRIED")""",
    ),
    Probe(
        name="environment",
        program="""
import os
print("BROKEN" if "SECRET" in str(dict(os.environ)) else "TRIED")""",
    ),
    Probe(
        name="root's files",
        program="""
for place in ("/etc/shadow", "FOLDER/root.txt"):
    try:
        open(place).read()
        print("BROKEN", place)
    except OSError: pass
print("TRIED")""",
    ),
    Probe(
        name="write to the system",
        program="""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for flags in (32 | 4096, 32):
    libc.mount(b"none", b"/usr", None, flags, None)
for place in ("/usr/learnloop-selftest", "/etc/learnloop-selftest", "/bin/learnloop-selftest"):
    try:
        os.close(os.open(place, os.O_CREAT | os.O_WRONLY))
        print("BROKEN", place)
    except OSError: pass
print("TRIED")""",
        holds=lambda ran, _: (
            _TRIED in ran.stdout
            and _BROKEN not in ran.stdout
            and not any(Path(p, "learnloop-selftest").exists() for p in ("/usr", "/etc", "/bin"))
        ),
    ),
    Probe(
        name="fork bomb",
        program="""
import os, time
made = 0
try:
    while made < 5000:
        if os.fork() == 0:
            time.sleep(60); os._exit(0)
        made += 1
except OSError: pass
print("BROKEN" if made >= 200 else "TRIED", made, flush=True)
os._exit(0)""",
        holds=lambda ran, _: _TRIED in ran.stdout,
        full_only=True,
    ),
    Probe(
        name="memory bomb",
        program="""
import os, time
kept = []
for _ in range(8):
    if os.fork() == 0:
        try:
            while True: kept.append(bytearray(b"x") * (8 << 20))
        except MemoryError:
            time.sleep(60)
            os._exit(0)
time.sleep(30)
print("BROKEN")""",
        holds=lambda ran, _: ran.end == "memory" or (ran.end == "wall" and ran.wall_s < 10),
    ),
    Probe(
        name="processor hog",
        program="""
while True: pass""",
        limits=Limits(wall_s=20, cpu_s=1, memory_mb=256),
        holds=lambda ran, _: ran.wall_s < 10 and ran.exit_code != 0,
    ),
    Probe(
        name="huge file",
        program="""
import os
wrote = 0
for place in ("big", "/tmp/big", "/dev/shm/big"):
    for n in range(20):
        try:
            with open(f"{place}{n}", "wb") as f:
                for _ in range(64): f.write(bytes(1 << 20)); f.flush(); wrote += 1
        except OSError: break
print("BROKEN" if wrote > 1000 else "TRIED", wrote)""",
        limits=Limits(wall_s=20, cpu_s=10, memory_mb=256, file_mb=16),
        holds=lambda ran, _: ran.exit_code != 0 or _BROKEN not in ran.stdout,
        full_only=True,
    ),
    Probe(
        name="ptrace",
        program="""
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.restype = ctypes.c_long
if libc.ptrace(16, SLEEPER, 0, 0) == 0 or libc.ptrace(0, 0, 0, 0) == 0: print("BROKEN")
print("TRIED")""",
    ),
    Probe(
        name="new user namespace",
        program="""
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
if libc.unshare(0x10000000) == 0: print("BROKEN unshare")
pid = libc.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000000 | 17, 0, 0, 0, 0)
if pid == 0: os._exit(0)
if pid > 0: print("BROKEN clone")
print("TRIED")""",
    ),
    Probe(
        name="daemon",
        program="""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "3271"])
    os._exit(0)
time.sleep(0.3)
print("TRIED")""",
        holds=lambda ran, _: _TRIED in ran.stdout and not _running("3271"),
        full_only=True,
    ),
    Probe(
        name="output flood",
        program="""
import os
block = b"x" * 65536
while True: os.write(1, block)""",
        holds=lambda ran, _: ran.end == "output" and len(ran.stdout) <= 256 * 1024,
    ),
)


async def selftest(sandbox: Sandbox, probes: Iterable[Probe] = PROBES) -> list[Verdict]:
    """Try every attack; those that only full confinement holds are marked."""
    with host() as attacked:
        return [await _tried(sandbox, probe, attacked) for probe in probes]


async def _tried(sandbox: Sandbox, probe: Probe, attacked: Host) -> Verdict:
    words = {
        "TCP": attacked.tcp_port,
        "UDP": attacked.udp_port,
        "ABSTRACT": attacked.abstract,
        "FOLDER": attacked.folder,
        "SLEEPER": attacked.sleeper,
        "SECRET": _SECRET,
    }
    program = probe.program.strip()
    for name, value in words.items():
        program = program.replace(name, str(value))
    job = Job(argv=(sandbox.python, "-I", "-S", "-c", program), limits=probe.limits)
    try:
        ran = await sandbox.run(job)
    except SandboxError as error:
        return Verdict(
            name=probe.name, held=False, seen=f"not tried: {error}", full_only=probe.full_only
        )
    return Verdict(
        name=probe.name,
        held=probe.holds(ran, attacked),
        seen=_seen(ran),
        full_only=probe.full_only,
    )


def _seen(ran: Ran) -> str:
    said = (ran.stdout or ran.stderr)[:80].decode("utf-8", "replace").strip()
    how = f"code {ran.exit_code}" if ran.end == "exited" else f"killed: {ran.end}"
    return f"{how} after {ran.wall_s:.2f} s, said {said!r}" if len(said) < 60 else how


@contextmanager
def host() -> Generator[Host]:
    """Put up what the probes attack: sockets, files, a process, a variable."""
    abstract = f"learnloop-selftest-{os.getpid()}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        (folder / "open.txt").write_text(_SECRET)
        (folder / "root.txt").write_text(_SECRET)
        (folder / "root.txt").chmod(0o600)
        tcp = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
        udp = stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        udp.bind(("127.0.0.1", 0))
        udp.setblocking(False)
        named = stack.enter_context(socket.socket(socket.AF_UNIX))
        named.bind(f"\0{abstract}")
        named.listen()
        sleeper = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
        )
        stack.callback(sleeper.wait)
        stack.callback(sleeper.kill)
        os.environ["LEARNLOOP_SELFTEST"] = _SECRET
        stack.callback(os.environ.pop, "LEARNLOOP_SELFTEST")
        yield Host(
            folder=folder,
            tcp_port=tcp.getsockname()[1],
            udp_port=udp.getsockname()[1],
            abstract=abstract,
            sleeper=sleeper.pid,
            heard=lambda: _heard(udp),
        )


def _heard(udp: socket.socket) -> bool:
    try:
        return bool(udp.recv(100))
    except BlockingIOError:
        return False


def _running(word: str) -> bool:
    """Return whether a process of the host has a word in its command line, a moment later."""
    time.sleep(0.1)
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if word.encode() in place.read_bytes().split(b"\0"):
                return True
    return False
