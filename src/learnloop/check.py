"""The check: does everything of a project fit together, before time is spent on a run?

It looks at text first (prompt, model, rows, schemas, splits), then starts the services, calls each
tool once, grades a right, an empty and a wordy answer, and makes one rollout with a script in the
model's place. It never samples from a model.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass

from learnloop.codec import config_schemas, schema_problem
from learnloop.config import Config
from learnloop.duplicates import near_duplicates
from learnloop.errors import (
    ConfigError,
    EndpointError,
    GateNotMet,
    UserError,
)
from learnloop.estimate import Estimate, estimate_run, turn_seconds
from learnloop.finding import Finding, Level
from learnloop.gradercheck import grader_findings
from learnloop.optimizers.rft.curriculum import sequence
from learnloop.outbound import Retry
from learnloop.peak import Peak, peaks
from learnloop.project import CONFIG_FILE, Project
from learnloop.rehearsal import EndpointUse, Rehearsal, endpoint_uses, rehearse
from learnloop.splits import Leak, asked_text, find_leaks, in_split, question_text
from learnloop.task import SPLITS, Task
from learnloop.toolcheck import TRACE, corpus_findings, tool_finding
from learnloop.trial import visible_gain

_CONFIG, _ENDPOINT, _GATE = ConfigError.exit_code, EndpointError.exit_code, GateNotMet.exit_code
_FEW_TASKS = 200


@dataclass(frozen=True, kw_only=True)
class CheckReport:
    """Everything that was found; `estimate` is missing when there is no usable dataset.

    `uses` tells of each endpoint that the rehearsal reached what a run will ask of it.
    """

    findings: tuple[Finding, ...]
    estimate: Estimate | None = None
    peaks: tuple[Peak, ...] = ()
    uses: tuple[EndpointUse, ...] = ()

    @property
    def ok(self) -> bool:
        """Return whether nothing stands in the way of a run."""
        return all(f.level != "error" for f in self.findings)

    @property
    def exit_code(self) -> int:
        """Return 0, or the exit code of the first error."""
        return next((f.exit_code for f in self.findings if f.level == "error"), 0)

    def raise_for_errors(self) -> None:
        """Raise the first error as the exception that its exit code stands for."""
        kinds = {k.exit_code: k for k in (ConfigError, EndpointError, GateNotMet)}
        for finding in self.findings:
            if finding.level == "error":
                kind = kinds.get(finding.exit_code, UserError)
                raise kind(finding.what, where=finding.where, fix=finding.fix)


async def check(project: Project, *, needs_model: bool = True) -> CheckReport:
    """Look at every part of a project and say what is wrong with it.

    Args:
        project: the opened project; missing data files are made first.
        needs_model: whether a missing model is an error; scripted runs do without.
    """
    findings = [_prompt(project), *([_model(project)] if needs_model else [])]
    tasks: list[Task] = []
    try:
        await project.ensure_data()
        await project.learn_schemas()
        tasks = project.tasks()
        findings += [*_schemas(project, tasks), *_splits(tasks), *_demos(project, tasks)]
        findings += _gate(project.config, tasks)
        findings += _curriculum(project.config, tasks)
    except UserError as error:
        # A missing prompt keeps the rows from being read, and has been told already.
        if not any(f.what == error.what for f in findings):
            findings.append(Finding.of(error))
    sound = bool(tasks) and all(f.level != "error" for f in findings)
    latencies: dict[str, float] = {}
    running, rehearsal = await _running(project, tasks, latencies, rehearsed=sound)
    # What kept the rows from being read may keep the tools from opening too.
    running = [f for f in running if f not in findings]
    estimate = estimate_run(project.config, tasks) if tasks else None
    return CheckReport(
        findings=(*findings, *running),
        estimate=estimate,
        peaks=tuple(peaks(project.config, latencies, turn_s=turn_seconds(project.config))),
        uses=endpoint_uses(project.config, rehearsal, estimate) if rehearsal and estimate else (),
    )


def _curriculum(config: Config, tasks: Sequence[Task]) -> list[Finding]:
    try:
        if config.curriculum.weights:
            sequence(in_split(tasks, "train"), config.curriculum.weights, 1, 0)
    except ConfigError as error:
        return [Finding.of(error)]
    return []


def _prompt(project: Project) -> Finding:
    try:
        project.system_prompt()
    except ConfigError as error:
        return Finding.of(error)
    return Finding(level="ok", what="system prompt", where=project.config.agent.system_prompt)


def _model(project: Project) -> Finding:
    try:
        folder = project.model_folder()
    except ConfigError as error:
        return Finding.of(error)
    return Finding(level="ok", what=f"model {project.config.model.ref}", where=str(folder))


def _schemas(project: Project, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Compare the tools that rows offer with those that the project serves.

    Names that rows have and the project lacks were refused when the rows were read.
    """
    config, where = project.config, project.config.data.path
    own = {s.name: s for s in (*config_schemas(config), *project.own_schemas())}
    for tool in dict.fromkeys((*own.values(), *(s for t in tasks for s in t.tools))):
        if problem := schema_problem(tool):
            yield Finding(
                level="error",
                what=f"`parameters` of tool `{tool.name}` are no valid JSON schema: {problem}",
                where=CONFIG_FILE if tool in own.values() else where,
                fix="Mend the schema: the model is told of the tool by it.",
                exit_code=_CONFIG,
            )
    offered = {s.name: s for task in tasks for s in task.tools}
    configured = {tool.name for tool in config.tools}
    for name in dict.fromkeys((*(tool.name for tool in config.tools), *own)):
        if name not in offered and name not in configured:
            yield Finding(
                level="warning",
                what=f"tool `{name}` is there, but the rows' `tools` leave it out",
                where=where,
            )
        elif name not in offered:
            yield Finding(
                level="error",
                what=f"tool `{name}` is served, but no row and no setting has its schema: "
                "the model would never know of it",
                where=where,
                fix="Add `tools` to the rows, or `description` and `parameters` to [[tools]].",
                exit_code=_CONFIG,
            )
        elif name in own and offered[name] != own[name]:
            yield Finding(
                level="warning",
                what=f"tool `{name}` has one schema in rows and another in the project; "
                "the rows' one is used",
                where=where,
            )
    bare = sum(not task.tools for task in tasks)
    if (config.tools or own) and 0 < bare < len(tasks):
        yield Finding(
            level="error",
            what=f"{bare} of {len(tasks)} rows offer no tool",
            where=where,
            fix="Give every row `tools`, or none.",
            exit_code=_CONFIG,
        )
    yield Finding(level="ok", what=f"{len(tasks)} tasks, {len(offered)} tools offered", where=where)


