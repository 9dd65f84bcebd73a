"""The configuration tree of `learnloop.toml`: one frozen dataclass a section.

The sentence under a field is its documentation: `docs/config.md` and the JSON schema are made
from it. Defaults are the tested ones.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

MASK = "***"
"""What stands in place of a secret in everything that is shown or stored."""


def public_url(url: str) -> str:
    """Return an address as it may be shown: user, password and query values are masked."""
    head, mark, query = url.partition("?")
    head = re.sub(r"^(\w+://)?[^/]*@", rf"\g<1>{MASK}@", head)
    pairs = [part.partition("=") for part in query.split("&")]
    shown = [f"{name}={MASK}" if equals else name and MASK for name, equals, _ in pairs]
    return head + mark + "&".join(shown)


@dataclass(frozen=True, kw_only=True)
class ProjectConfig:
    """What the project is called and where its state lives."""

    name: str = "project"
    """Name shown in reports."""
    state_dir: str = ".learnloop"
    """Folder for database, checkpoints and reports, relative to the project."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model the agent runs on."""

    ref: str = "smollm2-135m"
    """A registry name, `hf:ORG/NAME`, or the path of a local model folder."""
    dtype: Literal["bf16", "fp32"] = "bf16"
    """Precision of matrix products; master weights are fp32 either way."""
    device: str = "cpu"
    """Where the policy process keeps the weights: `cpu` or `cuda`."""
    threads: int = 0
    """CPU threads of the policy process; 0 takes every core it may use."""
    temperature: float = 0.0
    """Sampling temperature of evaluations; 0 is greedy."""
    max_tokens: int = 64
    """Most tokens sampled in one turn."""
    max_context: int = 2048
    """Most tokens of one conversation; a rollout that needs more ends with reason `context`."""


@dataclass(frozen=True, kw_only=True)
class AgentConfig:
    """The agent's text and the limits of one rollout."""

    system_prompt: str = "prompts/system.md"
    """File with the system prompt, relative to the project."""
    max_calls: int = 10
    """Most tool calls in one rollout."""
    max_rounds: int = 10
    """Most turns with tool calls in one rollout; parallel calls of a turn are one round."""
    max_turns: int = 100
    """Most turns in one rollout before the last one, malformed ones included."""
    max_tokens_total: int = 4096
    """Most tokens sampled in one rollout."""
    max_wall_s: float = 600.0
    """Most seconds one rollout may take."""
    at_call_limit: Literal["last_turn", "end"] = "last_turn"
    """Whether the model gets one last turn without tools when its calls or rounds are spent."""
    at_turn_limit: Literal["last_turn", "end"] = "last_turn"
    """The same when its turns are spent."""
    at_token_limit: Literal["last_turn", "end"] = "end"
    """The same when its tokens are spent; the last turn is sampled over the limit."""
    at_wall_limit: Literal["last_turn", "end"] = "end"
    """`end` is a fault of what was waited for; `last_turn` ends as such after twice the time only."""
    parallel_calls: bool = True
    """Whether several calls may be made in one turn."""


@dataclass(frozen=True, kw_only=True)
class ToolConfig:
    """One tool: an HTTP server or a Python function, and what the model is told of it."""

    name: str
    """Name in the dataset's tool schemas; must match exactly."""
    server_url: str = ""
    """Where calls are posted; `{service:NAME}` is replaced by that service's address."""
    function: str = ""
    """A Python function in place of a server: `tools.py:search` or `package.module:search`."""
    description: str = ""
    """What the model is told; may be left out when rows carry schemas or a docstring tells."""
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """JSON schema of the arguments; may be left out when rows or a function's annotations tell."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Extra request headers; `${NAME}` takes a value from the environment; never logged."""
    timeout_s: float = 600.0
    """Seconds before one request counts as a fault."""
    max_concurrency: int = 64
    """Most requests in flight to this tool."""
    rate_limit: float = 0.0
    """Most requests a second, over all rollouts and all tools at one address; 0: no limit."""
    secret: str = ""
    """Signs each request (`X-Learnloop-Signature`); `"${NAME}"` takes it from the environment."""
    episode_end_url: str = ""
    """Told `{"type": "episode_end", "trace_id"}` when a rollout ends, so that state can be freed."""


