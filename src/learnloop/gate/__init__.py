"""The gate: decides whether a candidate replaces the incumbent, from paired results.

Both arms are run afresh, pair by pair, in the order of `plan_pairs`. At pair counts fixed
beforehand (the looks) `decide` compares the arms with a boundary: the chance to adopt a candidate
that is no better on these tasks is at most `alpha`, however often one looks.

    plan = plan_pairs(task_ids, rules.looks[-1], seed)
    results, verdict = [], None
    while verdict is None:
        results += run(plan[len(results) : next_look(len(results), rules)])
        verdict = decide(results, rules)

Results count in planned order, never in the order in which they finish: where failures are slow,
finish order alone adopts a third of the candidates that changed nothing.

What an adoption claims is "better on these tasks". The size of the gain seen here exceeds the
truth and is never reported as the gain; that comes from the sealed test.
"""

from learnloop.gate.cheaper import CheaperRules, decide_cheaper, either
from learnloop.gate.decision import decide
from learnloop.gate.early import refuse_early
from learnloop.gate.label import FEW_TASKS, task_level_z
from learnloop.gate.losses import LEAST_COVERAGE
from learnloop.gate.noise import Detectable, Noise, detectable, noise_of
from learnloop.gate.pair import PairResult, PlannedPair, passes_of, plan_pairs
from learnloop.gate.pool import ErrorPool
from learnloop.gate.power import Power, minimum_detectable_effect, pairs_needed, power
from learnloop.gate.regression import (
    LEAST_TRIES,
    Regression,
    Tries,
    confirmed,
    protected,
    regressions,
    tries_needed,
    veto_words,
)
from learnloop.gate.result import CheaperLook, Claim, Flips, GateOutcome, GateResult, Look, Tally
from learnloop.gate.rules import GateRules, Scores, look_after, next_look

__all__ = [
    "FEW_TASKS",
    "LEAST_COVERAGE",
    "LEAST_TRIES",
    "CheaperLook",
    "CheaperRules",
    "Claim",
    "Detectable",
    "ErrorPool",
    "Flips",
    "GateOutcome",
    "GateResult",
    "GateRules",
    "Look",
    "Noise",
    "PairResult",
    "PlannedPair",
    "Power",
    "Regression",
    "Scores",
    "Tally",
    "Tries",
    "confirmed",
    "decide",
    "decide_cheaper",
    "detectable",
    "either",
    "look_after",
    "minimum_detectable_effect",
    "next_look",
    "noise_of",
    "pairs_needed",
    "passes_of",
    "plan_pairs",
    "power",
    "protected",
    "refuse_early",
    "regressions",
    "task_level_z",
    "tries_needed",
    "veto_words",
]
