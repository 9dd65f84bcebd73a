"""The arguments of a hosted job, turned into settings; what differs is said."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from learnloop.config import RftConfig, TrainConfig
from learnloop.errors import ConfigError
from learnloop.formats.mapping import Mapped
from learnloop.formats.openai_rft.json_file import table

ROLLOUTS_A_ROW = 8
"""Rollouts of one row in a step at a compute multiplier of 1, or without one; hosted it was 32."""

_ROWS_A_STEP = 8
_NESTED = {"method", "reinforcement", "hyperparameters", "grader", "tools", "type"}
_SHOWN = {
    *("suffix", "seed", "model", "batch_size", "n_epochs", "learning_rate_multiplier"),
    *("compute_multiplier", "eval_interval", "eval_samples", "reasoning_effort"),
    "max_episode_steps",
}
_IGNORED = {
    "model": "hosted weights cannot be taken along; choose a model in [model]",
    "training_file": "--train names the file",
    "validation_file": "--validation names the file",
    "eval_samples": "an evaluation takes one rollout of a task; the gate pairs several",
    "reasoning_effort": "models that run here have no such setting",
    "response_format": "answers are not forced into a form; let the grader judge it",
    "metadata": "a project has no labels",
    "integrations": "runs are kept in the project's own store",
}


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job asks for: settings by dotted name, and what became of each argument."""

    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    mapped: tuple[Mapped, ...] = ()


@dataclass(kw_only=True)
class _Draft:
    """The arguments of a job on their way into settings."""

    arguments: Mapping[str, Any]
    where: str
    rows: int
    settings: dict[str, Any] = field(default_factory=dict[str, Any])
    mapped: list[Mapped] = field(default_factory=list[Mapped])

    def number(self, key: str, low: float, high: float, *, whole: bool = True) -> float | None:
        """Return a number within bounds; None when the job leaves the choice to the service."""
        value = self.arguments.get(key)
        if value is None or value == "auto":
            return None
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not low <= value <= high or (whole and value != int(value)):
            kind = "a whole number" if whole else "a number"
            given = json.dumps(value)[:40]
            what = f"`{key}` is {given}, not `auto` or {kind} from {low:g} to {high:g}"
            raise ConfigError(what, where=self.where)
        return value

    def text(self, key: str) -> str:
        """Return a text; empty when there is none."""
        value = self.arguments.get(key)
        if value is not None and not isinstance(value, str):
            raise ConfigError(f"`{key}` is not a text", where=self.where)
        return (value or "").strip()

    def note(self, key: str, fate: Any, target: str, why: str = "") -> None:
        """Say what became of an argument."""
        # Only values that are known to be harmless: `integrations` may hold a key.
        shown = str(self.arguments.get(key, ""))[:40] if key in _SHOWN else ""
        self.mapped.append(Mapped(source=key, value=shown, fate=fate, target=target, why=why))


def job_parts(data: object, where: str) -> tuple[object, object]:
    """Return the grader and the tools that a job's own arguments hold; None for what is missing."""
    fields = _flat(data, where)
    return fields.get("grader"), fields.get("tools")


def read_job(data: object, *, where: str, rows: int) -> Job:
    """Return the settings that a job's arguments stand for; `rows` counts the training rows.

    Raises:
        ConfigError: no reinforcement job, or a value that the service would have refused.
    """
    draft = _Draft(arguments=_flat(data, where), where=where, rows=rows)
    for take in _TAKERS:
        take(draft)
    done = {m.source for m in draft.mapped} | _NESTED
    for key, value in draft.arguments.items():
        if key in done or value is None or value in ({}, [], ""):
            continue
        if value == "auto" and key not in _IGNORED:
            draft.note(key, "taken", "", "left to the defaults here")
        else:
            draft.note(key, "ignored", "", _IGNORED.get(key, "no such argument is known here"))
    return Job(settings=draft.settings, mapped=tuple(draft.mapped))


