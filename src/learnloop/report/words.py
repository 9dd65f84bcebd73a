"""The report's sentences: the verdict, its caveats, the method box, and what is still missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from learnloop.gate import Tally
from learnloop.report.document import Section, SplitReport, State
from learnloop.report.inputs import ReportInputs
from learnloop.report.measures import METHODS
from learnloop.stats import Estimate
from learnloop.summary import Comparison, points, sentence
from learnloop.task import SPLITS

OPEN_TEST = "learnloop report RUN --open-test"


def verdict_sentence(split: SplitReport) -> tuple[State, str]:
    """Return the state of the verdict and its sentence."""
    words = split.sentence
    if words.startswith("no headline"):
        return "refused", _sentence(words)
    if words.startswith("not decisive"):
        return "undecided", _sentence(words)
    state: State = "better" if words.startswith("beats") else "worse"
    base = "the baseline"
    if split.beside:
        words = words.replace(base, "the agent after its warm-up", 1)
    return state, _sentence(f"the trained agent {words}")


def caveats(inputs: ReportInputs, split: SplitReport) -> tuple[str, ...]:
    """Return what a reader must know beside the verdict."""
    lines: list[str] = []
    if split.split == "confirm":
        lines.append(
            f"Measured on the {split.tasks} confirm tasks that the gate used, which also decide "
            "about adoption, so the gain may be overstated. The gain comes from the sealed test: "
            f"{OPEN_TEST}."
        )
    elif inputs.seals:
        runs = len({seal.run_id for seal in inputs.seals})
        lines.append(f"The sealed test has been opened by {_count(runs, 'run')}.")
    if split.warmup_gain is not None:
        lines.append(
            "The comparison is against the agent after its supervised warm-up. The warm-up's own "
            f"gain over the untrained model was {points(split.warmup_gain.value)} points."
        )
    if inputs.label != "lift":
        lines.append(f"Label {inputs.label}: this says nothing about a real model.")
    return tuple(lines)


def method(inputs: ReportInputs, splits: Sequence[SplitReport]) -> tuple[tuple[str, str], ...]:
    """Return the method box as pairs of a heading and words."""
    rows = [
        ("Splits", _split_sizes(inputs)),
        ("Measured", "; ".join(_measured(split) for split in splits) or "nothing yet"),
        ("Training", _training(inputs)),
        ("Seeds", _seeds(inputs.config)),
        ("Excluded", _excluded(splits)),
        ("Guards", _guards(splits)),
        ("Warm-up", _warmup(inputs, splits)),
        ("Checkpoint", _checkpoint(inputs)),
        ("Noise", _noise(inputs)),
        ("Gate", _gate(inputs)),
        ("Sealed test", _seals(inputs)),
        ("Intervals", METHODS),
        (
            "Corrections",
            "One primary contrast, accuracy over all kinds. p values by kind are Holm-corrected "
            "over the kinds; their intervals are not. Costs are secondary and uncorrected.",
        ),
    ]
    return tuple((name, words) for name, words in rows if words)


def missing(inputs: ReportInputs) -> Mapping[Section, str]:
    """Return, for every part that does not exist yet, what will fill it."""
    held_out = "The evaluation of the trained agent on confirm, after the last step, fills this."
    measured = any(arms.get("final") for arms in (inputs.confirm, inputs.test))
    parts: dict[Section, tuple[bool, str]] = {
        "headline": (measured, held_out),
        "cases": (measured, held_out),
        "mix": (measured, f"Tool mix before and after. {held_out}"),
        "probe_before": (
            inputs.probe_before is not None,
            "The variance probe before training fills this (also: learnloop probe).",
        ),
        "probe_after": (
            inputs.probe_after is not None,
            "Variance after training. A probe of the trained agent fills this: learnloop probe.",
        ),
        "tools": (bool(inputs.steps), "Tool calls over steps. The first training step fills this."),
        "reward": (bool(inputs.steps), "The first training step fills this."),
        "test": (bool(inputs.test.get("final")), f"The sealed test is closed: {OPEN_TEST}."),
        "gate": (inputs.gate is not None, "The gate runs after the last step."),
    }
    return {name: words for name, (there, words) in parts.items() if not there}


def _sentence(words: str) -> str:
    return words[:1].upper() + words[1:] + ("" if words.endswith(".") else ".")


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def _split_sizes(inputs: ReportInputs) -> str:
    sizes = Counter(task.split for task in inputs.tasks.values())
    groups = {s: len({t.group for t in inputs.tasks.values() if t.split == s}) for s in SPLITS}
    parts = [f"{s} {sizes[s]} ({_count(groups[s], 'group')})" for s in SPLITS if sizes[s]]
    return ", ".join(parts) + ". Groups stay in one split." if parts else ""


def _measured(split: SplitReport) -> str:
    times = _count(split.attempts, "attempt")
    where = f"{_count(split.tasks, 'task')} of {split.split} in {_count(split.units, 'group')}"
    return f"{where}, {times} each, coverage {100 * split.coverage:.1f} %"


def _training(inputs: ReportInputs) -> str:
    if not inputs.steps:
        return ""
    planned = sum(step.planned for step in inputs.steps)
    graded = sum(step.graded for step in inputs.steps)
    of = f" of {inputs.steps_planned}" if inputs.steps_planned else ""
    return (
        f"{len(inputs.steps)}{of} steps, {planned} rollouts planned, {graded} graded, "
        f"{planned - graded} lost and left out of learning."
    )


def _seeds(config: Mapping[str, Any]) -> str:
    train: Mapping[str, Any] = config.get("train") or {}
    return f"Training seed {train['seed']}." if "seed" in train else ""


def _excluded(splits: Sequence[SplitReport]) -> str:
    lost = [f"{row.arm} on {s.split}: {row.lost}" for s in splits for row in s.counts if row.lost]
    if not splits:
        return ""
    if not lost:
        return "Nothing: every planned rollout has a score."
    return (
        f"Rollouts lost to faults outside the agent ({'; '.join(lost)}) have no score; a task counts "
        "when both arms have at least one graded attempt. The table shows accuracy with lost ones "
        "as failures too."
    )


def _guards(splits: Sequence[SplitReport]) -> str:
    """Say what guards found, and what accuracy would be without them."""
    if not splits:
        return ""
    told = [
        f"{row.arm} on {split.split}: {row.flagged} flagged, {row.blocked} counted as wrong"
        + (
            f" (accuracy without guards {100 * row.unguarded:.1f} %)"
            if row.unguarded is not None and row.blocked
            else ""
        )
        for split in splits
        for row in split.counts
        if row.flagged
    ]
    return f"{'; '.join(told)}." if told else "Found nothing in the measured rollouts."


def _warmup(inputs: ReportInputs, splits: Sequence[SplitReport]) -> str:
    gains = [(s.split, s.warmup_gain) for s in splits if s.warmup_gain is not None]
    if not gains:
        return "None." if splits else ""
    words = [f"{points(gain.value)} points on {split}{_spread(gain)}" for split, gain in gains]
    return f"A supervised stage of its own before training; its own gain: {', '.join(words)}."


def _spread(gain: Estimate) -> str:
    if gain.low is None or gain.high is None:
        return ""
    return f" (95 % CI {points(gain.low)} to {points(gain.high)})"


def _checkpoint(inputs: ReportInputs) -> str:
    chosen = [row for row in inputs.checkpoints if row.chosen]
    if not chosen:
        return ""
    return (
        f"Step {chosen[0].step} of {len(inputs.checkpoints)} candidates. {chosen[0].reason}".strip()
    )


def _noise(inputs: ReportInputs) -> str:
    if inputs.noise is None:
        return ""
    words = [f"A/A run before training: {inputs.noise.words}"]
    if inputs.detectable is not None:
        words.append(f"Under this noise {inputs.detectable.words}")
    return ". ".join(words) + "."


def rival_words(found: Comparison) -> str:
    """Return what a comparison with a rival shows, to stand behind its subject."""
    words = sentence(found)
    if words.startswith(("beats", "falls")):
        return words.replace("the baseline", "it", 1)
    return f"is measured: {words}"


def _gate(inputs: ReportInputs) -> str:
    gate = inputs.gate
    if gate is None:
        return ""
    words = f"{gate.outcome.replace('_', ' ')}: {gate.words}"
    if gate.looks and gate.claim == "better":
        words += f". {_tally(gate.looks[-1].clean, gate.pairs, len(gate.looks))}"
    if gate.claim == "cheaper" and gate.saving:
        look = gate.saving[-1]
        quality = min(look.quality_z, look.quality_z_with_faults)
        words += (
            f". Quality lies {quality:.1f} standard errors above the margin and cost {look.cost_z:.1f} "
            f"below the incumbent's, in {gate.pairs} interleaved pairs; {look.boundary:.1f} were "
            "needed of both"
        )
    return ". ".join(part for part in (words, gate.label) if part) + "."


def _tally(tally: Tally, pairs: int, looks: int) -> str:
    words = f"{tally.wins} wins and {tally.losses} losses in {pairs} interleaved pairs; "
    if tally.flips is not None:
        words += (
            f"of random sign flips {tally.flips.reaching} did as well, fewer than "
            f"{max(0, tally.flips.quota)} were allowed, and a bet on the mean reached "
            f"{tally.flips.e_value:.1f} of 10"
        )
    else:
        words += f"{tally.boundary} wins were needed"
    return f"{words} at this look, the {_count(looks, 'look')} so far sharing the error"


def _seals(inputs: ReportInputs) -> str:
    if not inputs.seals:
        return "Not opened."
    opened = "; ".join(f"{seal.run_id} at {seal.opened}" for seal in inputs.seals)
    runs = len({seal.run_id for seal in inputs.seals})
    return f"Opened by {_count(runs, 'run')}: {opened}."
