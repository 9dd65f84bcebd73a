"""The sections about a run: the probe, the gate, training, its limits, store and network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The variance probe."""

    attempts: int = 3
    """Attempts on each task."""
    tasks: int = 48
    """Most tasks probed, drawn from train; 0 takes all."""
    temperature: float = 0.8
    """Sampling temperature of probe attempts: that of training."""
    regrade: bool = True
    """Whether a grader endpoint is asked again about one rollout of each probed task, to see if it agrees."""
    after: bool = True
    """Whether `train` probes the chosen checkpoint too, for the comparison in the report."""


@dataclass(frozen=True, kw_only=True)
class GateConfig:
    """The gate that decides about adoption."""

    alpha: float = 0.05
    """Chance of adopting something no better, over the whole run."""
    max_candidates: int = 4
    """Most candidates the run may test; each gets an equal share of alpha."""
    looks: tuple[int, ...] = (80, 160, 240, 320, 400)
    """Pair counts at which the gate looks."""
    scores: Literal["right", "graded"] = "right"
    """Whether rollouts count as right or not, or by the grader's number before any shaping."""
    claim: Literal["better", "cheaper", "either"] = "better"
    """What is tested: a gain; a saving without a loss beyond the margin; or both on half the error each."""
    margin: float = 0.05
    """How much worse a cheaper candidate may be, as a fraction of the score range."""
    cost: Literal["calls", "rounds", "tokens", "latency_s"] = "tokens"
    """What a cheaper candidate must save."""
    aa_tasks: int = 40
    """Screen tasks that the agent tries twice before training, to see its noise (A/A run); 0: none."""
    target: float = 0.0
    """The gain that is wanted, as a fraction; a run that would hardly show it stops at once; 0: none."""
    accept_underpowered: bool = False
    """Whether to train though the gate would hardly show the wanted gain."""
    protect: int = 0
    """Most confirm tasks that pass always and must go on doing so: a confirmed loss is a veto; 0: none."""


@dataclass(frozen=True, kw_only=True)
class RftConfig:
    """Reinforcement fine-tuning."""

    method: Literal["full", "lora"] = "full"
    """Whether all weights are trained or a low-rank adapter."""
    learning_rate: float = 3e-5
    """Largest step size of Adam."""
    rate_warmup: int = 5
    """Updates, at most half of the steps, over which the learning rate rises; then it falls."""
    lora_rank: int = 16
    """Rank of the adapter."""
    lora_alpha: float = 32.0
    """Scale of the adapter."""
    algorithm: Literal["dr_grpo"] = "dr_grpo"
    """Loss on sampled tokens (see `policy/losses/`)."""
    advantage: Literal["mean", "mean_std", "raft"] = "mean"
    """Group rewards centred, or divided by their deviation too (GRPO); `raft` learns from right rollouts only."""
    replay: int = 0
    """With `raft`: right rollouts of each kind of task in a step, earlier ones where it has too few; 0: no replay."""
    replay_steps: int = 4
    """Steps that a replayed rollout may be old; texts of training rollouts are kept as long."""
    sharpness: float = 0.0
    """With `raft`: a rollout weighs exp(sharpness * reward) among those of its kind; 0: all weigh the same."""
    updates_per_step: int = 1
    """Updates into which the rollouts of a step are divided; every group has its share in each."""
    trained_per_group: int = 0
    """Most rollouts of a group that are trained on, the most different rewards first, with `raft` the best; 0: all."""
    clip_low: float = 0.2
    """Lower clip of the probability ratio."""
    clip_high: float = 0.28
    """Upper clip of the probability ratio."""
    max_grad_norm: float = 1.0
    """Gradients are scaled down to this norm."""
    micro_batch_tokens: int = 3072
    """Most packed tokens in one forward and backward pass; a processor runs two at a time."""


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """The training run."""

    optimizer: Literal["rft"] = "rft"
    """Which optimiser improves the agent."""
    steps: int = 10
    """Updates."""
    rollouts: int = 64
    """Rollouts a step."""
    group_size: int = 16
    """Rollouts of one task in a step."""
    compute_multiplier: float = 0.0
    """In place of `group_size`: 1 is 8 rollouts a task, 2 is 16; tasks a step stay; 0: not used."""
    temperature: float = 0.8
    """Sampling temperature of training rollouts."""
    seed: int = 0
    """Seed of everything that is drawn."""
    eval_every: int = 5
    """Steps between evaluations on screen."""
    eval_tasks: int = 40
    """Most screen tasks in one evaluation; 0 takes all."""
    report_tasks: int = 120
    """Most tasks of the sealed test, and of a split in `eval`; 0 takes all; on confirm the gate decides."""
    report_attempts: int = 1
    """Attempts on each task of the sealed test; from two on, the report knows what reruns would buy."""
    max_concurrency: int = 128
    """Most rollouts in flight."""
    rft: RftConfig = field(default_factory=RftConfig)
    """Settings of reinforcement fine-tuning."""

    @property
    def tasks_per_step(self) -> int:
        """Return how many tasks a step draws."""
        return self.rollouts // self.group_size

    @property
    def per_task(self) -> int:
        """Return the rollouts of one task in a step; fewer than two could not be compared."""
        if not self.compute_multiplier:
            return self.group_size
        return max(2, round(8 * self.compute_multiplier))

    @property
    def rollouts_per_step(self) -> int:
        """Return the rollouts of a step, the compute multiplier applied."""
        return self.tasks_per_step * self.per_task


