"""The engine refuses what it would compute wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from learnloop.errors import ConfigError
from learnloop.policy.engine import Engine


def copy_of(model: Path, folder: Path, *, without: str = "", **changes: Any) -> Path:
    """Copy a model folder, leave a file out, change keys of its `config.json`."""
    folder.mkdir()
    for file in model.iterdir():
        if file.name != without:
            (folder / file.name).write_bytes(file.read_bytes())
    if changes:
        config = folder / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | changes))
    return folder


def open_engine(folder: Path) -> Engine:
    return Engine(folder, dtype="fp32", device="cpu", max_context=400)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors"])
def test_a_folder_that_lacks_a_file_is_no_model(
    file: str, tiny_model: Path, tmp_path: Path
) -> None:
    folder = copy_of(tiny_model, tmp_path / "model", without=file)
    with pytest.raises(ConfigError, match=r"config\.json|safetensors") as error:
        open_engine(folder)
    assert error.value.where == str(folder)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"model_type": "gpt2"}, "family `gpt2` is not supported"),
        ({"hidden_act": "gelu"}, "activation `gelu` is not supported"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope scaling `yarn` is not supported"),
        ({"num_hidden_layers": 3}, r"`model.layers.2.\S+` is missing"),
        ({"num_hidden_layers": 1}, r"`model.layers.1.\S+` belongs to a part that is not supported"),
        ({"intermediate_size": 80}, "has another shape"),
        ({"max_position_embeddings": 128}, "the model reaches 128 tokens, max_context is 400"),
        ({"sliding_window": 64}, "the model reaches 64 tokens"),
    ],
)
def test_a_model_that_would_be_computed_wrongly_is_refused(
    changes: dict[str, Any], words: str, tiny_model: Path, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        open_engine(copy_of(tiny_model, tmp_path / "model", **changes))


def test_a_sliding_window_that_is_switched_off_does_not_matter(
    tiny_model: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    copy_of(tiny_model, folder, sliding_window=64, use_sliding_window=False)
    assert open_engine(folder).max_context == 400
