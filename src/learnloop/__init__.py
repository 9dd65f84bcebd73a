"""learnloop: a self-hosted trainer for tool-using agents."""

__version__ = "0.1.0"
