"""Run a command, and end it with all it started as soon as our standard input closes.

learnloop starts each service through this script and holds the other end of its standard input.
However learnloop dies, the kernel closes that end, so not even `kill -9` leaves a service behind.
The script runs by its path with the standard library alone, in a session of its own.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
from types import FrameType

GRACE_S = 3.0
POLL_S = 0.2


def main(command: list[str]) -> int:
    """Return the command's exit code; does not return once the parent is gone."""
    # A handler, not SIG_IGN: being ignored would pass through exec to the command.
    signal.signal(signal.SIGTERM, _stay)
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        return 127
    while child.poll() is None:
        # The parent never writes: readable means that it closed its end.
        if select.select([0], [], [], POLL_S)[0]:
            _end(child)
    return child.returncode


def _end(child: subprocess.Popen[bytes]) -> None:
    os.killpg(0, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        child.wait(timeout=GRACE_S)
    # Whoever is left of the group goes, this script with it.
    os.killpg(0, signal.SIGKILL)


def _stay(_number: int, _frame: FrameType | None) -> None:
    """Survive the signal that this script sends to its own group."""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