def _flat(data: object, where: str) -> dict[str, Any]:
    """Return all arguments in one table, wherever a job has them."""
    fields = dict(table(data, where))
    method = table(fields.get("method") or {}, f"{where}: method")
    if (kind := method.get("type", "reinforcement")) != "reinforcement":
        what = f"is a job of type `{str(kind)[:40]}`, not `reinforcement`"
        raise ConfigError(what, where=where)
    inner = table(method.get("reinforcement") or {}, f"{where}: reinforcement")
    for part in (fields, inner):
        numbers = table(part.get("hyperparameters") or {}, f"{where}: hyperparameters")
        fields |= dict(numbers)
    return fields | {k: v for k, v in inner.items() if k != "hyperparameters"}


def _take_names(draft: _Draft) -> None:
    if suffix := draft.text("suffix"):
        draft.settings["project.name"] = suffix
        draft.note("suffix", "taken", "project.name")
    seed = draft.number("seed", 0, 2**63 - 1)
    if seed is not None:
        draft.settings["train.seed"] = int(seed)
        draft.note("seed", "taken", "train.seed")


def _take_sizes(draft: _Draft) -> None:
    """Turn rows a step, rollouts a row and passes into rollouts, multiplier and steps."""
    batch = draft.number("batch_size", 1, 256)
    compute = draft.number("compute_multiplier", math.nextafter(1e-5, 1), 10, whole=False)
    epochs = draft.number("n_epochs", 1, 50)
    rows_a_step = min(int(batch or _ROWS_A_STEP), draft.rows)
    rollouts = rows_a_step * ROLLOUTS_A_ROW
    draft.settings |= {"train.rollouts": rollouts, "train.group_size": ROLLOUTS_A_ROW}
    a_row = TrainConfig(group_size=ROLLOUTS_A_ROW, compute_multiplier=compute or 0.0).per_task
    if compute is not None:
        draft.settings["train.compute_multiplier"] = compute
        why = f"{a_row} rollouts of a row: 1 means {ROLLOUTS_A_ROW} here, 32 on the hosted service"
        draft.note("compute_multiplier", "approximated", "train.compute_multiplier", why)
    if batch is not None:
        whole = rows_a_step == batch
        why = f"{rows_a_step} rows a step, {a_row} rollouts each"
        fate = "taken" if whole else "approximated"
        draft.note("batch_size", fate, f"train.rollouts = {rollouts}", why)
    if epochs is not None:
        steps = math.ceil(draft.rows * epochs / rows_a_step)
        draft.settings["train.steps"] = steps
        why = f"{draft.rows} rows, {rows_a_step} a step"
        draft.note("n_epochs", "taken", f"train.steps = {steps}", why)


def _take_rate(draft: _Draft) -> None:
    factor = draft.number("learning_rate_multiplier", 1e-9, 1000, whole=False)
    if factor is not None:
        rate = float(f"{RftConfig().learning_rate * factor:.6g}")
        draft.settings["train.rft.learning_rate"] = rate
        why = f"times our default of {RftConfig().learning_rate:g}; the hosted rate is not known"
        target = f"train.rft.learning_rate = {rate:g}"
        draft.note("learning_rate_multiplier", "approximated", target, why)


def _take_looks(draft: _Draft) -> None:
    interval = draft.number("eval_interval", 1, 1_000_000)
    if interval is not None:
        draft.settings["train.eval_every"] = int(interval)
        why = f"on a sample of {TrainConfig().eval_tasks} screen tasks, not on all (`eval_tasks`)"
        draft.note("eval_interval", "taken", "train.eval_every", why)
    steps = draft.number("max_episode_steps", 1, 100_000)
    if steps is not None:
        draft.settings |= {"agent.max_rounds": int(steps), "agent.max_calls": max(10, int(steps))}
        why = "a step is a turn that calls tools; calls have a limit of their own"
        target = f"agent.max_rounds, agent.max_calls = {max(10, int(steps))}"
        draft.note("max_episode_steps", "approximated", target, why)


_TAKERS: tuple[Callable[[_Draft], None], ...] = (_take_names, _take_sizes, _take_rate, _take_looks)
