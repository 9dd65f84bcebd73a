"""Entry of the policy process: `python -m learnloop.policy SOCKET [--threads N]`."""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import os
import signal
import sys
from pathlib import Path


def die_with_parent() -> None:
    """Ask Linux to end this process when its parent dies, so that a killed run leaves nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGTERM)


def main() -> None:
    """Parse arguments and serve until the client goes away."""
    parser = argparse.ArgumentParser(prog="learnloop.policy")
    parser.add_argument("socket", type=Path)
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    die_with_parent()
    # Must be set before torch loads: spinning OpenMP threads starve tools that share the cores.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    import torch

    from learnloop.policy.server import serve

    if args.threads:
        torch.set_num_threads(args.threads)
    asyncio.run(serve(args.socket))


if __name__ == "__main__":
    main()
