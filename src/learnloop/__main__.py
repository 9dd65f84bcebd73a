"""Entry of `python -m learnloop`."""

from __future__ import annotations

import sys

from learnloop.cli import main

if __name__ == "__main__":
    sys.exit(main())
