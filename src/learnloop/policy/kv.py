"""Key-value storage: one slot a conversation, written in place, and prefixes shared by all slots."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from learnloop.policy.memory import trim
from learnloop.policy.shape import Shape

BLOCK = 64
"""Capacity grows by whole blocks of this many tokens."""
MOST_NEW_SLOTS = 32
"""Slots are doubled until so many are added at a time."""


@dataclass(eq=False)
class Prefix:
    """Keys and values of tokens that many conversations start with; computed once.

    `keys[l]` is [K, D, P], `values[l]` [K, P, D].
    """

    tokens: tuple[int, ...]
    keys: list[Tensor] = field(default_factory=list[Tensor])
    values: list[Tensor] = field(default_factory=list[Tensor])

    def __len__(self) -> int:
        return len(self.tokens)


class SlotCache:
    """Own keys and values of each conversation, beyond the shared prefix.

    `keys[l]` is [slots, K, D, capacity] (transposed: bf16 products are faster so), `values[l]`
    [slots, K, capacity, D]. Both grow when a conversation or the number of slots needs it.
    """

    def __init__(self, shape: Shape, dtype: torch.dtype, device: str) -> None:
        self.shape, self.dtype, self.device = shape, dtype, device
        self.slots, self.capacity = 0, 0
        self.keys: list[Tensor] = []
        self.values: list[Tensor] = []
        self._free: list[int] = []

    def take(self) -> int:
        """Return a free slot, the lowest first so that active slots stay close together."""
        if not self._free:
            more = min(max(self.slots, 8), MOST_NEW_SLOTS)
            self._grow(self.slots + more, max(self.capacity, 4 * BLOCK))
        self._free.sort(reverse=True)
        return self._free.pop()

    def give_back(self, slot: int) -> None:
        """Free a slot."""
        self._free.append(slot)

    @property
    def unused(self) -> bool:
        """Return whether no conversation holds a slot."""
        return len(self._free) == self.slots

    def reserve(self, tokens: int) -> None:
        """Make sure that each slot can hold `tokens` tokens."""
        if tokens > self.capacity:
            grown = max(tokens, self.capacity + self.capacity // 2)
            self._grow(self.slots, -(-grown // BLOCK) * BLOCK)

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Copy the first `tokens` tokens of a slot to another."""
        for k, v in zip(self.keys, self.values, strict=True):
            k[target, :, :, :tokens] = k[source, :, :, :tokens]
            v[target, :, :tokens] = v[source, :, :tokens]

    def drop(self) -> None:
        """Release all memory; every conversation must have been closed."""
        self.slots, self.capacity, self.keys, self.values, self._free = 0, 0, [], [], []

    def _grow(self, slots: int, capacity: int) -> None:
        s = self.shape
        for layer in range(s.layers):
            k = torch.zeros(
                slots, s.kv_heads, s.head_dim, capacity, dtype=self.dtype, device=self.device
            )
            v = torch.zeros(
                slots, s.kv_heads, capacity, s.head_dim, dtype=self.dtype, device=self.device
            )
            if layer < len(self.keys):
                k[: self.slots, :, :, : self.capacity] = self.keys[layer]
                v[: self.slots, :, : self.capacity] = self.values[layer]
                self.keys[layer], self.values[layer] = k, v
            else:
                self.keys.append(k)
                self.values.append(v)
        self._free += range(self.slots, slots)
        self.slots, self.capacity = slots, capacity
        trim()  # what was outgrown leaves holes that nothing of the new size fits into
