"""Entry of the policy process: `python -m learnloop.policy SOCKET [--threads N] [--parent PID]`."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask Linux to end this process when its parent dies, so that a killed run leaves nothing.

    Elsewhere the process ends by itself when its socket closes.
    """
    if sys.platform == "linux" and parent:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(1)


def main() -> None:
    """Parse arguments and serve until the client goes away."""
    parser = argparse.ArgumentParser(prog="learnloop.policy")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--parent", type=int, default=0)
    args = parser.parse_args()
    die_with_parent(args.parent)
    # Must be set before torch loads: spinning OpenMP threads starve tools that share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    import torch

    from learnloop.policy.server import serve

    if args.threads:
        torch.set_num_threads(args.threads)
    asyncio.run(serve(args.socket))
    # The engine's thread may still be inside torch, whose teardown would abort: leave at once.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
