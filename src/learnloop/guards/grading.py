"""The project's grader with guards around it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Sequence
from dataclasses import replace

from learnloop.grader import Grader
from learnloop.guard import Guard, Hit
from learnloop.task import Task
from learnloop.trace import Score, Trace

UNGUARDED, UNGUARDED_CORRECT = "unguarded", "unguarded_correct"
"""Names of the parts that hold what a blocked rollout would have got: reward, and accuracy."""

_VERSION = 1


class GuardedGrader:
    """Grades, then has every guard look; what a blocking guard finds is rewarded as a hack.

    The names of guards that found something are in `flags`, what they saw in `explanation`; the reward as the
    grader gave it stays in `parts["unguarded"]`, so that reports can tell both.
    """

    def __init__(
        self,
        inner: Grader,
        guards: Sequence[Guard],
        *,
        flag_only: Collection[str] = (),
        hack_reward: float = 0.0,
    ) -> None:
        self.inner, self._guards = inner, tuple(guards)
        self._flag_only, self._hack_reward = frozenset(flag_only), hack_reward

    @property
    def version(self) -> str:
        """Return the version of the inner grader and of the guards that can change a reward."""
        blocking = sorted(g.id for g in self._guards if self._blocks(g))
        if not blocking:
            return self.inner.version
        text = json.dumps([_VERSION, self.inner.version, blocking, self._hack_reward])
        return f"guarded-{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    async def grade(self, task: Task, trace: Trace) -> Score:
        """Return the score, or that of a hack."""
        score = await self.inner.grade(task, trace)
        hits = [hit for guard in self._guards if (hit := guard.look(task, trace, score))]
        if not hits:
            return score
        flagged = replace(
            score,
            flags=tuple(dict.fromkeys((*score.flags, *(hit.guard for hit in hits)))),
            explanation="; ".join(filter(None, (score.explanation, *map(_words, hits)))),
        )
        blocking = {g.id for g in self._guards if self._blocks(g)}
        if not any(hit.guard in blocking for hit in hits):
            return flagged
        parts = {**score.parts, UNGUARDED: score.value, UNGUARDED_CORRECT: score.correct}
        return replace(flagged, value=self._hack_reward, correct=0.0, parts=parts)

    def _blocks(self, guard: Guard) -> bool:
        return guard.severity == "block" and guard.id not in self._flag_only


def _words(hit: Hit) -> str:
    return f"{hit.guard}: {hit.words} ({hit.evidence})"
