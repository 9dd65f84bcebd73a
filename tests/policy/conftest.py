"""The tiny models, made once, and what most policy tests start from."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.tiny_model import make_tiny_model

from learnloop.policy.weights import Weights, load_weights

Load = Callable[[str], Weights]

# Two threads that wait for each other cost these tiny matrices more than they save.
torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder for each family."""
    root = tmp_path_factory.mktemp("models")
    return {f: make_tiny_model(root / f, f) for f in ("llama", "qwen2", "qwen3")}


@pytest.fixture(scope="session")
def tiny_model(tiny_models: dict[str, Path]) -> Path:
    """Return the folder of the tiny Llama model."""
    return tiny_models["llama"]


@pytest.fixture
def tiny_weights(tiny_models: dict[str, Path]) -> Load:
    """Return a loader of fresh fp32 weights by family."""
    return lambda family: load_weights(tiny_models[family], torch.float32)
