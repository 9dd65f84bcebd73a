"""`learnloop init`: a runnable project folder from a template."""

from __future__ import annotations

import os
import shlex
import shutil
from pathlib import Path

import learnloop
from learnloop.cli.options import Common
from learnloop.codec.limits import suggestion
from learnloop.errors import UsageError, writing

_LEFT_OUT = {"data", ".learnloop", "__pycache__", ".pytest_cache", ".ruff_cache"}


def init(
    folder: Path | None = None, /, *, template: str = "reports", common: Common | None = None
) -> None:
    """Make a runnable project folder from a template; files that exist are never overwritten.

    Args:
        folder: the folder to make; named like the template when left out.
        template: what to start from.
        common: how to print.
    """
    output = (common or Common()).output
    target = folder or Path(template)
    files = copy_template(template, target)
    if output.json:
        output.data({"folder": str(target), "files": files})
    else:
        output.text(str(target))
        for name in files:
            output.note(f"  {name}")
    output.next(f"learnloop check {shlex.quote(str(target))}")


def copy_template(template: str, target: Path) -> list[str]:
    """Copy a template into a folder, all of it or nothing; return the files it holds.

    Raises:
        UsageError: there is no such template, or one of its files is there already.
    """
    source = _source(template)
    names = sorted(_names(source))
    for name in names:
        if (target / name).exists():
            raise UsageError(
                "is there already and is never overwritten",
                where=str(target / name),
                fix="Name another folder.",
            )
    staging = target.absolute().parent / f".{target.name}.{os.getpid()}.partial"
    try:
        with writing(target):
            _copy(source, staging, names)
            _move(staging, target, names)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    return names


def _source(template: str) -> Path:
    """Return a template's folder: inside the installed package, or `examples/` of a checkout."""
    package = Path(learnloop.__file__).parent
    places = (package / "templates", package.parents[1] / "examples")
    known = {
        path.name: path
        for place in reversed(places)
        if place.is_dir()
        for path in place.iterdir()
        if (path / "learnloop.toml").is_file()
    }
    if template not in known:
        what = f"template `{template}` is unknown"
        raise UsageError(what, fix=suggestion(template, tuple(sorted(known))))
    return known[template]


def _names(source: Path) -> list[str]:
    return [
        str(path.relative_to(source))
        for path in source.rglob("*")
        if path.is_file() and not _LEFT_OUT & set(path.relative_to(source).parts)
    ]


def _copy(source: Path, staging: Path, names: list[str]) -> None:
    for name in names:
        (staging / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / name, staging / name)


def _move(staging: Path, target: Path, names: list[str]) -> None:
    if not target.exists():
        staging.rename(target)
        return
    for name in names:
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (staging / name).rename(target / name)
