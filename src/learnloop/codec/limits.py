"""Which values make sense: ranges of numbers, and settings that must agree with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from itertools import pairwise
from typing import NamedTuple

from learnloop.codec.tomllines import KeyPath
from learnloop.config import Config, public_url

GRADERS = ("numeric", "string_check", "endpoint", "multi", "cascade", "file")
CORPUS_TOOLS = ("search", "list", "cat")
_MANY = 10**9
_LEAST_MULTIPLIER = 1e-5
_SECONDS = 7 * 24 * 3600.0

RANGES: dict[str, tuple[float, float]] = {
    "model.threads": (0, 4096),
    "model.temperature": (0, 5),
    "model.max_tokens": (1, 1_000_000),
    "model.max_context": (16, 10_000_000),
    "agent.max_calls": (0, 100_000),
    "agent.max_rounds": (0, 100_000),
    "agent.max_turns": (0, 100_000),
    "agent.max_tokens_total": (1, _MANY),
    "agent.max_wall_s": (0.001, _SECONDS),
    "tools.timeout_s": (0.001, _SECONDS),
    "tools.max_concurrency": (1, 100_000),
    "tools.rate_limit": (0, 1e6),
    "mcp.timeout_s": (0.001, _SECONDS),
    "mcp.start_timeout_s": (0.001, 3600),
    "mcp.max_concurrency": (1, 100_000),
    "corpus.results": (1, 1000),
    "corpus.cat_characters": (100, 1_000_000),
    "services.start_timeout_s": (0.001, 3600),
    "splits.train": (0, 1),
    "splits.screen": (0, 1),
    "splits.confirm": (0, 1),
    "splits.test": (0, 1),
    "grader.abs_tol": (0, 1e300),
    "grader.rel_tol": (0, 1e6),
    "grader.timeout_s": (0.001, _SECONDS),
    "grader.rate_limit": (0, 1e6),
    "grader.pass_threshold": (0, 1),
    "grader.cost_weight": (0, 0.2),
    "grader.cost_free": (0, 1e12),
    "grader.cost_full": (0, 1e12),
    "probe.attempts": (1, 1000),
    "probe.tasks": (0, _MANY),
    "probe.temperature": (0, 5),
    "gate.alpha": (1e-6, 0.5),
    "gate.max_candidates": (1, 1000),
    "gate.looks": (1, _MANY),
    "gate.margin": (0.001, 0.5),
    "gate.aa_tasks": (0, _MANY),
    "gate.target": (0, 1),
    "gate.protect": (0, 10_000),
    "guards.hack_reward": (0, 1),
    "train.steps": (0, 1_000_000),
    "train.rollouts": (1, 1_000_000),
    "train.group_size": (2, 4096),
    "train.report_attempts": (1, 1000),
    "train.compute_multiplier": (0, 10),
    "train.temperature": (0.01, 5),
    "train.seed": (0, 2**63 - 1),
    "train.eval_every": (1, 1_000_000),
    "train.eval_tasks": (0, _MANY),
    "train.report_tasks": (0, _MANY),
    "train.max_concurrency": (1, 100_000),
    "train.rft.learning_rate": (0, 1),
    "train.rft.rate_warmup": (0, 1_000_000),
    "train.rft.lora_rank": (1, 4096),
    "train.rft.lora_alpha": (1e-6, 1e6),
    "train.rft.clip_low": (0, 1),
    "train.rft.clip_high": (0, 100),
    "train.rft.max_grad_norm": (1e-6, 1e6),
    "train.rft.micro_batch_tokens": (1, _MANY),
    "train.rft.replay": (0, 1000),
    "train.rft.sharpness": (0, 1000),
    "train.rft.replay_steps": (1, 1000),
    "train.rft.updates_per_step": (1, 4096),
    "train.rft.trained_per_group": (0, 4096),
    "warmup.limit": (1, _MANY),
    "warmup.epochs": (1, 1000),
    "warmup.batch_size": (1, 100_000),
    "warmup.learning_rate": (0, 1),
    "curriculum.weights": (0, 1e9),
    "budget.minutes": (0, 1e7),
    "budget.rollouts": (0, _MANY),
    "budget.calls": (0, _MANY),
    "budget.tokens": (0, 10**15),
    "budget.cost_usd": (0, 1e9),
    "prices.tokens_in_usd": (0, 1e6),
    "prices.tokens_out_usd": (0, 1e6),
    "prices.call_usd": (0, 1e6),
    "network.breaker_faults": (1, _MANY),
    "network.breaker_probe_s": (0.001, 3600),
    "network.breaker_wait_s": (0.001, _SECONDS),
    "store.retention_days": (0, 36_500),
}
"""Lowest and highest value of every number, by dotted name (list positions left out)."""


class Problem(NamedTuple):
    """One thing wrong with a configuration: which key, what, and how to mend it."""

    path: KeyPath
    what: str
    fix: str = ""


def suggestion(name: str, known: tuple[str, ...]) -> str:
    """Return `Did you mean X?`, or the list of choices when nothing is close."""
    close = get_close_matches(name, known, n=1)
    return f"Did you mean `{close[0]}`?" if close else f"Choose from: {', '.join(known)}."


def range_problem(path: KeyPath, value: float) -> Problem | None:
    """Return what is wrong with a number by itself, if anything."""
    low, high = RANGES.get(".".join(p for p in path if isinstance(p, str)), (None, None))
    if low is None or high is None:
        # Free mappings (tool schemas) hold numbers of the user's own; a setting must be listed.
        return None
    if low <= value <= high:
        return None
    return Problem(path, f"is {value:g}, outside {low:g} to {high:g}")


def disagreements(config: Config) -> Iterator[Problem]:
    """Yield settings that are fine alone and wrong together."""
    yield from _names(config)
    yield from _reached(config)
    yield from _addresses(config)
    yield from _grader(config)
    for index, name in enumerate(config.corpus.tools):
        if name not in CORPUS_TOOLS:
            what = f"is `{name}`, which the corpus does not have"
            yield Problem(("corpus", "tools", index), what, suggestion(name, CORPUS_TOOLS))
    shares = config.splits
    total = shares.train + shares.screen + shares.confirm + shares.test
    if abs(total - 1) > 1e-6:
        yield Problem(("splits",), f"adds up to {total:g}, not 1")
    if config.train.rollouts < config.train.group_size:
        yield Problem(
            ("train", "rollouts"),
            f"is {config.train.rollouts}, fewer than one group of {config.train.group_size}",
            "Raise it or lower `train.group_size`.",
        )
    elif config.train.rollouts % config.train.group_size:
        size, whole = config.train.group_size, config.train.rollouts // config.train.group_size
        yield Problem(
            ("train", "rollouts"),
            f"is {config.train.rollouts}, no multiple of `train.group_size`, which is {size}",
            f"Use {whole * size} or {(whole + 1) * size}, or change `train.group_size`.",
        )
    if 0 < config.train.compute_multiplier <= _LEAST_MULTIPLIER:
        what = f"must be above {_LEAST_MULTIPLIER:g}, or 0 to leave it to `train.group_size`"
        yield Problem(("train", "compute_multiplier"), what)
    if config.gate.target and not config.gate.aa_tasks:
        fix = "Set gate.aa_tasks: only an A/A run tells whether the gain would show."
        yield Problem(("gate", "target"), "is set without an A/A run", fix)
    if any(b <= a for a, b in pairwise(config.gate.looks)) or not config.gate.looks:
        yield Problem(("gate", "looks"), "must be a rising list of pair counts")


def _names(config: Config) -> Iterator[Problem]:
    sections = (("tools", config.tools), ("mcp", config.mcp), ("services", config.services))
    for section, entries in sections:
        seen: set[str] = set()
        for index, entry in enumerate(entries):
            path = (section, index, "name")
            if not re.fullmatch(r"[A-Za-z0-9_-]{1,64}", entry.name):
                yield Problem(
                    path,
                    f"is `{entry.name}`, not a valid name",
                    "Use 1 to 64 letters, digits, `_` or `-`.",
                )
            if entry.name in seen:
                yield Problem(
                    path, f"is `{entry.name}`, which is used twice", "Names must be unique."
                )
            seen.add(entry.name)
    for index, service in enumerate(config.services):
        if not service.command:
            yield Problem(("services", index, "command"), "is empty")


def _reached(config: Config) -> Iterator[Problem]:
    """Yield tools that are reached in no way or in two."""
    fix = "Give each [[tools]] either `server_url` or `function`."
    for index, tool in enumerate(config.tools):
        if tool.server_url and tool.function:
            yield Problem(("tools", index, "function"), "stands beside `server_url`", fix)
        elif not tool.server_url and not tool.function:
            yield Problem(("tools", index, "server_url"), "is missing", fix)
        elif tool.function and not re.fullmatch(r"[^:]+:[A-Za-z_]\w*", tool.function):
            yield Problem(
                ("tools", index, "function"),
                f"is `{tool.function}`, not a function's place",
                "Write `tools.py:search` or `package.module:search`.",
            )
    fix = "Give each [[mcp]] either `command` or `url`."
    for index, server in enumerate(config.mcp):
        if server.command and server.url:
            yield Problem(("mcp", index, "url"), "stands beside `command`", fix)
        elif not server.command and not server.url:
            yield Problem(("mcp", index, "command"), "is missing", fix)


def _addresses(config: Config) -> Iterator[Problem]:
    known = tuple(s.name for s in config.services)
    places: list[tuple[KeyPath, str]] = [
        (("tools", i, "server_url"), t.server_url) for i, t in enumerate(config.tools)
    ]
    places += [
        (("tools", i, "episode_end_url"), t.episode_end_url) for i, t in enumerate(config.tools)
    ]
    places += [(("mcp", i, "url"), server.url) for i, server in enumerate(config.mcp)]
    places = [(path, url) for path, url in places if url]
    if config.grader.type == "endpoint":
        places.append((("grader", "url"), config.grader.url))
    for path, url in places:
        for name in re.findall(r"\{service:([^}]*)\}", url):
            if name not in known:
                hint = suggestion(name, known) if known else "Add a [[services]] section for it."
                yield Problem(path, f"names a service `{name}` that does not exist", hint)
        if not re.match(r"https?://|\{service:", url):
            yield Problem(
                path, f"is `{public_url(url)}`, not an http address", "Start it with http:// ."
            )


def _grader(config: Config) -> Iterator[Problem]:
    grader = config.grader
    if grader.type == "todo":
        yield Problem(
            ("grader", "type"),
            "is `todo`: no grader was chosen yet",
            f"Choose from: {', '.join(GRADERS)}.",
        )
    elif grader.type not in GRADERS:
        yield Problem(
            ("grader", "type"),
            f"is `{grader.type}`, an unknown kind",
            suggestion(grader.type, GRADERS),
        )
    if grader.type in ("multi", "cascade") and not grader.graders:
        fix = f"Add sections such as [grader.graders.accuracy] for the `{grader.type}`."
        yield Problem(("grader", "graders"), "names no grader", fix)
    if grader.type == "file" and not grader.file:
        yield Problem(("grader", "file"), "is missing", "Name a JSON file of a grader.")
    if grader.type not in ("numeric", "string_check") and grader.cost_weight > 0:
        yield Problem(
            ("grader", "cost_weight"),
            f"is above 0 with a grader of type `{grader.type}`, whose partial scores could then rank a better but "
            "costlier answer below a worse one",
            "Set it to 0: an endpoint can weigh cost itself, a `multi` has `budget` graders.",
        )
    if grader.cost_full <= grader.cost_free:
        yield Problem(("grader", "cost_full"), "must be above `cost_free`")
