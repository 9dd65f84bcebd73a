"""`learnloop config`: the settings that are in force."""

from __future__ import annotations

import json
from pathlib import Path

from learnloop.cli.options import InProject
from learnloop.codec import config_leaves
from learnloop.project import Project


def show(
    folder: Path | None = None, /, *, origin: bool = False, common: InProject | None = None
) -> None:
    """Show every setting, defaults included; header values are masked.

    Args:
        folder: the project's folder.
        origin: tell where each setting was made.
        common: how to print, and which project.
    """
    common = common or InProject()
    output = common.output
    project = Project.open(common.folder(folder))
    leaves = config_leaves(project.config)
    origins = {key: project.origins.get(key, "default") for key in leaves}
    if output.json:
        data = {"hash": project.config_hash, "settings": leaves}
        output.data({**data, "origins": origins} if origin else data)
    else:
        for key, value in leaves.items():
            remark = f"  # {origins[key]}" if origin else ""
            output.text(f"{key} = {json.dumps(value, ensure_ascii=False)}{remark}")
    output.next(common.command("check", folder))
