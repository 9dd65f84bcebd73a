"""A pool of interpreters that wait in their sandboxes: a job need not wait for one to start.

Each takes one job and ends with it, so that nothing passes from one job to the next.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
from anyio.abc import ObjectReceiveStream, ObjectSendStream

from learnloop.errors import SandboxError
from learnloop.sandbox import Job, Limits, Ran
from learnloop.sandboxes.bubblewrap import Begun, Bubblewrap
from learnloop.sandboxes.process import end_confined

# Reads one line of JSON, {"source", "files"}, then runs the source with what is left as its input. Tearing
# the interpreter down would take longer than most programs: it ends as soon as everything is written.
_WAITING = """
import atexit, json, math, os, re, sys, traceback
line = sys.stdin.buffer.readline()
code = 0
try:
    given = json.loads(line or '{"source": "", "files": {}}')
    for name, text in given["files"].items():
        os.makedirs(os.path.dirname(name) or ".", exist_ok=True)
        with open(name, "w", encoding="utf-8", errors="surrogatepass") as file: file.write(text)
    sys.argv = ["program.py"]
    exec(compile(given["source"], "program.py", "exec"), {"__name__": "__main__"})
except SystemExit as end:
    code = end.code if isinstance(end.code, int) else int(end.code is not None)
    if end.code is not None and not isinstance(end.code, int): print(end.code, file=sys.stderr)
except BaseException:
    code = 1
    traceback.print_exc()
atexit._run_exitfuncs()
sys.stdout.flush()
sys.stderr.flush()
os._exit(code & 255)
"""


@dataclass(kw_only=True)
class PythonPool:
    """Runs Python programs in sandboxes that are up already; use as `async with pool.open()`.

    Attributes:
        sandbox: where they run.
        limits: under which they run, all of them alike.
        size: how many wait.
    """

    sandbox: Bubblewrap
    limits: Limits = field(default_factory=Limits)
    size: int = 2
    _ready: ObjectReceiveStream[_Waiting] | None = None

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[PythonPool]:
        """Keep interpreters waiting until the end of the block."""
        give, self._ready = anyio.create_memory_object_stream[_Waiting](0)
        async with give, self._ready, anyio.create_task_group() as group:
            for _ in range(self.size):
                group.start_soon(self._keep_one_ready, give)
            try:
                yield self
            finally:
                self._ready = None
                group.cancel_scope.cancel()

    async def run(self, source: str, stdin: bytes = b"", **files: str) -> Ran:
        """Run a program; `files` are in its working folder.

        Raises:
            SandboxError: no sandbox came up.
        """
        assert self._ready is not None, "the pool is open"
        waiting = await self._ready.receive()
        while waiting.begun is None or waiting.begun.process.returncode is not None:
            waiting.done.set()
            if waiting.error is not None:
                raise waiting.error
            waiting = await self._ready.receive()  # it died while it waited
        try:
            head = json.dumps({"source": source, "files": files}).encode() + b"\n"
            job = Job(argv=(), stdin=head + stdin, limits=self.limits)
            ended = await end_confined(waiting.begun.process, job)
            return self.sandbox.result(waiting.begun, ended, {})
        finally:
            waiting.done.set()

    async def _keep_one_ready(self, give: ObjectSendStream[_Waiting]) -> None:
        """Start an interpreter, hand it out when somebody wants it, and start the next when it is done."""
        job = Job(argv=(self.sandbox.python, "-I", "-S", "-c", _WAITING), limits=self.limits)
        while True:
            try:
                async with self.sandbox.started(job) as begun:
                    waiting = _Waiting(begun=begun)
                    await give.send(waiting)
                    await waiting.done.wait()
            except SandboxError as error:
                await give.send(_Waiting(error=error))


@dataclass(kw_only=True)
class _Waiting:
    """An interpreter that waits for its job."""

    begun: Begun | None = None
    error: SandboxError | None = None
    done: anyio.Event = field(default_factory=anyio.Event)
