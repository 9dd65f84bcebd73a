"""The sections about the agent: its model, tools and services, its tasks, and who grades it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


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
    device: Literal["cpu", "cuda"] = "cpu"
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
    """Program and arguments of a server over stdio, run in the project; `{python}` as in services, `${NAME}` as in `env`."""
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
    search: Literal["bm25", "semantic", "hybrid"] = "bm25"
    """By words, by meaning, or both with the rankings fused; the last two need `[semantic]`."""
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
    """Kind of grader: `numeric`, `string_check`, `endpoint`, `multi`, `cascade` or `file`; `docs/graders.md`."""
    file: str = ""
    """JSON of a grader in the form of the wire contract, for `file`; relative to the project."""
    graders: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The graders inside a `multi` or `cascade` by name, each with a `type` and settings of its own."""
    calculate_output: str = ""
    """Formula over those graders, for `multi`: `accuracy * (0.8 + 0.2 * cheap)`."""
    correct: str = ""
    """Which of them says whether an answer is right; empty takes the formula's value."""
    reference: str = "answer"
    """Field of the dataset row with the expected answer; `outer.inner` is one inside another."""
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
    """Score of an endpoint or a `multi` from which an answer is correct; 0 takes the score as it is."""
    tolerate: tuple[str, ...] = ()
    """Answers without merit by which `check` may find the grader fooled, by name; `all` for every one."""
    anchors: str = ""
    """JSON lines of outputs with known verdicts, which are graded before every run; relative to the project."""
    cost_weight: float = 0.0
    """Share (at most 0.2) of a correct answer's reward that depends on how cheaply it was had."""
    cost_unit: Literal["calls", "rounds", "tokens"] = "calls"
    """What cost is measured in."""
    cost_free: float = 1.0
    """Cost up to which nothing is taken off."""
    cost_full: float = 6.0
    """Cost from which the whole `cost_weight` is taken off."""
