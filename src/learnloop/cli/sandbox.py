"""`learnloop sandbox`: what confines foreign code on this machine, and whether it holds."""

from __future__ import annotations

from dataclasses import asdict

import anyio

from learnloop.cli.findings import Line, print_lines
from learnloop.cli.options import Common
from learnloop.errors import GateNotMet
from learnloop.sandboxes import Ladder, find_sandbox
from learnloop.sandboxes.selftest import Verdict
from learnloop.sandboxes.selftest import selftest as attack


def selftest(*, common: Common | None = None) -> int:
    """Attack the strongest sandbox of this machine in every way we know; what holds is told.

    Args:
        common: how to print.
    """
    output = (common or Common()).output
    ladder, verdicts = anyio.run(_attacked)
    level = ladder.sandbox.level if ladder.sandbox else None
    # What only namespaces can hold is no fault of a weaker level, and is told as a warning.
    is_weaker = level != "full"
    broken = [v for v in verdicts if not v.held and not (v.full_only and is_weaker)]
    ok = level in ("full", "landlock") and not broken
    if output.json:
        output.data(
            {
                "ok": ok,
                "level": level,
                "missing": [{"level": name, "why": why} for name, why in ladder.missing],
                "probes": [asdict(v) for v in verdicts],
            }
        )
    else:
        output.text(f"level: {level or 'none: nothing can be confined here'}")
        lines = [Line(level="warning", text=f"no {name}: {why}") for name, why in ladder.missing]
        print_lines(output, [*lines, *(_line(v, is_weaker=is_weaker) for v in verdicts)])
    output.next("learnloop doctor" if ok else "install bubblewrap, then learnloop sandbox selftest")
    return 0 if ok else GateNotMet.exit_code


async def _attacked() -> tuple[Ladder, list[Verdict]]:
    ladder = await find_sandbox()
    return ladder, await attack(ladder.sandbox) if ladder.sandbox else []


def _line(verdict: Verdict, *, is_weaker: bool) -> Line:
    if verdict.held:
        return Line(level="ok", text=f"{verdict.name}: held ({verdict.seen})")
    level = "warning" if verdict.full_only and is_weaker else "error"
    return Line(level=level, text=f"{verdict.name}: NOT held ({verdict.seen})")
