"""How a run's candidate is judged: the A/A run before, the gate, and the regression check after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from learnloop.batch import attempts_on
from learnloop.errors import StoppedEarly
from learnloop.gate import (
    LEAST_TRIES,
    Detectable,
    GateResult,
    Noise,
    PairResult,
    PlannedPair,
    Regression,
    Tries,
    confirmed,
    noise_of,
    protected,
    refuse_early,
    regressions,
    tries_needed,
    veto_words,
)
from learnloop.report import ArmName
from learnloop.run import UNTRAINED, Run
from learnloop.splits import find_leaks, in_split, sample_tasks
from learnloop.task import Split, Task
from learnloop.trace import Trace
from learnloop.trial import Trial, answers_alike, pool_after, trial_of, visible_gain

AA_STAGE = "aa"
"""Where the second arm of an A/A run is filed."""


async def measure_noise(run: Run) -> None:
    """Try the agent before training twice on some screen tasks: an A/A run, for its noise alone.

    Its first arm belongs to the evaluation before training, which does not make it again. Where that is
    done already, there is no A/A run: its arms would not have been made at once.

    Raises:
        StoppedEarly: the gate would hardly show the gain that is wanted.
    """
    wanted, history = run.config.gate.aa_tasks, run.history
    if wanted and not history.done("noise") and not history.done("evaluation", 0):
        run.begin_stage("A/A run")
        looked_at = run.sample("screen", run.config.train.eval_tasks)
        plan = attempts_on(sample_tasks(looked_at, wanted, seed=run.config.train.seed))
        both = (run.batch(stage, run.base, plan) for stage in ("screen", AA_STAGE))
        tell_noise(run, *(await run.roll(*both)))
    if not history.done("step"):
        refuse_underpowered(run)


def tell_noise(run: Run, first: Sequence[Trace], second: Sequence[Trace]) -> None:
    """Emit what two arms of one candidate show, which were made at once on the same tasks."""
    trial = next_trial(run)
    pairs = zip(first, second, strict=True)
    noise = noise_of([trial.result(run.tasks[a.task_id], a, b) for a, b in pairs])
    confirm = sum(task.split == "confirm" for task in run.tasks.values())
    words = noise.words
    if noise.pairs and confirm:
        words += f"; with this noise {_visible(run, noise).words}"
    run.emit("noise", **asdict(noise), words=words)


def _visible(run: Run, noise: Noise) -> Detectable:
    confirm = len(in_split(run.tasks.values(), "confirm"))
    once = answers_alike(noise, run.config.model.temperature)
    return visible_gain(run.config.gate, noise.share, tasks=confirm, once=once)


def refuse_underpowered(run: Run) -> None:
    """Stop a run that would hardly show the wanted gain, unless that is accepted, now or earlier.

    Raises:
        StoppedEarly: says how many pairs it takes.
    """
    noise, config = run.history.noise, run.config.gate
    if config.accept_underpowered and config.target:
        run.emit_once("underpowered_accepted", target=config.target)
    is_asked = bool(config.target) and config.claim != "cheaper"
    if (
        noise is None
        or not noise.pairs
        or not is_asked
        or run.history.done("underpowered_accepted")
    ):
        return
    seen = _visible(run, noise)
    if seen.is_underpowered:
        raise StoppedEarly(
            f"the gate would hardly show the gain that is wanted: {seen.words}",
            where="gate.target",
            fix=f"To train all the same: `learnloop train --resume {run.id} --accept-underpowered`.",
        )


def arms_of(run: Run, chosen: str) -> dict[ArmName, str]:
    """Return the weights that the report compares; `warm` only where there was a warm-up."""
    arms: dict[ArmName, str] = {"baseline": UNTRAINED}
    if run.has_warmup:
        arms["warm"] = run.base
    return {**arms, "final": chosen}


async def judge(run: Run, chosen: str) -> GateResult:
    """Let the gate compare the chosen checkpoint with the agent before training, on confirm."""
    if known := run.history.gate:
        return known
    run.begin_stage("gate")
    tasks = {task.id: task for task in in_split(run.tasks.values(), "confirm")}
    trial, verdict = (
        next_trial(run),
        refuse_early(
            same_content=chosen == run.base,
            leaks=leaks_of(run),
            confirm_tasks=len(tasks),
            pool=pool_after(run.config.gate, run.history.gates),
        ),
    )
    plan = trial.plan(sorted(tasks), run.config.train.seed)
    results: list[PairResult] = []
    verdict = verdict or run.history.verdict
    while verdict is None:
        pairs = plan[len(results) : trial.next_look(len(results))]
        results += await compare_pairs(run, trial, chosen, pairs)
        verdict = trial.decide(results)
    used = dict.fromkeys(pair.task_id for pair in plan[: verdict.pairs])
    if verdict.outcome == "adopt" and run.config.gate.protect:
        # Before the check: after a verdict no pair is made anew, whatever kills the run meanwhile.
        run.emit_once("verdict", tries=_plain(incumbent_tries(results)), **asdict(verdict))
        verdict = await refuse_regressions(run, chosen, verdict)
    shown = [tasks[name] for name in used] or run.sample("confirm", run.config.train.report_tasks)
    await measure(run, chosen, "confirm", shown)
    run.emit("gate", weights=chosen, **asdict(verdict))
    return verdict


def next_trial(run: Run) -> Trial:
    """Return the trial of the run's next candidate, with its share of the run's error.

    Where the A/A run shows an agent that never answers otherwise, a task is tried once.
    """
    config, before, noise = run.config, run.history.gates, run.history.noise
    once = answers_alike(noise, config.model.temperature)
    most = len(in_split(run.tasks.values(), "confirm")) if once else None
    pool = pool_after(config.gate, before)
    return trial_of(config.gate, pool, number=len(before), seed=config.train.seed, most=most)


def leaks_of(run: Run) -> list[str]:
    """Return what links confirm to tasks that training or the choice of a checkpoint has seen."""
    leaks = find_leaks(list(run.tasks.values()))
    return [x.words for x in leaks if "confirm" in x.splits and {"train", "screen"} & {*x.splits}]


async def compare_pairs(
    run: Run, trial: Trial, chosen: str, pairs: Sequence[PlannedPair]
) -> list[PairResult]:
    """Run both arms of the gate on its next pairs, with equal seeds."""
    attempts = [(run.tasks[pair.task_id], pair.attempt) for pair in pairs]
    old, new = await run.roll(*(run.batch("confirm", w, attempts) for w in (run.base, chosen)))
    return [
        trial.result(task, before, after)
        for (task, _), before, after in zip(attempts, old, new, strict=True)
    ]


async def measure(
    run: Run, chosen: str, split: Split, tasks: Sequence[Task], attempts: int = 1
) -> None:
    """Roll out every compared arm on held-out tasks.

    Rollouts of the gate are not made again, those it lost neither: after a verdict a second try of
    one arm alone would move what the report shows away from what the gate saw.
    """
    arms = dict.fromkeys(arms_of(run, chosen).values())
    plan = attempts_on(tasks, attempts)
    await run.roll(*(run.batch(split, weights, plan) for weights in arms))


async def refuse_regressions(run: Run, chosen: str, verdict: GateResult) -> GateResult:
    """Return an adoption, or its veto where protected tasks got worse, and again on a second look.

    Protected are up to `gate.protect` tasks that the incumbent passed each time, in the gate and in
    tries of their own until there are enough. They are tested on fresh tries of both arms.
    """
    most = run.config.gate.protect
    run.begin_stage("regression check")
    stored = run.history.event("verdict")
    assert stored is not None, "it is stored before the check"
    seen = {name: Tries(passed=p, tried=n) for name, (p, n) in stored.data["tries"].items()}
    always = [name for name, tries in seen.items() if tries.passed == tries.tried][:most]
    lacking = {name: LEAST_TRIES - seen[name].tried for name in always}
    [more] = await tries_of(run, "protect-pick", [run.base], lacking)
    safe = protected({name: added(seen[name], more.get(name)) for name in always})
    if not safe:
        return replace(verdict, words=f"{verdict.words}; no task could be protected")
    times = tries_needed(len(safe))
    before, after = await both_tried(run, "protect-test", chosen, safe, times)
    tested = [name for name in safe if name in before and name in after]
    found, again = regressions(before, after, tested), tuple[Regression, ...]()
    if found:
        names = [x.task_id for x in found]
        twice = tries_needed(len(names))
        again = confirmed(found, *await both_tried(run, "protect-again", chosen, names, twice))
    told = {
        "protected": list(safe),
        "tries": times,
        "untested": sorted({*safe} - {*tested}),
        "found": [x.task_id for x in found],
        "confirmed": [x.task_id for x in again],
    }
    last = run.history.event("regressions")
    if last is None or any(last.data.get(key) != value for key, value in told.items()):
        run.emit("regressions", **told)  # lost tries that were made anew may tell otherwise
    if again:
        return replace(
            verdict, outcome="reject", words=veto_words(again), label="", carries_over=False
        )
    return replace(verdict, words=f"{verdict.words}; {_kept_words(tested, times, told)}")


def _kept_words(tested: Sequence[str], times: int, told: Mapping[str, Any]) -> str:
    """Say what the check of protected tasks saw, and what it could not see."""
    tasks = "1 protected task" if len(tested) == 1 else f"{len(tested)} protected tasks"
    words = f"no loss was confirmed on {tasks} in {times} tries each, where a fall from always to never shows"
    if told["found"]:
        words += f"; worse once and not again: {', '.join(told['found'])}"
    if told["untested"]:
        words += f"; not tested, their tries were lost: {', '.join(told['untested'])}"
    return words


def incumbent_tries(results: Iterable[PairResult]) -> dict[str, Tries]:
    """Return how often the incumbent was tried on each task of the gate, and passed."""
    tried, passed = Counter[str](), Counter[str]()
    for result in results:
        if result.incumbent is not None:
            tried[result.task_id] += 1
            passed[result.task_id] += result.incumbent >= 1
    return {name: Tries(passed=passed[name], tried=n) for name, n in tried.items()}


def _plain(tries: Mapping[str, Tries]) -> dict[str, list[int]]:
    return {name: [one.passed, one.tried] for name, one in tries.items()}


def added(first: Tries, second: Tries | None) -> Tries:
    """Return both together."""
    if second is None:
        return first
    return Tries(passed=first.passed + second.passed, tried=first.tried + second.tried)


async def both_tried(
    run: Run, stage: str, chosen: str, names: Sequence[str], times: int
) -> tuple[dict[str, Tries], dict[str, Tries]]:
    """Return fresh tries of incumbent and candidate on some tasks."""
    before, after = await tries_of(run, stage, [run.base, chosen], dict.fromkeys(names, times))
    return before, after


async def tries_of(
    run: Run, stage: str, arms: Sequence[str], times: Mapping[str, int]
) -> list[dict[str, Tries]]:
    """Return for each arm how often it passed each task; lost attempts are no tries."""
    plan = [pair for name, n in times.items() for pair in attempts_on([run.tasks[name]], n)]
    made = await run.roll(*(run.batch(stage, weights, plan) for weights in arms))
    return [_counted(traces) for traces in made]


def _counted(traces: Iterable[Trace]) -> dict[str, Tries]:
    scored = [trace for trace in traces if trace.score is not None]
    tried = Counter(trace.task_id for trace in scored)
    passed = Counter(t.task_id for t in scored if t.score and t.score.is_right)
    return {name: Tries(passed=passed[name], tried=n) for name, n in tried.items()}