def _splits(tasks: Sequence[Task]) -> Iterator[Finding]:
    """Look for splits that are missing and for tasks that two splits share."""
    sizes = Counter(t.split for t in tasks)
    for split in SPLITS:
        if not sizes[split]:
            yield Finding(
                level="warning" if split == "test" else "error",
                what=f"no task is in split `{split}`",
                where="splits",
                fix="Give more groups, or set `split` in the rows.",
                exit_code=_CONFIG,
            )
    yield from _leaks(tasks)
    if alike := near_duplicates(tasks):
        yield Finding(
            level="warning",
            what=f"{len(alike)} pairs of tasks are near-duplicates across splits: {alike[0].words}",
            where="splits",
            fix="Give tasks that belong together one `group` and one `split`.",
        )
    if 0 < sizes["confirm"] < _FEW_TASKS:
        yield Finding(
            level="warning",
            what=f"confirm has only {sizes['confirm']} tasks; small gains cannot be proven",
            where="splits",
            fix=f"{_FEW_TASKS} or more are better.",
        )
    yield Finding(level="ok", what=", ".join(f"{s} {sizes[s]}" for s in SPLITS), where="splits")


def _gate(config: Config, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Say what gains the gate can show, for a steady agent and for one that tosses coins."""
    confirm = sum(task.split == "confirm" for task in tasks)
    if not confirm:
        return
    once = config.model.temperature == 0
    steady, tossing = (
        visible_gain(config.gate, share, tasks=confirm, once=once) for share in (0.1, 0.5)
    )
    if steady.effect >= 1:
        fix = "Add confirm tasks, or raise gate.looks."
        yield Finding(level="warning", what=steady.words, where="gate", fix=fix)
        return
    yield Finding(
        level="ok",
        what=f"{steady.cap} pairs adopt gains from {100 * steady.effect:.1f} points in 80 % of cases "
        f"where two runs of the agent differ in 10 % of pairs, from {100 * tossing.effect:.1f} in 50 %",
        where="gate",
    )


def _leaks(tasks: Sequence[Task]) -> Iterator[Finding]:
    """Tell of groups and questions that stand in two splits, with one example of each kind.

    A question in two splits is only a warning where both are learned from, or both decide.
    """
    leaks = find_leaks(tasks)
    decisive = [leak for leak in leaks if leak.kind == "question" and leak.decides]
    others = [leak for leak in leaks if leak.kind == "question" and not leak.decides]
    groups = [leak for leak in leaks if leak.kind == "group"]
    levels: tuple[tuple[Level, str, list[Leak]], ...] = (
        ("error", "group", groups),
        ("error", "question", decisive),
        ("warning", "question", others),
    )
    for level, kind, found in levels:
        if found:
            yield Finding(
                level=level,
                what=f"{len(found)} {kind}s are in more than one split: {found[0].words}",
                where="splits",
                fix="Give tasks that belong together one `group` and one `split`.",
                exit_code=_CONFIG,
            )


def _demos(project: Project, tasks: Sequence[Task]) -> Iterator[Finding]:
    """Look for demonstrations of tasks that are not for training."""
    held_out = [t for t in tasks if t.split != "train"]
    ids = {t.id for t in held_out}
    asked = {question_text(t): t.id for t in held_out if question_text(t)}
    demos = project.demos()
    # A demonstration need not say which task it solves: its question tells.
    found = [d.task_id if d.task_id in ids else asked.get(asked_text(d.messages)) for d in demos]
    leaked = [task_id for task_id in found if task_id]
    if leaked:
        yield Finding(
            level="error",
            what=f"{len(leaked)} demonstrations solve held-out tasks, such as `{leaked[0]}`",
            where=project.config.warmup.path,
            fix="Take demonstrations from split `train` only.",
            exit_code=_CONFIG,
        )
    elif demos:
        where = project.config.warmup.path
        yield Finding(level="ok", what=f"{len(demos)} demonstrations", where=where)


async def _running(
    project: Project, tasks: Sequence[Task], latencies: dict[str, float], *, rehearsed: bool
) -> tuple[list[Finding], Rehearsal | None]:
    """Start the services, then try tools and grader; without retries, or faults would be slow."""
    findings: list[Finding] = []
    async with AsyncExitStack() as stack:
        try:
            opening = project.open_parts(retry=Retry(retries=0))
            parts = await stack.enter_async_context(opening)
        except UserError as error:
            return [Finding.of(error)], None
        for name, address in parts.addresses.items():
            findings.append(Finding(level="ok", what=f"service {name} is ready", where=address))
        findings += corpus_findings(project)
        findings += [await tool_finding(t, tasks[:1], latencies) for t in parts.tools.values()]
        findings += await grader_findings(parts, project, tasks)
        rehearsal: Rehearsal | None = None
        if rehearsed and all(f.level != "error" for f in findings):
            task = next((t for t in tasks if t.split == "train"), tasks[0])
            rehearsal = await rehearse(task, parts, project.config.agent)
            findings.append(rehearsal.finding())
        if parts.on_end is not None:
            await parts.on_end(TRACE)
    return findings, rehearsal
