"""Implementations of the Tool contract, and what a rollout needs around them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from learnloop.config import ToolConfig
from learnloop.errors import ConfigError
from learnloop.outbound import Outbound
from learnloop.tool import Tool
from learnloop.tools.http import HttpTool


def http_tools(configs: Sequence[ToolConfig], outbound: Outbound) -> dict[str, Tool]:
    """Return the configured tools by name; secrets in headers come from the environment.

    Raises:
        ConfigError: two tools share a name, an address is forbidden, or a variable is not set.
    """
    tools: dict[str, Tool] = {}
    for config in configs:
        if config.name in tools:
            raise ConfigError(f"two tools are called {config.name!r}", fix="Rename one of them.")
        tools[config.name] = HttpTool(config, outbound, environ=os.environ)
    return tools
