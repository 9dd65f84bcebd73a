"""A run at work: project, parts and policy process, and rollouts that survive a kill."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from learnloop.batch import Attempts, Batch, Found, Job, interleaved, key_of
from learnloop.budget import Spend, left_out, reached
from learnloop.candidate import Candidate
from learnloop.config import Config
from learnloop.errors import ConfigError, EndpointError, StoppedEarly
from learnloop.event import Event
from learnloop.history import CLOCK, History
from learnloop.model import Sampling
from learnloop.models.policy import PolicyProcess
from learnloop.outbound import Outage
from learnloop.project import Parts, Project
from learnloop.rollout import Planned, Setup, roll_out
from learnloop.runner import run_many
from learnloop.sink import Sink
from learnloop.splits import in_split, sample_tasks
from learnloop.store import Store, told
from learnloop.task import Split, Task
from learnloop.trace import Trace

UNTRAINED = ""
"""The weights as the model was pulled; the policy process always keeps them."""
CURRENT = "current"
"""The weights that are being trained."""
MOST_LOST = 0.5
"""A stage that loses more than this share of its rollouts to faults stops the run."""


@dataclass(kw_only=True)
class Run:
    """One run and everything it works with.

    Attributes:
        id: the run's id in the store.
        project: its project; `agent` is the candidate before training, as it was at the start.
        store: where everything is kept.
        tasks: every task of the dataset by id.
        parts: running tools and grader.
        policy: the running policy process; `loaded` are the named weights that it holds.
        sinks: who listens to events.
        has_warmup: whether there are demonstrations to warm up on.
        command: the verb that began it; only `train` can be resumed.
        spent_before_s: seconds that the run took before it was resumed.
        spend: what rollouts took so far, those made anew and resumptions included; for the budget.
        given_up: traces that were lost to faults since the run was begun or resumed; they are not
            tried anew before it is resumed again.
    """

    id: str
    project: Project
    store: Store
    agent: Candidate
    tasks: Mapping[str, Task]
    parts: Parts
    policy: PolicyProcess
    sinks: Sequence[Sink] = ()
    has_warmup: bool = False
    command: str = "train"
    began_s: float = field(default_factory=time.monotonic)
    spent_before_s: float = 0.0
    spend: Spend = field(default_factory=Spend)
    loaded: set[str] = field(default_factory=set[str])
    given_up: set[str] = field(default_factory=set[str])

    @property
    def config(self) -> Config:
        """Return the project's configuration."""
        return self.project.config

    @property
    def history(self) -> History:
        """Return what this run has stored."""
        return History(store=self.store, run_id=self.id)

    @property
    def folder(self) -> Path:
        """Return where this run's checkpoints and report go."""
        return self.project.run_folder(self.id)

    @property
    def spent_s(self) -> float:
        """Return the seconds this run has taken, over all its resumptions."""
        return self.spent_before_s + time.monotonic() - self.began_s

    # --- weights -------------------------------------------------------------------------------

    @property
    def base(self) -> str:
        """Return the weights that training starts from: warmed up, or untrained without warm-up."""
        return f"{self.id}/warm" if self.has_warmup else UNTRAINED

    def checkpoint(self, step: int) -> str:
        """Return the name of the weights after a training step; step 0 is where training starts."""
        return f"{self.id}/step-{step}" if step else self.base

    def candidate(self, weights: str) -> Candidate:
        """Return the agent on some weights."""
        return replace(self.agent, weights=weights)

    def weights_folder(self, weights: str) -> Path:
        """Return the model folder of named weights, `RUN/NAME`."""
        return self.project.run_folder(weights)

    async def keep(self, weights: str) -> None:
        """Write the current weights into a model folder and keep them in memory by name."""
        await self.policy.snapshot(weights, self.weights_folder(weights))
        self.loaded.add(weights)

    async def load(self, weights: Iterable[str]) -> None:
        """Have the policy process hold some named weights; those it holds are not read again."""
        for name in set(weights) - self.loaded - {UNTRAINED, CURRENT}:
            await self.policy.load(name, self.weights_folder(name))
            self.loaded.add(name)

    async def forget(self) -> None:
        """Free the memory of all named weights; they are read again when they are needed."""
        while self.loaded:
            await self.policy.forget(self.loaded.pop())

    # --- events --------------------------------------------------------------------------------

    def emit(self, kind: str, **data: object) -> None:
        """Store an event and tell everybody who listens."""
        event = Event(kind=kind, run_id=self.id, data={**data, CLOCK: round(self.spent_s, 3)})
        self.store.append_event(event)
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for sink in self.sinks:
            sink.emit(event)

    def emit_once(self, kind: str, **data: object) -> None:
        """Emit an event unless this kind (and step) is stored already, as after a resume."""
        step = data.get("step")
        if not self.history.done(kind, step if isinstance(step, int) else None):
            self.emit(kind, **data)

    @property
    def faults(self) -> dict[str, int]:
        """Return how often endpoints failed in this session, repeated requests counted each."""
        return dict(self.parts.outbound.faults) if self.parts.outbound else {}

    def tell_outage(self, news: Outage) -> None:
        """Emit that an endpoint stopped answering, or answers again."""
        if news.is_down:
            fault = told(news.fault, self.config.store.content)
            self.emit("endpoint_down", endpoint=news.endpoint, fault=fault)
        else:
            self.emit("endpoint_up", endpoint=news.endpoint, down_s=news.down_s)

    def tell_repeated(self) -> None:
        """Record the rollouts that were under way when this run ended last; they are made anew."""
        event = self.store.take_unfinished(self.id, {CLOCK: round(self.spent_s, 3)})
        if event is not None:
            cut = len(event.data["rollouts"])
            self.spend += Spend(rollouts=cut, unknown=cut)
            self._tell(event)

    def begin_stage(self, words: str) -> None:
        """Tell that a stage begins."""
        self.emit("stage_started", stage=words)

    # --- rollouts ------------------------------------------------------------------------------

    def sample(self, split: Split, most: int) -> list[Task]:
        """Return at most so many tasks of a split, drawn by the run's seed; 0 takes all."""
        return sample_tasks(in_split(self.tasks.values(), split), most, seed=self.config.train.seed)

    def seed(self, *parts: object) -> int:
        """Return a seed that depends on the run's seed and the given parts only."""
        text = ":".join(str(p) for p in (self.config.train.seed, *parts))
        return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")

    def batch(
        self,
        stage: str,
        weights: str,
        attempts: Attempts,
        *,
        step: int = 0,
        temperature: float | None = None,
    ) -> Batch:
        """Plan rollouts; seeds depend on stage, step, task and attempt, and not on the weights.

        So both arms of a comparison share their luck, which sharpens paired tests. Without a
        temperature, that of evaluations is taken.
        """
        candidate, config = self.candidate(weights), self.config
        return Batch(
            stage=stage,
            step=step,
            weights=weights,
            candidate=candidate,
            temperature=config.model.temperature if temperature is None else temperature,
            plan=tuple(
                Planned(
                    task=task,
                    candidate_id=candidate.id,
                    attempt=attempt,
                    seed=self.seed(stage, step, task.id, attempt),
                )
                for task, attempt in attempts
            ),
        )

    async def roll(self, *batches: Batch) -> list[list[Trace]]:
        """Make the rollouts of some batches at once; return each batch's traces as planned.

        What the store holds is not made again, so an interrupted run goes on where it was; only
        what was lost to faults before that is tried anew. Arms of a comparison are interleaved, so
        that they meet the same conditions.

        Raises:
            EndpointError: more than half of the rollouts, stored ones among them, were lost to
                faults, or the policy died.
            StoppedEarly: the run's budget is spent.
            ConfigError: what is stored of rollouts to be trained on is not all of them.
            ValueError: two batches would be filed in one place.
        """
        if len({batch.place for batch in batches}) < len(batches):
            raise ValueError("two batches of one candidate need stages of their own")
        found = [self._stored(batch) for batch in batches]
        jobs = [job for job in interleaved(batches, found) if key_of(job.planned) not in job.found]
        allowed = jobs[: self._rollouts_left(len(jobs))]
        if allowed:
            await self._make_all(allowed, len(jobs))
        traces = [
            [known[key] for key in map(key_of, batch.plan) if key in known]
            for batch, known in zip(batches, found, strict=True)
        ]
        if allowed:
            self._refuse_heavy_loss([trace for some in traces for trace in some])
        if len(allowed) < len(jobs):
            raise self._spent("rollouts", self.config.budget.rollouts)
        self.given_up |= {trace.id for some in traces for trace in some if trace.failure}
        return traces

    def forget_words(self, step: int) -> None:
        """Reduce what is stored of training rollouts whose update is saved, as the project wants it."""
        self.store.reduce(self.id, self.config.store.content, "train", upto=step)

    def _stored(self, batch: Batch) -> Found:
        """Return the rollouts of a batch that are not made again: those with a score, or given up."""
        found = self._known(batch)
        if batch.is_trained_on and any(t.content != "full" and t.score for t in found.values()):
            raise ConfigError(
                f"texts of training step {batch.step} were erased before it was trained on",
                where=f"run {self.id}",
                fix="Start a new run.",
            )
        return found

    def _known(self, batch: Batch) -> Found:
        return {
            (trace.task_id, trace.attempt): trace
            for trace in self.history.traces(batch.stage, batch.step)
            if trace.candidate_id == batch.candidate.id
            and (trace.outcome != "infra_fault" or trace.id in self.given_up)
        }

    async def _make_all(self, jobs: Sequence[Job], wanted: int) -> None:
        """Make rollouts, out of so many wanted, and put each where its batch finds it."""
        await self.load(job.batch.weights for job in jobs)
        done = 0

        def count(trace: Trace) -> None:
            nonlocal done
            done += 1
            self.spend += Spend.of(trace)
            data = {"done": min(done, wanted), "planned": wanted}
            self._tell(Event(kind="progress", run_id=self.id, data=data))

        limit = self.config.train.max_concurrency
        made = await run_many(jobs, self._make, max_concurrency=limit, on_trace=count)
        for job, trace in zip(jobs, made, strict=True):
            job.found[key_of(job.planned)] = trace

    async def _make(self, job: Job, retry: int) -> Trace:
        """Make one rollout and file it."""
        config = self.config
        if over := reached(self.spend, self.spent_s / 60, config.budget, config.prices):
            raise self._spent(*over)
        batch = job.batch
        setup = Setup(
            label=f"{self.id}/{batch.stage}/{batch.step}",
            model=self.policy.model(batch.weights),
            tools=self.parts.tools,
            grader=self.parts.grader,
            limits=self.config.agent,
            sampling=Sampling(
                temperature=batch.temperature, max_tokens=self.config.model.max_tokens
            ),
            on_end=self.parts.on_end,
        )
        # Before its first call is paid for.
        self.store.begin_rollout(self.id, setup.name(job.planned, retry))
        try:
            trace = await roll_out(job.planned, setup, retry)
        except EndpointError as error:
            raise _stopped_by(self.id, self.command, error.where, error.what) from None
        if trace.failure and trace.failure.kind == "died":
            # The rollout did nothing wrong and is not counted: it is made when the run goes on.
            raise policy_failed(self.id, self.command, trace.failure.message)
        # Training needs token ids and texts; they are reduced once the update is saved.
        content = "full" if batch.is_trained_on else self.config.store.content
        self.store.save_trace(self.id, batch.stage, batch.step, trace, content)
        return trace

    def _refuse_heavy_loss(self, traces: Sequence[Trace]) -> None:
        lost = [trace.failure for trace in traces if trace.failure]
        if len(lost) > MOST_LOST * len(traces):
            last = lost[-1]
            what = f"{len(lost)} of {len(traces)} rollouts were lost to faults, the last to {last.kind}: "
            raise _stopped_by(self.id, self.command, f"the {last.boundary}", what + last.message)

    def _rollouts_left(self, wanted: int) -> int:
        """Return how many of the wanted rollouts the budget of the whole run allows."""
        limit = self.config.budget.rollouts
        return min(wanted, max(0, limit - self.spend.rollouts)) if limit else wanted

    def _spent(self, unit: str, limit: float) -> StoppedEarly:
        return StoppedEarly(
            f"the budget of {limit:g} {unit} is spent{left_out(self.spend, unit)}",
            where=f"budget.{unit}",
            fix=f"Raise it, then {go_on(self.id, self.command)}.",
        )


def policy_failed(run_id: str, command: str, message: str) -> EndpointError:
    """Return the error that ends a run when the policy process died or failed."""
    what = message.removeprefix("the policy process ")
    return _stopped_by(run_id, command, "the policy process", what)


def _stopped_by(run_id: str, command: str, where: str, what: str) -> EndpointError:
    return EndpointError(what, where=where, fix=f"Mend it, then {go_on(run_id, command)}.")


def go_on(run_id: str, command: str) -> str:
    """Return how a stopped run goes on: training resumes, other commands begin anew."""
    if command == "train":
        return f"`learnloop train --resume {run_id}`"
    return f"start `learnloop {command}` again: only training is resumed"