@dataclass(frozen=True, kw_only=True)
class McpConfig:
    """An MCP server whose tools the agent may call; `command` or `url` says how it is reached."""

    name: str
    """Name of the server in messages."""
    command: tuple[str, ...] = ()
    """Program and arguments of a server over stdio, run in the project; `{python}` as in services."""
    url: str = ""
    """Address of a server over streamable HTTP; `{service:NAME}` as in tools."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Extra request headers; `${NAME}` takes a value from the environment; never logged."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Environment variables of the program; `${NAME}` takes a value from ours; never logged."""
    tools: tuple[str, ...] = ()
    """Which of the server's tools are offered; empty offers all."""
    prefix: str = ""
    """Put before the server's tool names, so that they do not clash with other tools."""
    timeout_s: float = 600.0
    """Seconds before one call counts as a fault."""
    start_timeout_s: float = 60.0
    """Seconds to wait for a connection, at the start and whenever it breaks."""
    max_concurrency: int = 64
    """Most calls in flight to this server."""


@dataclass(frozen=True, kw_only=True)
class CorpusConfig:
    """Tools over a folder of text documents, without any server."""

    path: str = ""
    """The folder, relative to the project; empty means no such tools."""
    tools: tuple[str, ...] = ("search", "list", "cat")
    """Which of `search`, `list` and `cat` the agent may call."""
    results: int = 5
    """Documents that a search returns."""
    cat_characters: int = 4000
    """Most characters that `cat` shows at once."""


@dataclass(frozen=True, kw_only=True)
class ToolsReplayConfig:
    """Answers from a recording in place of the tools themselves."""

    cassette: str = ""
    """File that `--record-tools` or `learnloop tools record` wrote; empty calls the tools."""


@dataclass(frozen=True, kw_only=True)
class ServiceConfig:
    """A local process that learnloop starts before a run and stops after it."""

    name: str
    """Name by which tools refer to it."""
    command: tuple[str, ...]
    """Program and arguments; `{port}` is a free port, `{python}` the running interpreter."""
    ready_url: str = "http://127.0.0.1:{port}/health"
    """Answers 200 once the service is ready."""
    start_timeout_s: float = 60.0
    """Seconds to wait for it."""


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The dataset."""

    path: str = "data/tasks.jsonl"
    """JSONL, one task a line, relative to the project."""
    make: tuple[str, ...] = ()
    """Command that writes the dataset when the file is missing; `{python}` as in services."""


@dataclass(frozen=True, kw_only=True)
class SplitsConfig:
    """Shares of the four splits, used for rows that bring none; whole groups move together."""

    train: float = 0.4
    """Share of groups optimisers may read."""
    screen: float = 0.15
    """Share for cheap looks during training."""
    confirm: float = 0.25
    """Share for the gate."""
    test: float = 0.2
    """Share that stays sealed until a report opens it."""


@dataclass(frozen=True, kw_only=True)
class GraderConfig:
    """How an answer becomes a score."""

    type: str = "numeric"
    """Kind of grader: `numeric`, `string_check` or `endpoint`."""
    reference: str = "answer"
    """Field of the dataset row that holds the expected answer."""
    operation: Literal["eq", "ne", "like", "ilike"] = "eq"
    """How `string_check` compares: equal, not equal, contains, contains whatever the case."""
    abs_tol: float = 0.0
    """Largest absolute difference that still counts as right."""
    rel_tol: float = 0.0
    """Largest difference relative to the expected answer that still counts as right."""
    url: str = ""
    """Address of a grader endpoint."""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    """Extra headers for a grader endpoint; never logged."""
    timeout_s: float = 600.0
    """Seconds before one grading request counts as a fault."""
    rate_limit: float = 0.0
    """Most requests a second to a grader endpoint; 0: no limit."""
    secret: str = ""
    """Signs each request to a grader endpoint, as with tools."""
    pass_threshold: float = 0.0
    """Score of a grader endpoint from which an answer is correct; 0 takes the score as it is."""
    cost_weight: float = 0.0
    """Share (at most 0.2) of a correct answer's reward that depends on how cheaply it was had."""
    cost_unit: Literal["calls", "rounds", "tokens"] = "calls"
    """What cost is measured in."""
    cost_free: float = 1.0
    """Cost up to which nothing is taken off."""
    cost_full: float = 6.0
    """Cost from which the whole `cost_weight` is taken off."""


