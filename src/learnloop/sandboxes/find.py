"""The ladder: the strongest confinement that this machine has, found by trying it."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace

from learnloop.errors import ConfigError, SandboxError
from learnloop.sandbox import Job, Level, Limits, Sandbox
from learnloop.sandboxes.bubblewrap import Bubblewrap, usable_python
from learnloop.sandboxes.landlock import Landlocked

_TRIED = Job(argv=("/bin/sh", "-c", "exit 7"), limits=Limits(wall_s=20))


@dataclass(frozen=True, kw_only=True)
class Ladder:
    """What was found: the sandbox, and why each stronger level is not there."""

    sandbox: Sandbox | None
    missing: tuple[tuple[Level, str], ...]

    def use(self, *, allow_unsandboxed: bool = False) -> Sandbox:
        """Return the sandbox.

        Raises:
            ConfigError: there is none, or only limits, which nobody allowed.
        """
        why = "; ".join(f"{level}: {words}" for level, words in self.missing)
        if self.sandbox is None:
            raise ConfigError(
                f"foreign code cannot be confined on this machine ({why})", fix=_INSTALL
            )
        if self.sandbox.level == "limits" and not allow_unsandboxed:
            raise ConfigError(
                f"only resource limits would hold foreign code here ({why})",
                fix=f"{_INSTALL} Or allow it: sandbox.allow_unsandboxed = true.",
            )
        return self.sandbox


_INSTALL = "Install bubblewrap (Debian: apt install bubblewrap)."


async def find_sandbox() -> Ladder:
    """Return the strongest sandbox that runs a job here."""
    missing: list[tuple[Level, str]] = []
    python, reads = usable_python()
    if sys.platform != "linux":
        return Ladder(sandbox=None, missing=(("full", f"{sys.platform} has no namespaces"),))
    program = shutil.which("bwrap")
    if program is None:
        missing.append(("full", "bubblewrap is not installed"))
    else:
        found = Bubblewrap(program=program, python=python, reads=reads)
        if not (why := await _fails(found)):
            return Ladder(sandbox=found, missing=())
        missing.append(("full", why))
    landlocked = Landlocked(level="landlock", python=python, reads=reads)
    if not (why := await _fails(landlocked)):
        return Ladder(sandbox=landlocked, missing=tuple(missing))
    missing.append(("landlock", why))
    limited = replace(landlocked, level="limits")
    if not (why := await _fails(limited)):
        return Ladder(sandbox=limited, missing=tuple(missing))
    missing.append(("limits", why))
    return Ladder(sandbox=None, missing=tuple(missing))


async def _fails(sandbox: Sandbox) -> str:
    """Return why a sandbox does not run a job; empty when it does."""
    try:
        ran = await sandbox.run(_TRIED)
    except SandboxError as error:
        return str(error)
    if ran.exit_code == _SEVEN:
        return ""
    return ran.stderr.decode("utf-8", "replace").strip()[:200] or f"ended with {ran.exit_code}"


_SEVEN = 7
