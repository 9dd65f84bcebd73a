"""`learnloop doctor`: looks over the machine."""

from __future__ import annotations

from learnloop.cli.findings import Line, print_lines
from learnloop.cli.options import Common
from learnloop.doctor import diagnose
from learnloop.errors import ConfigError


def doctor(*, common: Common | None = None) -> int:
    """Look over this machine: what learnloop needs, and what would make it better.

    Args:
        common: how to print.
    """
    output = (common or Common()).output
    found = diagnose()
    problems = [f for f in found if f.status == "problem"]
    if output.json:
        findings = [
            {"name": f.name, "status": f.status, "detail": f.detail, "fix": f.fix} for f in found
        ]
        output.data({"ok": not problems, "findings": findings})
    else:
        print_lines(
            output,
            [
                Line(
                    level="error" if f.status == "problem" else f.status,
                    text=f"{f.name}: {f.detail}",
                    fix=f.fix,
                )
                for f in found
            ],
        )
    output.next("learnloop init" if not problems else "mend what is marked, then learnloop doctor")
    return ConfigError.exit_code if problems else 0