@dataclass(frozen=True, kw_only=True)
class ProbeConfig:
    """The variance probe."""

    attempts: int = 3
    """Attempts on each task."""
    tasks: int = 48
    """Most tasks probed, drawn from train; 0 takes all."""
    temperature: float = 0.8
    """Sampling temperature of probe attempts: that of training."""
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


@dataclass(frozen=True, kw_only=True)
class RftConfig:
    """Reinforcement fine-tuning."""

    method: Literal["full", "lora"] = "full"
    """Whether all weights are trained or a low-rank adapter."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """`sgd` keeps no state and moves each weight by its gradient; its rates are about 1,000 times larger."""
    learning_rate: float = 3e-5
    """Largest step size of the optimizer."""
    rate_warmup: int = 5
    """Updates, at most half of the steps, over which the learning rate rises; then it falls."""
    lora_rank: int = 16
    """Rank of the adapter."""
    lora_alpha: float = 32.0
    """Scale of the adapter."""
    algorithm: Literal["dr_grpo"] = "dr_grpo"
    """Loss on sampled tokens (see `policy/losses/`)."""
    advantage: Literal["mean", "mean_std"] = "mean"
    """Whether group rewards are centred only, or divided by their deviation too, as GRPO does."""
    solved_advantage: float = 0.0
    """Added to the advantages of a group in which every rollout is right, so that it is not forgotten."""
    cost_advantage: float = 0.0
    """Advantage for each deviation that a right rollout is cheaper than others; grows from 0 over the steps."""
    updates_per_step: int = 1
    """Updates into which the rollouts of a step are divided; every group has its share in each."""
    trained_per_group: int = 0
    """Most rollouts of a group that are trained on, the most different rewards first; 0: all."""
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
    """Limits of a whole run; 0 means no limit. What is in flight when one is reached is finished."""

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


@dataclass(frozen=True, kw_only=True)
class Config:
    """The whole of `learnloop.toml`."""

    project: ProjectConfig = field(default_factory=ProjectConfig)
    """The project."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The model."""
    agent: AgentConfig = field(default_factory=AgentConfig)
    """The agent."""
    tools: tuple[ToolConfig, ...] = ()
    """The tools."""
    mcp: tuple[McpConfig, ...] = ()
    """MCP servers."""
    corpus: CorpusConfig = field(default_factory=CorpusConfig)
    """The corpus."""
    tools_replay: ToolsReplayConfig = field(default_factory=ToolsReplayConfig)
    """Replayed tools."""
    services: tuple[ServiceConfig, ...] = ()
    """Local services."""
    data: DataConfig = field(default_factory=DataConfig)
    """The dataset."""
    splits: SplitsConfig = field(default_factory=SplitsConfig)
    """The splits."""
    grader: GraderConfig = field(default_factory=GraderConfig)
    """The grader."""
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    """The probe."""
    gate: GateConfig = field(default_factory=GateConfig)
    """The gate."""
    train: TrainConfig = field(default_factory=TrainConfig)
    """Training."""
    warmup: WarmupConfig = field(default_factory=WarmupConfig)
    """The warm-up."""
    curriculum: CurriculumConfig = field(default_factory=CurriculumConfig)
    """The curriculum."""
    budget: BudgetConfig = field(default_factory=BudgetConfig)
    """Budgets."""
    prices: PricesConfig = field(default_factory=PricesConfig)
    """Prices."""
    store: StoreConfig = field(default_factory=StoreConfig)
    """The store."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The network."""
