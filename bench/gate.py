"""How often the gate is wrong, how often it finds a gain, and what others' rules do in the same worlds.

    python bench/gate.py --quick --check     a small simulation now, and the committed figures
    python bench/gate.py --run               the full simulation; writes results/gate/
    python bench/gate.py --check             recomputes all figures from the committed rows

A door to `gate_study.py`, which runs as a module from the root of the repository.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.chdir(Path(__file__).resolve().parent.parent)
    os.execv(sys.executable, [sys.executable, "-m", "bench.gate_study", *sys.argv[1:]])
