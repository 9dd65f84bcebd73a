"""learnloop: a self-hosted trainer for tool-using agents."""

from learnloop.tool import AgentMistake, ToolContext

__all__ = ["AgentMistake", "ToolContext", "__version__"]
__version__ = "0.1.0"
