"""Options that many commands share."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from learnloop.cli.output import Output
from learnloop.errors import UsageError


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Common:
    """How a command speaks."""

    json: bool = False
    """Print one JSON object with `schema_version` on stdout."""
    quiet: bool = False
    """Print nothing on stderr but errors."""
    verbose: bool = False
    """Show the traceback of an unexpected error."""

    @property
    def output(self) -> Output:
        """Return where the command prints."""
        return Output(json=self.json, quiet=self.quiet)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InProject(Common):
    """How a command that works on a project speaks, and which project it is."""

    project: Annotated[Path | None, Parameter(name="--project")] = None
    """The project's folder; found upward from the working folder when left out."""

    def folder(self, first: Path | None) -> Path | None:
        """Return the folder from `--project` or from a command's first argument.

        Raises:
            UsageError: both are given and differ.
        """
        if first is not None and self.project is not None and first != self.project:
            raise UsageError("the project is named twice", fix="Leave out the folder or --project.")
        return first if first is not None else self.project

    def command(self, verb: str, first: Path | None = None) -> str:
        """Return a command on the same project, ready to be pasted."""
        folder = self.folder(first)
        return (
            f"learnloop {verb} --project {shlex.quote(str(folder))}"
            if folder
            else f"learnloop {verb}"
        )
