"""The configuration tree of `learnloop.toml`: one frozen dataclass a section.

The sentence under a field is its documentation: `docs/config.md` and the JSON schema are made
from it. Defaults are the tested ones. Sections are in `agent` and `training`, all of them are to be
imported from here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from learnloop.config.agent import (
    AgentConfig,
    CorpusConfig,
    DataConfig,
    GraderConfig,
    McpConfig,
    ModelConfig,
    ProjectConfig,
    ServiceConfig,
    SplitsConfig,
    ToolConfig,
    ToolsReplayConfig,
)
from learnloop.config.training import (
    BudgetConfig,
    CurriculumConfig,
    GateConfig,
    GuardsConfig,
    NetworkConfig,
    PricesConfig,
    ProbeConfig,
    RftConfig,
    SandboxConfig,
    StoreConfig,
    TrainConfig,
    WarmupConfig,
)

__all__ = [
    "MASK",
    "AgentConfig",
    "BudgetConfig",
    "Config",
    "CorpusConfig",
    "CurriculumConfig",
    "DataConfig",
    "GateConfig",
    "GraderConfig",
    "GuardsConfig",
    "McpConfig",
    "ModelConfig",
    "NetworkConfig",
    "PricesConfig",
    "ProbeConfig",
    "ProjectConfig",
    "RftConfig",
    "SandboxConfig",
    "ServiceConfig",
    "SplitsConfig",
    "StoreConfig",
    "ToolConfig",
    "ToolsReplayConfig",
    "TrainConfig",
    "WarmupConfig",
    "public_url",
]

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
    guards: GuardsConfig = field(default_factory=GuardsConfig)
    """The guards."""
    sandbox: SandboxConfig = field(default_factory=SandboxConfig)
    """The sandbox."""
    store: StoreConfig = field(default_factory=StoreConfig)
    """The store."""
    network: NetworkConfig = field(default_factory=NetworkConfig)
    """The network."""
