"""Handing freed memory back to the operating system."""

from __future__ import annotations

import ctypes
import sys


def trim() -> None:
    """Return pages that are free inside the C allocator, where it can (glibc); else do nothing.

    Sampling and training take turns with blocks of different sizes. Without this, each keeps what
    the other has freed, and the peak is the sum of both.
    """
    if sys.platform != "linux":
        return
    release = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if release is not None:
        release(0)
