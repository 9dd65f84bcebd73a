"""The loop of one training run, from the untrained agent to the gate.

After the published method (GRPO and its relatives, see `optimizers/rft` and `policy/losses`), with
held-out evaluation, choice of a checkpoint and a gate around it. What is left out of the papers:
no reward model, no value network, no KL term (after so few steps the reference is near, and the
gate judges the result), one update for each batch of rollouts.

Every stage stores what it did before the next begins, and finds it again when a run is resumed:
rollouts by their place in the store, weights by the training state, the rest as events. A stage
ends with its event; what is killed before that is done again from the stored rollouts.

Events: stage_started {stage}; warmup {demonstrations, seconds, losses}; probe and probe_after
{sentence, advice, weights, regraded: second scores by trace id}; evaluation {step, split, n, accuracy, low, high}; step {StepRecord};
noise {Noise: the A/A run, words}; underpowered_accepted {target}; checkpoint {weights, arms: candidate ids}; gate {GateResult, weights};
verdict {GateResult, tries of the incumbent: before the check of protected tasks};
regressions {protected, tries, untested, found, confirmed: task ids}; watch {StepSeen}; alarm {Alarm}; seal_opened {tasks, test_set};
test {tasks}; repeated {rollouts: ids of traces that were under way when the run ended last}, and
abandoned alike where nothing goes on with them;
endpoint_down {endpoint, fault} and endpoint_up {endpoint, down_s}, which may come at
any time. Each carries `spent_s` too, see `history.CLOCK`.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from learnloop.batch import attempts_on
from learnloop.gate import GateResult
from learnloop.history import checkpoint_rows
from learnloop.judging import AA_STAGE, arms_of, judge, measure, measure_noise, tell_noise
from learnloop.optimizers.rft.curriculum import sequence
from learnloop.optimizers.rft.tuner import Progress, Tuner, demo_rows
from learnloop.probe import probe
from learnloop.provenance import task_set_hash
from learnloop.regrade import regrade
from learnloop.run import CURRENT, UNTRAINED, Run
from learnloop.splits import in_split
from learnloop.summary import step_record, summarize
from learnloop.task import Split, Task
from learnloop.trace import Trace
from learnloop.watching import watch


async def learn(run: Run) -> GateResult:
    """Run all stages; those that a resumed run has done already are passed over."""
    plan, tuner = lessons(run), Tuner(run.policy, run.config, run.folder)
    progress = await tuner.start()
    forget_words(run, progress.step)  # of a step that was saved just before a kill
    if not run.has_warmup:
        await measure_noise(run)
    await evaluate(run, UNTRAINED, step=-1 if run.has_warmup else 0)
    progress = await warm_up(run, tuner, progress)
    await look_for_variance(run, run.base, "probe")
    await measure_noise(run)
    await evaluate(run, run.base, step=0)
    for step, tasks in enumerate(plan, start=1):
        if step > progress.step:
            groups = await explore(run, step, tasks)
            watch(run, step, [trace for group in groups for trace in group])
            metrics = await tuner.update(step, groups, run.tasks, to_replay(run, step))
            progress = await checkpoint(run, tuner, step, groups, metrics)
        if is_evaluated(run, step):
            await evaluate(run, run.checkpoint(step), step=step)
    chosen = choose(run)
    await look_for_variance(run, chosen, "probe_after")
    return await judge(run, chosen)


def lessons(run: Run) -> list[list[Task]]:
    """Return the tasks of every step, as the curriculum orders them."""
    train = run.config.train
    groups = train.tasks_per_step
    pool = in_split(run.tasks.values(), "train")
    order = sequence(pool, run.config.curriculum.weights, groups * train.steps, train.seed)
    return [order[i * groups : (i + 1) * groups] for i in range(train.steps)]


def is_evaluated(run: Run, step: int) -> bool:
    """Return whether the weights after a step are kept and looked at."""
    train = run.config.train
    return step % train.eval_every == 0 or step == train.steps


async def warm_up(run: Run, tuner: Tuner, progress: Progress) -> Progress:
    """Teach the call format from demonstrations, if there are any."""
    if progress.step >= 0:
        return progress
    if run.has_warmup:
        run.begin_stage("warm-up")
        began_s = time.monotonic()
        rows = demo_rows(run.project.demos(), run.config.warmup.limit, run.config.train.seed)
        metrics = await tuner.warm_up(rows)
        await run.keep(run.base)
        seconds = time.monotonic() - began_s
        run.emit_once("warmup", demonstrations=len(rows), seconds=seconds, **metrics)
    progress = Progress(step=0)
    await tuner.save(progress)
    return progress


async def look_for_variance(run: Run, weights: str, stage: str) -> None:
    """Run some training tasks several times and say what they can teach."""
    config = run.config.probe
    if run.history.done(stage) or (stage == "probe_after" and not config.after):
        return
    run.begin_stage("variance probe" if stage == "probe" else "variance probe after training")
    tasks = run.sample("train", config.tasks)
    attempts = attempts_on(tasks, config.attempts)
    batch = run.batch(stage, weights, attempts, temperature=config.temperature)
    [traces] = await run.roll(batch)
    again = await regrade(run, traces) if stage == "probe" else {}
    known = {t.id: t for t in tasks}
    found = probe(traces, known, attempts=config.attempts, regraded=again)
    told = {"sentence": found.sentence, "advice": found.advice.words, "weights": weights}
    run.emit(stage, **told, **({"regraded": again} if again else {}))


async def evaluate(run: Run, weights: str, step: int) -> None:
    """Measure weights on held-out screen tasks; step 0 is before training, -1 before a warm-up."""
    if run.history.done("evaluation", step):
        return
    run.begin_stage(
        "evaluation of the untrained model" if step < 0 else f"evaluation at step {step}"
    )
    tasks = run.sample("screen", run.config.train.eval_tasks)
    [traces] = await run.roll(run.batch("screen", weights, attempts_on(tasks), step=step))
    tell_accuracy(run, "screen", step, traces)


def tell_accuracy(run: Run, split: Split, step: int, traces: Sequence[Trace]) -> None:
    """Emit the event of a finished evaluation."""
    found = summarize(traces, {t.task_id: run.tasks[t.task_id] for t in traces})
    correct = found.correct
    run.emit(
        "evaluation",
        step=step,
        split=split,
        n=found.tasks,
        accuracy=correct.value if correct else None,
        low=correct.low if correct else None,
        high=correct.high if correct else None,
    )


async def explore(run: Run, step: int, tasks: Sequence[Task]) -> list[list[Trace]]:
    """Roll out every task of a step as a group on the weights that are being trained."""
    run.begin_stage(f"training, step {step} of {run.config.train.steps}")
    await run.forget()
    await run.policy.stats()
    size = run.config.train.per_task
    before = run.checkpoint(step - 1)
    batch = run.batch(
        "train",
        before,
        attempts_on(tasks, size),
        step=step,
        temperature=run.config.train.temperature,
    )
    [traces] = await run.roll(replace(batch, weights=CURRENT, is_trained_on=True))
    return [traces[i : i + size] for i in range(0, len(traces), size)]


def to_replay(run: Run, step: int) -> list[Trace]:
    """Return earlier training rollouts that a step may use again, oldest first.

    The variance probe counts as step 0 where it sampled as training does. Rollouts whose texts are not
    kept cannot be used.
    """
    config = run.config
    if not config.train.rft.replay:
        return []
    first = step - config.train.rft.replay_steps
    alike = config.probe.temperature == config.train.temperature
    found = list(run.history.traces("probe")) if first <= 0 and alike else []
    for past in range(max(1, first), step):
        found += run.history.traces("train", past)
    return [trace for trace in found if trace.content == "full"]


async def checkpoint(
    run: Run,
    tuner: Tuner,
    step: int,
    groups: Sequence[Sequence[Trace]],
    metrics: Mapping[str, Any],
) -> Progress:
    """Keep what a step made: the weights if they will be looked at, its record, the state."""
    if is_evaluated(run, step):
        await run.keep(run.checkpoint(step))
    stats = await run.policy.stats()
    record = replace(
        step_record(step, groups, run.tasks),
        seconds={"sampling": stats["sampling_s"], "training": metrics["train_s"]},
        tokens={
            "prefilled": int(stats["prefilled"]),
            "reused": int(stats["reused"]),
            "sampled": int(stats["sampled"]),
            "trained": int(metrics.get("tokens_packed", 0)),
        },
        loss={k: float(v) for k, v in metrics.items() if k != "train_s"}
        | {"peak_rss_mb": stats["peak_rss_mb"]},
    )
    run.emit_once("step", **asdict(record))
    progress = Progress(step=step)
    # Last: whatever was killed before this line is done again.
    await tuner.save(progress)
    forget_words(run, step)
    return progress


def forget_words(run: Run, step: int) -> None:
    """Reduce the training rollouts that no step after this one will use, as the project wants it."""
    train = run.config.train
    kept = train.rft.replay_steps - 1 if train.rft.replay and step < train.steps else 0
    run.forget_words(step - kept)


def choose(run: Run) -> str:
    """Return the best checkpoint on screen, and record which candidates will be compared."""
    rows = checkpoint_rows(run.history.evaluations(), run.tasks)
    chosen = run.checkpoint(next((row.step for row in rows if row.chosen), 0))
    ids = {arm: run.candidate(weights).id for arm, weights in arms_of(run, chosen).items()}
    run.emit_once("checkpoint", weights=chosen, arms=ids)
    return run.history.chosen


async def open_test(run: Run) -> None:
    """Measure the compared arms on the sealed test; that it was opened is recorded first."""
    history = run.history
    if history.done("test"):
        return
    run.begin_stage("sealed test")
    tasks = run.sample("test", run.config.train.report_tasks)
    break_seal(run, tasks)
    await measure(run, history.chosen, "test", tasks, run.config.train.report_attempts)
    run.emit("test", tasks=len(tasks))


def break_seal(run: Run, tasks: Sequence[Task]) -> None:
    """Record that this run looks at the sealed test."""
    test_set = task_set_hash(run.tasks.values(), "test")
    run.emit_once("seal_opened", tasks=len(tasks), test_set=test_set)


async def measure_one(
    run: Run, *, weights: str, split: Split, attempts: int, twice: bool = False
) -> list[Trace]:
    """Measure one candidate on one split, as `learnloop eval` does.

    Measured `twice` means an A/A run beside it: a second arm of the same candidate, for its noise.
    """
    run.begin_stage(f"evaluation on {split}")
    tasks = run.sample(split, run.config.train.report_tasks)
    if split == "test":
        break_seal(run, tasks)
    plan = attempts_on(tasks, attempts)
    stages = (split, AA_STAGE) if twice else (split,)
    traces, *again = await run.roll(*(run.batch(stage, weights, plan) for stage in stages))
    tell_accuracy(run, split, 0, traces)
    for second in again:
        tell_noise(run, traces, second)
    return traces
