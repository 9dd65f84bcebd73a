"""A model's weights: fused matrices for speed, with views under their Hugging Face names."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from learnloop.errors import ConfigError
from learnloop.policy.shape import Shape, read_shape

FUSED = {"qkv": ("q_proj", "k_proj", "v_proj"), "gate_up": ("gate_proj", "up_proj")}
COPIED = {".json", ".jinja", ".txt", ".model"}
"""Endings of the files that a written model folder takes over from its source."""
_AGAIN = "Pull or convert the model again."


@dataclass(eq=False)
class Weights:
    """All tensors of one version of a model.

    `tensors` maps our names to tensors: `embed` [V, H], `head` [V, H] unless tied, `norm` [H], and
    for layer i `i.qkv` [(Q+2K)D, H], `i.o` [H, QD], `i.gate_up` [2I, H], `i.down` [H, I],
    `i.in_norm`, `i.post_norm` [H], and where the family has them `i.qkv_bias`, `i.q_norm`, `i.k_norm`.
    """

    shape: Shape
    tensors: dict[str, Tensor]

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def get(self, name: str) -> Tensor | None:
        """Return a tensor that only some families have."""
        return self.tensors.get(name)

    @property
    def head(self) -> Tensor:
        """Return the output matrix, shape [V, H]."""
        return self.tensors.get("head", self.tensors["embed"])

    def cast(self, dtype: torch.dtype, device: str) -> Weights:
        """Return a copy in another precision or on another device."""
        copies = {n: t.to(device=device, dtype=dtype, copy=True) for n, t in self.tensors.items()}
        return Weights(self.shape, copies)

    def views(self) -> Iterator[tuple[str, Tensor]]:
        """Yield every tensor under its Hugging Face name; fused matrices as row slices."""
        s = self.shape
        rows = {"qkv": (s.q_rows, s.kv_rows, s.kv_rows), "gate_up": (s.inner, s.inner)}
        for name, tensor in self.tensors.items():
            if "." not in name:
                yield _TOP[name], tensor
                continue
            layer, part = name.split(".")
            matrix = part.removesuffix("_bias")
            end = "weight" if matrix == part else "bias"
            home = f"model.layers.{layer}.{_HOME[matrix]}"
            if matrix in FUSED:
                pieces = tensor.split(rows[matrix])
                for member, piece in zip(FUSED[matrix], pieces, strict=True):
                    yield f"{home}.{member}.{end}", piece
            else:
                yield f"{home}.{end}", tensor


_TOP = {"embed": "model.embed_tokens.weight", "norm": "model.norm.weight", "head": "lm_head.weight"}
_HOME = {
    "qkv": "self_attn",
    "gate_up": "mlp",
    "o": "self_attn.o_proj",
    "down": "mlp.down_proj",
    "in_norm": "input_layernorm",
    "post_norm": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}


def load_weights(folder: Path, dtype: torch.dtype, device: str = "cpu") -> Weights:
    """Load a Hugging Face folder.

    Raises:
        ConfigError: the folder is no model of a supported family, or a tensor is missing, has
            another shape, or belongs to a part that this decoder does not have.
    """
    shape = read_shape(folder)
    found = _read_tensors(folder)
    weights = _empty(shape, found, dtype, device)
    with torch.no_grad():
        for name, view in weights.views():
            tensor = found.pop(name, None)
            if tensor is None or tensor.shape != view.shape:
                what = f"tensor `{name}` is missing or has another shape"
                raise ConfigError(what, where=str(folder), fix=_AGAIN)
            view.copy_(tensor)
    extra = sorted(n for n in found if n != "lm_head.weight" and "rotary_emb" not in n)
    if extra:
        raise ConfigError(
            f"tensor `{extra[0]}` belongs to a part that is not supported",
            where=str(folder),
            fix="Use a plain model of its family.",
        )
    return weights


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError("there is no *.safetensors file", where=str(folder), fix=_AGAIN)
    found: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as f:
            for name in f.keys():  # noqa: SIM118 (safe_open is not a mapping)
                found[name] = f.get_tensor(name)
    return found


def _empty(s: Shape, found: dict[str, Tensor], dtype: torch.dtype, device: str) -> Weights:
    sizes: dict[str, tuple[int, ...]] = {"embed": (s.vocab, s.hidden), "norm": (s.hidden,)}
    if not s.tied:
        sizes["head"] = (s.vocab, s.hidden)
    qkv_rows = s.q_rows + 2 * s.kv_rows
    for i in range(s.layers):
        at = f"model.layers.{i}.self_attn"
        sizes |= {f"{i}.qkv": (qkv_rows, s.hidden), f"{i}.o": (s.hidden, s.q_rows)}
        sizes |= {f"{i}.gate_up": (2 * s.inner, s.hidden), f"{i}.down": (s.hidden, s.inner)}
        sizes |= {f"{i}.in_norm": (s.hidden,), f"{i}.post_norm": (s.hidden,)}
        if f"{at}.q_proj.bias" in found:
            sizes[f"{i}.qkv_bias"] = (qkv_rows,)
        if f"{at}.q_norm.weight" in found:
            sizes |= {f"{i}.q_norm": (s.head_dim,), f"{i}.k_norm": (s.head_dim,)}
    return Weights(s, {n: torch.empty(z, dtype=dtype, device=device) for n, z in sizes.items()})


def save_weights(weights: Weights, source: Path, target: Path) -> None:
    """Write a folder that plain transformers loads, with config and tokenizer of `source`.

    Weights keep their precision. The folder appears whole or not at all.
    """
    staging = target.with_name(target.name + ".partial")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(parents=True)
    tensors = {n: t.detach().to("cpu").clone() for n, t in weights.views()}
    try:
        save_file(tensors, staging / "model.safetensors", metadata={"format": "pt"})
        for file in source.iterdir():
            weights_list = "safetensors" in file.name or file.name == "manifest.json"
            if file.suffix in COPIED and not weights_list:
                shutil.copy2(file, staging / file.name)
        shutil.rmtree(target, ignore_errors=True)
        staging.replace(target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