@dataclass(frozen=True, kw_only=True)
class WarmupConfig:
    """Supervised start from demonstrations, its own recorded stage."""

    path: str = ""
    """JSONL of demonstrations, relative to the project; empty means no warm-up."""
    make: tuple[str, ...] = ()
    """Command that writes the demonstrations when the file is missing."""
    limit: int = 200
    """Most demonstrations used."""
    epochs: int = 2
    """Passes over them."""
    batch_size: int = 16
    """Demonstrations in one update."""
    learning_rate: float = 3e-5
    """Largest step size of Adam in the warm-up: it rises over a tenth of the updates, then falls."""


@dataclass(frozen=True, kw_only=True)
class CurriculumConfig:
    """Which kinds of task are trained on, and how often each."""

    weights: Mapping[str, float] = field(default_factory=dict[str, float])
    """Relative frequency of each kind; empty takes tasks as they come; kinds not named are left out."""


@dataclass(frozen=True, kw_only=True)
class BudgetConfig:
    """Limits of a whole run; 0 means no limit. What is in flight when one is reached is finished.

    A resumed run counts what it took before. Rollouts that were under way when it was cut short
    count in `rollouts`; what else they took nobody recorded, and the run says how many they were.
    """

    minutes: float = 0.0
    """Wall time."""
    rollouts: int = 0
    """Rollouts of every stage together; never exceeded."""
    calls: int = 0
    """Tool calls of every stage together."""
    tokens: int = 0
    """Tokens of every stage together: context that had to be computed, and what was sampled."""
    cost_usd: float = 0.0
    """Money, by the prices of `[prices]`."""


@dataclass(frozen=True, kw_only=True)
class PricesConfig:
    """What a run costs, for `budget.cost_usd`; 0 is free."""

    tokens_in_usd: float = 0.0
    """Of 1,000 tokens of context, those taken from the cache not counted."""
    tokens_out_usd: float = 0.0
    """Of 1,000 sampled tokens."""
    call_usd: float = 0.0
    """Of one tool call."""


@dataclass(frozen=True, kw_only=True)
class GuardsConfig:
    """Guards that look at every graded rollout; `docs/guards.md` lists them."""

    off: tuple[str, ...] = ()
    """Guards that do not look."""
    flag_only: tuple[str, ...] = ()
    """Guards whose findings are recorded and change no reward."""
    hack_reward: float = 0.0
    """Reward of a rollout in which a blocking guard found something."""
    stop: bool = False
    """Whether a run pauses where accuracy on train rises far above that on held-out tasks."""


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """Where foreign code runs: Python graders."""

    allow_unsandboxed: bool = False
    """Whether resource limits alone may hold it on a machine that has nothing better."""


@dataclass(frozen=True, kw_only=True)
class StoreConfig:
    """What is kept of rollouts, and for how long; see `docs/store.md`."""

    content: Literal["full", "masked", "hash", "none"] = "full"
    """How much of what was said is kept: all, texts with masks, hashes of texts, or numbers only."""
    retention_days: int = 0
    """Days after a run began until its texts are erased, when a run starts; 0 keeps them."""


@dataclass(frozen=True, kw_only=True)
class NetworkConfig:
    """Where requests may go."""

    allow_private: bool = False
    """Whether loopback and private addresses may be called; link-local ones never are."""
    breaker_faults: int = 20
    """Faults in a row after which an endpoint counts as down and rollouts wait for it."""
    breaker_probe_s: float = 5.0
    """Seconds until one request looks whether it is back; doubles with each look, up to a minute."""
    breaker_wait_s: float = 600.0
    """Seconds an endpoint may be down before the run pauses with exit code 5."""
