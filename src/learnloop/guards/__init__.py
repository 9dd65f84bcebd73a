"""Guards: they look at every graded rollout, and a reward that was had by a trick does not count.

text.py       what an agent says: answers that aim at the grader
code.py       what an agent's programs and commands do to the ones that test them
commands.py   shell commands
program.py    a program as guards read it
statistic.py  what a whole run shows: rewards that jump, or part from held-out ones
grading.py    the grader with guards around it
"""

from __future__ import annotations

from learnloop.guard import Guard
from learnloop.guards import code, text
from learnloop.guards.grading import UNGUARDED, UNGUARDED_CORRECT, GuardedGrader

__all__ = ["CATALOGUE", "UNGUARDED", "UNGUARDED_CORRECT", "GuardedGrader"]

CATALOGUE: dict[str, Guard] = {guard.id: guard for guard in (*text.GUARDS, *code.GUARDS)}
