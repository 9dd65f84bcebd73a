"""Looks over the machine: can learnloop run here, and what would make it run better?

`diagnose` only reads; it loads neither torch nor a model, so that it also works where they fail.
"""

from __future__ import annotations

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

from learnloop.models.registry import INSTALL_LOCAL, cache_root, list_models

Status = Literal["ok", "warning", "problem"]

_LOCAL_PACKAGES = ("torch", "transformers", "peft", "safetensors", "gguf")
_MEMORY_GIB, _DISK_GIB = 11.0, 2.0


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that was looked at, and what to do about it when it is not as it should be."""

    name: str
    status: Status
    detail: str
    fix: str = ""


def diagnose(
    *, environ: Mapping[str, str] = os.environ, cache_dir: Path | None = None
) -> tuple[Finding, ...]:
    """Return one finding for each thing that learnloop depends on.

    Args:
        environ: the environment variables to judge.
        cache_dir: the model cache; see `cache_root`.
    """
    root = cache_root(cache_dir)
    return (
        _python(),
        _local_packages(),
        _openmp(environ),
        _cores(),
        _memory(),
        _disk(root),
        _model(root),
        _sqlite(),
        _bubblewrap(),
        _chromium(),
    )


def _python() -> Finding:
    detail = f"{platform.python_implementation()} {platform.python_version()}"
    return _judge(
        "python", detail, good=sys.version_info >= (3, 11), fix="Use Python 3.11 or newer"
    )


def _local_packages() -> Finding:
    versions = {name: _version(name) for name in _LOCAL_PACKAGES}
    missing = [name for name, found in versions.items() if not found]
    if missing:
        detail = f"not installed: {', '.join(missing)}"
        return Finding(name="local models", status="warning", detail=detail, fix=INSTALL_LOCAL)
    detail = ", ".join(f"{name} {found}" for name, found in versions.items())
    return Finding(name="local models", status="ok", detail=detail)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def _openmp(environ: Mapping[str, str]) -> Finding:
    # Threads that spin at the end of a parallel region take the cores that tools need.
    policy = environ.get("OMP_WAIT_POLICY", "")
    spinning = policy.lower() == "active" or environ.get("GOMP_SPINCOUNT", "0") not in {"", "0"}
    detail = f"OMP_WAIT_POLICY={policy}" if policy else "not set; the policy process sets passive"
    return _judge(
        "openmp",
        detail,
        good=not spinning,
        fix="Unset OMP_WAIT_POLICY and GOMP_SPINCOUNT",
        soft=True,
    )


def _cores() -> Finding:
    cores = usable_cores()
    return _judge(
        "cores", f"{cores} usable", good=cores >= 2, fix="Training on one core is slow", soft=True
    )


def usable_cores() -> int:
    """Return how many cores this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> Finding:
    names = os.sysconf_names
    if "SC_PHYS_PAGES" not in names or "SC_PAGE_SIZE" not in names:
        return Finding(name="memory", status="warning", detail="unknown on this system")
    gib = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30
    fix = f"Training the embedded model wants {_MEMORY_GIB:.0f} GiB"
    return _judge("memory", f"{gib:.1f} GiB", good=gib >= _MEMORY_GIB - 0.5, fix=fix, soft=True)


def _disk(root: Path) -> Finding:
    folder = next(path for path in (root, *root.parents) if path.exists())
    gib = shutil.disk_usage(folder).free / 2**30
    fix = "Free some space, or set LEARNLOOP_CACHE to a folder on another disk"
    return _judge(
        "disk", f"{gib:.1f} GiB free in {folder}", good=gib >= _DISK_GIB, fix=fix, soft=True
    )


def _model(root: Path) -> Finding:
    entry = list_models(root)[0]
    detail = f"{entry.name} {entry.state}"
    if entry.state == "damaged":
        detail += f": {entry.detail}"
    return _judge(
        "model",
        f"{detail} in {root}",
        good=entry.state == "ready",
        fix=f"Run `learnloop models pull {entry.name}`",
        soft=entry.state == "missing",
    )


def _sqlite() -> Finding:
    with closing(sqlite3.connect(":memory:")) as database:
        try:
            database.execute("CREATE VIRTUAL TABLE probe USING fts5(body)")
        except sqlite3.OperationalError:
            fix = "Use a Python whose SQLite has FTS5, such as python.org's or your distribution's"
            detail = f"{sqlite3.sqlite_version} without FTS5"
            return Finding(name="sqlite", status="problem", detail=detail, fix=fix)
    return Finding(name="sqlite", status="ok", detail=f"{sqlite3.sqlite_version} with FTS5")


def _bubblewrap() -> Finding:
    return _program(
        "bubblewrap", ("bwrap",), fix="Untrusted code runs in it: install the package bubblewrap"
    )


def _chromium() -> Finding:
    return _program(
        "chromium",
        ("chromium", "chromium-browser", "google-chrome"),
        fix="Only tests of reports use it: install the package chromium",
    )


def _program(name: str, commands: tuple[str, ...], *, fix: str) -> Finding:
    path = next((found for command in commands if (found := shutil.which(command))), None)
    if path is None:
        return Finding(name=name, status="warning", detail="not installed", fix=fix)
    try:
        asked = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return Finding(name=name, status="warning", detail=f"{path} does not start", fix=fix)
    detail = (asked.stdout.strip().splitlines() or [path])[0]
    return Finding(name=name, status="ok", detail=detail)


def _judge(name: str, detail: str, *, good: bool, fix: str, soft: bool = False) -> Finding:
    if good:
        return Finding(name=name, status="ok", detail=detail)
    return Finding(name=name, status="warning" if soft else "problem", detail=detail, fix=fix)
