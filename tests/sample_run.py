"""A made-up run with the shape of a real one: five kinds of question, four tools, faults, a gain.

Every rollout is drawn from a seeded generator, so that the report's tests have something to
measure. The numbers say nothing about any model.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, replace

from learnloop.config import GateConfig
from learnloop.gate import GateResult, GateRules, Noise, PairResult, decide, noise_of, plan_pairs
from learnloop.message import Message, ToolCall, ToolSchema
from learnloop.probe import ProbeResult, probe
from learnloop.report import ArmName, CheckpointRow, Evaluation, ReportInputs, Seal
from learnloop.summary import StepRecord, step_record
from learnloop.task import Split, Task
from learnloop.trace import CallRecord, Failure, Score, Trace, Turn, trace_id
from learnloop.trial import visible_gain

KINDS = ("lookup", "difference", "ratio", "best_year", "indirect")
TOOLS = ("search", "list", "cat", "calc")
COMPANIES = (
    "Aldermoor Foods",
    "Brightwater Rail",
    "Cinder & Vale",
    "Dunholm Optics",
    "Eastmarch Power",
)
HOSTILE = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)>"
SCHEMAS = tuple(
    ToolSchema(name=n, description=f"The {n} tool.", parameters_json='{"type":"object"}')
    for n in TOOLS
)


@dataclass(frozen=True, kw_only=True)
class Skill:
    """How good a made-up agent is: chance of a right answer, calls it wastes, format errors."""

    correct: float
    wasted: float
    malformed: float


UNTRAINED = Skill(correct=0.25, wasted=3.0, malformed=0.18)
WARM = Skill(correct=0.36, wasted=2.6, malformed=0.08)
TRAINED = Skill(correct=0.68, wasted=0.5, malformed=0.01)
HARDNESS = {"lookup": 1.35, "difference": 0.95, "ratio": 0.85, "best_year": 0.9, "indirect": 0.95}
NEEDED = {"lookup": 1, "difference": 3, "ratio": 3, "best_year": 4, "indirect": 2}


def between(low: Skill, high: Skill, share: float) -> Skill:
    """Return an agent that has gone `share` of the way."""

    def mix(a: float, b: float) -> float:
        return a + share * (b - a)

    return Skill(
        correct=mix(low.correct, high.correct),
        wasted=mix(low.wasted, high.wasted),
        malformed=mix(low.malformed, high.malformed),
    )


def make_tasks(split: Split, count: int) -> tuple[Task, ...]:
    """Return tasks of every kind in turn."""
    return tuple(_task(split, i) for i in range(count))


def _task(split: Split, i: int) -> Task:
    kind, company = KINDS[i % len(KINDS)], COMPANIES[(i // 5) % len(COMPANIES)]
    gold = f"{100 + 7 * i % 900}.{i % 10}"
    asked = f"What was the {kind.replace('_', ' ')} of revenue of {company} in {2010 + i % 12}, in millions?"
    return Task(
        id=f"{split}-{i:04d}",
        split=split,
        group=f"{company} {i // 2}",
        kind=kind,
        messages=(Message(role="system", content="Answer."), Message(role="user", content=asked)),
        tools=SCHEMAS,
        item={"answer": gold, "company": company},
    )


def roll(task: Task, skill: Skill, *, candidate: str, attempt: int = 0, salt: str = "") -> Trace:
    """Return one rollout of a made-up agent."""
    rng = random.Random(f"{salt}|{task.id}|{candidate}|{attempt}")
    made = trace_id("run_sample", candidate, task.id, attempt)
    if rng.random() < 0.012:
        failure = Failure(boundary="tool", kind="http_503", message="search answered 503")
        return Trace(
            id=made,
            task_id=task.id,
            candidate_id=candidate,
            attempt=attempt,
            seed=attempt,
            outcome="infra_fault",
            finish_reason="infra",
            failure=failure,
        )
    return _graded(task, skill, rng, (made, candidate, attempt))


def _graded(task: Task, skill: Skill, rng: random.Random, who: tuple[str, str, int]) -> Trace:
    malformed = rng.random() < skill.malformed
    # Tasks differ: some nearly always work and some hardly ever do.
    easy = random.Random(task.id).betavariate(0.9, 0.9) * 2
    right = not malformed and rng.random() < min(0.98, skill.correct * HARDNESS[task.kind] * easy)
    calls = _calls(task, skill, rng)
    spent = len(calls) >= 10 and not right
    gold = str(task.item["answer"])
    words = f"The answer is {gold}" if right else f"The answer is {rng.randrange(10, 999)} million"
    if task.id.endswith("7"):
        words += f" {HOSTILE}"
    turns = _turns(calls, words, malformed=malformed, rng=rng)
    return Trace(
        id=who[0],
        task_id=task.id,
        candidate_id=who[1],
        attempt=who[2],
        seed=who[2],
        messages=task.messages,
        turns=turns,
        calls=calls,
        outcome="agent_fault" if malformed or spent else "graded",
        finish_reason="calls" if spent else "answer",
        score=Score(
            value=float(right) * (1 - 0.02 * len(calls)),
            correct=float(right),
            parts={"correct": float(right), "valid": float(not malformed)},
            explanation=f"expected {gold}",
        ),
        latency_s=0.9 + 0.35 * len(calls) + rng.random() * 0.4,
    )


def _calls(task: Task, skill: Skill, rng: random.Random) -> tuple[CallRecord, ...]:
    wasted = min(8, int(rng.expovariate(1 / max(0.05, skill.wasted)) + 0.5))
    names = ["list" if rng.random() < skill.wasted / 5 else "search"]
    names += [rng.choice(("search", "list", "cat")) for _ in range(wasted)]
    names += ["cat"] * (NEEDED[task.kind] - 1)
    if task.kind in {"difference", "ratio"} and skill.correct > 0.4:
        names.append("calc")
    records: list[CallRecord] = []
    for i, name in enumerate(names[:10]):
        query = {"query": task.item["company"]} if name == "search" else {"path": f"/{i % 3}"}
        output = f"{task.item['company']} reported revenue of {task.item['answer']} million. " * 6
        if task.id.endswith("7"):
            output = f"{HOSTILE} {output}"
        call = ToolCall(id=f"c{i}", name=name, arguments=json.dumps(query))
        error = rng.random() < 0.04
        text = '{"error":"no such path"}' if error else output
        records.append(CallRecord(call=call, round=i, output=text, is_error=error, latency_s=0.2))
    return tuple(records)


def _turns(
    calls: tuple[CallRecord, ...], words: str, *, malformed: bool, rng: random.Random
) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    context = 240
    for record in calls:
        out = rng.randrange(14, 26)
        turns.append(
            Turn(
                text="",
                tool_calls=(record.call,),
                finish_reason="tool_calls",
                tokens_in=context,
                tokens_out=out,
                latency_s=0.15,
            )
        )
        context += out + 70
    turns.append(
        Turn(
            text=words,
            tokens_in=context,
            tokens_out=rng.randrange(8, 30),
            malformed="CALL search(query=" if malformed else "",
            latency_s=0.2,
        )
    )
    return tuple(turns)


def roll_all(
    tasks: tuple[Task, ...], skill: Skill, *, candidate: str, attempts: int = 1, salt: str = ""
) -> tuple[Trace, ...]:
    """Return rollouts of every task."""
    return tuple(
        roll(t, skill, candidate=candidate, attempt=a, salt=salt)
        for t in tasks
        for a in range(attempts)
    )


def probe_of(tasks: tuple[Task, ...], skill: Skill) -> ProbeResult:
    """Return the probe of a made-up agent, three attempts a task."""
    traces = roll_all(tasks, skill, candidate="cand_probe", attempts=3, salt=str(skill.correct))
    return probe(traces, {t.id: t for t in tasks}, attempts=3)


def arms(tasks: tuple[Task, ...], *, attempts: int, warm: bool) -> dict[ArmName, tuple[Trace, ...]]:
    """Return rollouts of every arm on some tasks."""
    found: dict[ArmName, tuple[Trace, ...]] = {
        "baseline": roll_all(tasks, UNTRAINED, candidate="cand_base", attempts=attempts),
        "final": roll_all(tasks, TRAINED, candidate="cand_final", attempts=attempts),
    }
    if warm:
        found["warm"] = roll_all(tasks, WARM, candidate="cand_warm", attempts=attempts)
    return found


def training_step(step: int, of: int, tasks: tuple[Task, ...]) -> StepRecord:
    """Return one made-up training step of four groups of sixteen."""
    skill = between(WARM, TRAINED, (step - 1) / max(1, of - 1))
    chosen = random.Random(step).sample(tasks, 4)
    groups = [
        [roll(t, skill, candidate=f"cand_{step}", attempt=a, salt="train") for a in range(16)]
        for t in chosen
    ]
    made = step_record(step, groups, {t.id: t for t in tasks}, planned=64)
    spent = {"sampling": 17.0 + step % 3, "training": 21.0 - step % 2}
    return replace(made, seconds=spent, tokens={"sampled": 4100, "prefilled": 21000})


def sample_inputs(*, steps: int = 10, warm: bool = True, opened: bool = True) -> ReportInputs:
    """Return a finished made-up run."""
    train, screen = make_tasks("train", 60), make_tasks("screen", 40)
    confirm, test = make_tasks("confirm", 120), make_tasks("test", 120)
    tasks = {t.id: t for t in (*train, *screen, *confirm, *test)}
    looks = tuple(
        Evaluation(
            step=s,
            traces=roll_all(
                screen, between(WARM, TRAINED, s / steps), candidate=f"cand_{s}", salt="look"
            ),
        )
        for s in range(0, steps + 1, 5)
    )
    return ReportInputs(
        run_id="run_20261130_7c1e",
        project="reports",
        command="learnloop train examples/reports --steps 10 --rollouts 64 --seed 0",
        created="2026-11-30T19:40:12Z",
        config={
            "project": {"name": "reports"},
            "grader": {"type": "numeric", "reference": "answer"},
            "train": {"steps": steps, "rollouts": 64, "seed": 0},
            "tools": [
                {"name": "search", "headers": {"Authorization": "Bearer s3cret", "X": "${KEY}"}}
            ],
        },
        tasks=tasks,
        probe_before=probe_of(train[:48], WARM),
        probe_after=probe_of(train[:48], TRAINED),
        confirm=arms(confirm, attempts=2, warm=warm),
        test=arms(test, attempts=2, warm=warm) if opened else {},
        steps=tuple(training_step(s, steps, train) for s in range(1, steps + 1)),
        steps_planned=steps,
        evaluations=looks,
        noise=sample_noise(screen),
        detectable=visible_gain(GateConfig(), sample_noise(screen).share, tasks=len(confirm)),
        gate=sample_gate(confirm),
        checkpoints=(
            CheckpointRow(step=5, correct=0.52, calls=4.1, tasks=40, reason="below step 10"),
            CheckpointRow(
                step=10, correct=0.67, calls=3.2, tasks=40, chosen=True, reason="best on screen"
            ),
        ),
        seals=(Seal(run_id="run_20261130_7c1e", opened="2026-11-30T19:39:50Z"),) if opened else (),
        rivals={"run_20261130_9a31": {"test": roll_all(test, WARM, candidate="cand_prompt")}},
        meta={
            "learnloop": "0.1.0",
            "model": "smollm2-135m, sha256 b179c952…",
            "dataset": "sha256 5b1f…",
            "tool schemas": "sha256 77ae…",
            "git": "4f0c2d1",
            "host": "2 cores, no accelerator",
        },
        finished=True,
    )


def sample_noise(tasks: tuple[Task, ...]) -> Noise:
    """Return what an A/A run of the warm agent shows."""
    pairs = [
        [roll(t, WARM, candidate="cand_warm", attempt=n, salt="aa").score for n in range(2)]
        for t in tasks
    ]
    scores = [[s.correct if s else None for s in pair] for pair in pairs]
    return noise_of(
        [
            PairResult(task_id=t.id, incumbent=a, candidate=b)
            for t, (a, b) in zip(tasks, scores, strict=True)
        ]
    )


def sample_gate(tasks: tuple[Task, ...]) -> GateResult:
    """Return a real gate's verdict on made-up pairs."""
    results: list[PairResult] = []
    for pair in plan_pairs([t.id for t in tasks], 160, seed=0):
        task = next(t for t in tasks if t.id == pair.task_id)
        old = roll(task, WARM, candidate="cand_warm", attempt=pair.attempt, salt="gate").score
        new = roll(task, TRAINED, candidate="cand_final", attempt=pair.attempt, salt="gate").score
        results.append(
            PairResult(
                task_id=task.id,
                incumbent=old.correct if old else None,
                candidate=new.correct if new else None,
                group=task.group,
            )
        )
    verdict = decide(results, GateRules(looks=(160,)))
    assert verdict is not None
    return verdict


def partial_inputs(done: int) -> ReportInputs:
    """Return the same run after `done` of its ten steps, before anything held out was measured."""
    whole = sample_inputs(opened=False)
    return replace(
        whole,
        probe_after=None,
        confirm={},
        gate=None,
        checkpoints=(),
        steps=whole.steps[:done],
        evaluations=tuple(e for e in whole.evaluations if e.step <= done) if done else (),
        finished=False,
        stage=f"training, step {done + 1} of 10",
    )


def empty_inputs() -> ReportInputs:
    """Return a run that has only just started."""
    return ReportInputs(
        run_id="run_new",
        project="reports",
        command="learnloop train examples/reports",
        created="2026-11-30T19:30:00Z",
        stage="probe",
    )
