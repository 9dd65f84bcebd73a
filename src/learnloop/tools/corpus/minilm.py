"""The sentence encoder MiniLM in numpy: a BERT of six layers, mean pooling, vectors of length 1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import erf  # pyright: ignore[reportMissingTypeStubs]

Floats = NDArray[np.float32]

_AT_ONCE = 8
"""Texts in one product of matrices: more would not be faster, and need more memory."""
_LEFT_OUT = np.float32(-1e9)


class MiniLM:
    """Turns token ids into vectors whose products are cosines.

    The architecture is that of BERT (Devlin et al. 2019, arXiv 1810.04805) with exact GELU; the weights
    come from a file in the safetensors layout, which is mapped and not copied.
    """

    def __init__(
        self, weights: Mapping[str, Floats], *, layers: int, heads: int, epsilon: float
    ) -> None:
        self._weights = weights
        self._layers, self._heads, self._epsilon = layers, heads, epsilon
        self.width = weights["embeddings.word_embeddings.weight"].shape[1]

    @classmethod
    def load(cls, folder: Path) -> Self:
        """Read a model's folder.

        Raises:
            OSError: a file is missing.
            ValueError: a file is damaged, or the model is another kind.
        """
        config = json.loads((folder / "config.json").read_text())
        if config.get("model_type") != "bert" or config.get("hidden_act") != "gelu":
            raise ValueError("not a BERT with GELU")
        try:
            return cls(
                read_tensors(folder / "model.safetensors"),
                layers=config["num_hidden_layers"],
                heads=config["num_attention_heads"],
                epsilon=config["layer_norm_eps"],
            )
        except KeyError as error:
            raise ValueError(f"{error} is missing") from None

    def embed(self, texts: Sequence[Sequence[int]]) -> Floats:
        """Return one vector for each text of token ids, none of which is empty."""
        vectors = np.zeros((len(texts), self.width), np.float32)
        # Texts of like length go together: shorter ones are filled up to the longest.
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))
        for first in range(0, len(order), _AT_ONCE):
            chosen = order[first : first + _AT_ONCE]
            vectors[chosen] = self._embedded([texts[at] for at in chosen])
        return vectors

    def _embedded(self, texts: Sequence[Sequence[int]]) -> Floats:
        longest = max(map(len, texts))
        ids = np.zeros((len(texts), longest), np.int64)
        real = np.zeros((len(texts), longest), np.float32)
        for row, text in enumerate(texts):
            ids[row, : len(text)], real[row, : len(text)] = text, 1
        states = self._states(ids, real)
        # The mean over real tokens; its length does not matter, because it becomes 1.
        pooled = np.einsum("bth,bt->bh", states, real)
        return pooled / np.maximum(np.linalg.norm(pooled, axis=1, keepdims=True), 1e-12)

    def _states(self, ids: NDArray[np.int64], real: Floats) -> Floats:
        """Return the last layer's output for each token."""
        rows, length = ids.shape
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][ids]
        x = x + w["embeddings.position_embeddings.weight"][:length]
        x = x + w["embeddings.token_type_embeddings.weight"][0]
        # Tokens of all texts are rows of one matrix: one product instead of one a text.
        x = self._normed(x.reshape(rows * length, -1), "embeddings.LayerNorm")
        unseen = (_LEFT_OUT * (1 - real))[:, None, None, :]
        for number in range(self._layers):
            at = f"encoder.layer.{number}"
            mixed = self._linear(self._attention(x, unseen, at), f"{at}.attention.output.dense")
            x = self._normed(x + mixed, f"{at}.attention.output.LayerNorm")
            inner = _gelu(self._linear(x, f"{at}.intermediate.dense"))
            x = self._normed(
                x + self._linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm"
            )
        return x.reshape(rows, length, -1)

    def _attention(self, x: Floats, unseen: Floats, at: str) -> Floats:
        rows, length = unseen.shape[0], unseen.shape[3]

        def split(name: str) -> Floats:
            y = self._linear(x, f"{at}.attention.self.{name}")
            return y.reshape(rows, length, self._heads, -1).transpose(0, 2, 1, 3)

        query, key, value = split("query"), split("key"), split("value")
        scores = query @ key.transpose(0, 1, 3, 2)
        scores *= np.float32(query.shape[3] ** -0.5)
        scores += unseen
        scores -= scores.max(axis=-1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ value).transpose(0, 2, 1, 3).reshape(rows * length, -1)

    def _linear(self, x: Floats, name: str) -> Floats:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _normed(self, x: Floats, name: str) -> Floats:
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("nh,nh->n", x, x)[:, None] / np.float32(x.shape[1])
        x /= np.sqrt(variance + np.float32(self._epsilon))
        return x * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]


def read_tensors(path: Path) -> dict[str, Floats]:
    """Return the float32 tensors of a safetensors file, mapped from it.

    The layout: eight bytes with the length of a JSON header, the header, and the numbers.

    Raises:
        OSError: the file cannot be read.
        ValueError: the file is damaged.
    """
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        if not 2 <= size <= path.stat().st_size - 8:
            raise ValueError("the header is damaged")
        header: dict[str, Any] = json.loads(file.read(size))
    data = np.memmap(path, np.uint8, "r", offset=8 + size)
    found: dict[str, Floats] = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            start, end = entry["data_offsets"]
            found[name] = np.asarray(data[start:end]).view("<f4").reshape(entry["shape"])
    return found


def _gelu(x: Floats) -> Floats:
    y: Floats = erf(x * np.float32(0.5**0.5))
    y += 1
    y *= x
    y *= np.float32(0.5)
    return y
