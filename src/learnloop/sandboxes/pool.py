"""A pool of interpreters that wait in their sandboxes: a job need not wait for one to start.

Each takes one job and ends with it, so that nothing passes from one job to the next.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import anyio
from anyio.abc import TaskGroup

from learnloop.errors import SandboxError
from learnloop.sandbox import Job, Limits, Ran, Sandbox
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
    """Runs Python programs in sandboxes that are up already; use as `async with pool`.

    Attributes:
        sandbox: where they run.
        limits: under which they run, all of them alike.
        size: how many wait.
    """

    sandbox: Bubblewrap
    limits: Limits = field(default_factory=Limits)
    size: int = 2
    _group: TaskGroup | None = None
    _waiting: deque[_Waiting] = field(default_factory=deque["_Waiting"])

    async def __aenter__(self) -> Self:
        """Have interpreters waiting."""
        self._group = await anyio.create_task_group().__aenter__()
        await self._refill()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End those that wait; what went wrong in the block goes on as it is."""
        group, self._group = self._group, None
        assert group is not None, "it was entered"
        group.cancel_scope.cancel()
        # Told of no error: the group would wrap it.
        await group.__aexit__(None, None, None)
        with anyio.CancelScope(shield=True):
            while self._waiting:
                await self._waiting.popleft().stack.aclose()

    async def run(self, source: str, stdin: bytes = b"", **files: str) -> Ran:
        """Run a program; `files` are in its working folder.

        Raises:
            SandboxError: no sandbox came up.
        """
        waiting = await self._take()
        head = json.dumps({"source": source, "files": files}).encode() + b"\n"
        job = Job(argv=(), stdin=head + stdin, limits=self.limits)
        async with waiting.stack:
            ended = await end_confined(waiting.begun.process, job)
            ran = self.sandbox.result(waiting.begun, ended, {})
        if self._group is not None:
            self._group.start_soon(self._refill)
        return ran

    async def _refill(self) -> None:
        """Have as many waiting as there should be; whoever finds none is told why."""
        with suppress(SandboxError):
            while len(self._waiting) < self.size:
                self._waiting.append(await self._start())

    async def _take(self) -> _Waiting:
        """Return an interpreter that waits; where none does, one that comes up now."""
        while self._waiting:
            waiting = self._waiting.popleft()
            if waiting.begun.process.returncode is None:
                return waiting
            await waiting.stack.aclose()  # it died while it waited
        return await self._start()

    async def _start(self) -> _Waiting:
        job = Job(argv=(self.sandbox.python, "-I", "-S", "-c", _WAITING), limits=self.limits)
        async with AsyncExitStack() as stack:
            begun = await stack.enter_async_context(self.sandbox.started(job))
            return _Waiting(begun=begun, stack=stack.pop_all())


@dataclass(frozen=True, kw_only=True)
class _Waiting:
    """An interpreter that waits for its job, and what is to be closed after it."""

    begun: Begun
    stack: AsyncExitStack


@dataclass(frozen=True, kw_only=True)
class ColdPython:
    """Runs Python programs one by one, each in an interpreter that is started for it."""

    sandbox: Sandbox
    limits: Limits

    async def run(self, source: str, stdin: bytes = b"", **files: str) -> Ran:
        """Run a program; `files` are in its working folder.

        Raises:
            SandboxError: the sandbox did not come up.
        """
        given = {name: text.encode("utf-8", "surrogatepass") for name, text in files.items()}
        job = Job(
            argv=(self.sandbox.python, "-I", "-S", "program.py"),
            files={**given, "program.py": source.encode("utf-8", "surrogatepass")},
            stdin=stdin,
            limits=self.limits,
        )
        return await self.sandbox.run(job)


@asynccontextmanager
async def open_runner(
    sandbox: Sandbox, limits: Limits, *, size: int = 2
) -> AsyncGenerator[PythonPool | ColdPython]:
    """Yield what runs Python programs in a sandbox: with interpreters that wait, where it can have them."""
    if not isinstance(sandbox, Bubblewrap):
        yield ColdPython(sandbox=sandbox, limits=limits)
        return
    async with PythonPool(sandbox=sandbox, limits=limits, size=size) as pool:
        yield pool
