"""What orchestration costs, what it leaves behind, and whether faults ever become scores.

    python bench/runner.py --run | --check

A door to `orchestration.py`, which runs as a module from the root of the repository: its fault
server, and the comparison with what that server did, are those of the tests.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    os.execv(sys.executable, [sys.executable, "-m", "bench.orchestration", *sys.argv[1:]])
