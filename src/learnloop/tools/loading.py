"""Finds the Python function that a setting names."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from learnloop.boundary import boundary
from learnloop.errors import ConfigError, ToolError


def load_function(place: str, root: Path, *, where: str) -> Callable[..., Any]:
    """Return the function at `tools.py:search` (a file of the project) or `package.module:search`.

    Args:
        place: file or module, a colon, the function's name.
        root: the project's folder; its modules can be imported.
        where: the tool, for the message.

    Raises:
        ConfigError: there is no such function, or its module does not load.
    """
    source, _, name = place.rpartition(":")
    where = f"{where}: `{place}`"
    if str(root) not in sys.path:
        sys.path.append(str(root))  # last, so that a project's file hides no installed module
    try:
        with boundary("tool"):
            module = _file(root / source, where) if source.endswith(".py") else _module(source)
    except ToolError as fault:
        raise ConfigError(f"`{source}` does not load: {fault}", where=where) from fault
    found = getattr(module, name, None)
    if found is None:
        raise ConfigError(f"`{source}` has no `{name}`", where=where, fix="Correct the name.")
    if not callable(found) or isinstance(found, type):
        raise ConfigError(f"`{name}` is no function", where=where)
    return cast("Callable[..., Any]", found)


def _module(name: str) -> ModuleType:
    importlib.invalidate_caches()
    return importlib.import_module(name)


def _file(path: Path, where: str) -> ModuleType:
    """Return the module of a file; the same file, unchanged, is loaded once in a process."""
    try:
        state = path.stat()
    except OSError as error:
        what = f"the file cannot be read ({error.strerror})"
        raise ConfigError(what, where=where, fix="Paths count from the project.") from None
    mark = f"{path.resolve()} {state.st_mtime_ns} {state.st_size}"
    name = f"learnloop_tool_{path.stem}_{hashlib.sha256(mark.encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up while it loads
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
