"""The numbers that describe a decoder of the Llama family, read from a model folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from learnloop.errors import ConfigError

SUPPORTED = ("llama", "mistral", "qwen2", "qwen3")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Sizes of a decoder: L layers, H hidden, Q query heads, K key-value heads, D head size.

    `positions` is the longest conversation that the model was made for.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    inner: int
    vocab: int
    eps: float
    rope_theta: float
    tied: bool
    positions: int

    @property
    def q_rows(self) -> int:
        """Return rows of the query projection."""
        return self.heads * self.head_dim

    @property
    def kv_rows(self) -> int:
        """Return rows of the key projection, which the value projection shares."""
        return self.kv_heads * self.head_dim


def read_shape(folder: Path) -> Shape:
    """Read `config.json` of a Hugging Face model folder.

    Raises:
        ConfigError: there is no such file, or the model is of another family.
    """
    file = folder / "config.json"
    if not file.is_file():
        raise ConfigError(
            "this is not a model folder: it has no config.json",
            where=str(folder),
            fix="`learnloop models` lists what is there.",
        )
    raw: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    rope: dict[str, Any] = raw.get("rope_parameters") or raw.get("rope_scaling") or {}
    _refuse_unknown(raw, rope, str(folder))
    heads = int(raw["num_attention_heads"])
    return Shape(
        layers=int(raw["num_hidden_layers"]),
        hidden=int(raw["hidden_size"]),
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_dim=int(raw.get("head_dim") or int(raw["hidden_size"]) // heads),
        inner=int(raw["intermediate_size"]),
        vocab=int(raw["vocab_size"]),
        eps=float(raw["rms_norm_eps"]),
        rope_theta=float(rope.get("rope_theta") or raw.get("rope_theta") or 10000.0),
        tied=bool(raw.get("tie_word_embeddings", False)),
        positions=_positions(raw),
    )


def _refuse_unknown(raw: dict[str, Any], rope: dict[str, Any], where: str) -> None:
    """Raise ConfigError for what the network would compute wrongly."""
    family = str(raw.get("model_type"))
    if family not in SUPPORTED:
        known = ", ".join(SUPPORTED)
        raise ConfigError(
            f"model family `{family}` is not supported", where=where, fix=f"Use one of: {known}."
        )
    kind = str(rope.get("rope_type", rope.get("type", "default")))
    if kind != "default":
        raise ConfigError(
            f"rope scaling `{kind}` is not supported",
            where=where,
            fix="Use a model without rope scaling.",
        )
    activation = str(raw.get("hidden_act", "silu"))
    if activation != "silu":
        raise ConfigError(
            f"activation `{activation}` is not supported", where=where, fix="Use a model with silu."
        )


def _positions(raw: dict[str, Any]) -> int:
    """Return how far the model reaches; beyond a sliding window it would need another attention."""
    reach = int(raw.get("max_position_embeddings") or 1 << 30)
    window = raw.get("sliding_window") if raw.get("use_sliding_window", True) else None
    return min(reach, int(window)) if window else reach
