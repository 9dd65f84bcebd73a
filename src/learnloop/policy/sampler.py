"""Continuous batching: feeds and decodes many conversations that come and go.

A conversation lives in a lane. `feed` gives it tokens, the sampler computes them, samples a turn
and calls back; its keys and values stay where they are until the next feed. Conversations that
start with the same prompt are computed once and copied.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from learnloop.policy.decode import Chunk, compute_prefix, forward_chunk
from learnloop.policy.draw import draw, uniforms
from learnloop.policy.kv import Prefix, SlotCache
from learnloop.policy.network import rope_table
from learnloop.policy.weights import Weights

CHUNK_TOKENS = 4096
KEPT_PREFIXES = 4


@dataclass(eq=False)
class Lane:
    """One conversation in the sampler; `length` counts its own tokens in the cache."""

    prefix: Prefix
    seed: int
    temperature: float
    slot: int = -1
    length: int = 0
    pending: list[int] = field(default_factory=list[int])
    prompt: tuple[int, ...] = ()
    sampled: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    room: int = 0
    done: Callable[[str], None] | None = None

    @property
    def context(self) -> int:
        """Return how many tokens the conversation holds, those not yet computed included."""
        return len(self.prefix) + self.length + len(self.pending)


_Key = tuple[Prefix, tuple[int, ...]]


@dataclass
class Counts:
    """Tokens by kind since the last reset."""

    prefilled: int = 0
    reused: int = 0
    sampled: int = 0


class Sampler:
    """Samples turns for many lanes on one version of the weights."""

    def __init__(self, weights: Weights, *, end_ids: frozenset[int], max_context: int) -> None:
        device = str(weights["embed"].device)
        self.weights, self.end_ids, self.max_context = weights, end_ids, max_context
        self.rope = rope_table(weights.shape, max_context + 1, device)
        self.cache = SlotCache(weights.shape, weights["embed"].dtype, device)
        self.counts = Counts()
        self._prefixes: OrderedDict[tuple[int, ...], Prefix] = OrderedDict()
        self._feeding: list[Lane] = []
        self._decoding: list[Lane] = []
        self._owners: dict[_Key, tuple[Lane, Tensor]] = {}

    def open(self, shared: tuple[int, ...], *, seed: int, temperature: float) -> Lane:
        """Start a lane behind the shared prefix; the prefix is computed at its first use."""
        if shared not in self._prefixes:
            self._prefixes[shared] = compute_prefix(self.weights, shared, self.rope) if shared else Prefix(())
            self.counts.prefilled += len(shared)
            if len(self._prefixes) > KEPT_PREFIXES:
                self._prefixes.popitem(last=False)
        else:
            self._prefixes.move_to_end(shared)
            self.counts.reused += len(shared)
        return Lane(self._prefixes[shared], seed, temperature)

    def feed(self, lane: Lane, tokens: Sequence[int], max_tokens: int, done: Callable[[str], None]) -> None:
        """Queue tokens and ask for a turn; `done(reason)` is called with stop, length or context."""
        lane.pending += tokens
        lane.sampled, lane.logprobs, lane.done = [], [], done
        lane.room = min(max_tokens, self.max_context - lane.context)
        if lane.room <= 0:
            done("context")
            return
        if lane.slot < 0:
            lane.prompt = tuple(lane.pending)
        self._feeding.append(lane)

    def close(self, lane: Lane) -> None:
        """Drop a lane at any moment and free its slot."""
        lane.done = None
        self._feeding = [x for x in self._feeding if x is not lane]
        self._decoding = [x for x in self._decoding if x is not lane]
        owner = self._owners.get((lane.prefix, lane.prompt))
        if owner and owner[0] is lane:
            del self._owners[lane.prefix, lane.prompt]
        if lane.slot >= 0:
            self.cache.give_back(lane.slot)
            lane.slot = -1

    @property
    def busy(self) -> bool:
        """Return whether there is anything to compute."""
        return bool(self._feeding or self._decoding)

    def release_memory(self) -> None:
        """Free cache and prefixes, as training needs the memory; all lanes must be closed."""
        self.cache.drop()
        self._prefixes.clear()

    @torch.inference_mode()
    def step(self) -> None:
        """Feed what waits, then sample one token for every lane that is in the middle of a turn."""
        if self._feeding:
            self._feed_all()
        if self._decoding:
            lanes = sorted(self._decoding, key=lambda x: x.slot)
            hidden = self._forward(lanes, [[x.sampled[-1]] for x in lanes])
            self._sample(lanes, hidden)

    def _feed_all(self) -> None:
        waiting, self._feeding = self._feeding, []
        twins: list[Lane] = []
        seen: set[_Key] = set()
        firsts: list[Lane] = []
        for lane in waiting:
            key = (lane.prefix, lane.prompt)
            if lane.slot < 0 and (key in seen or key in self._owners):
                twins.append(lane)
            else:
                seen.add(key)
                firsts.append(lane)
        for batch in _batches(firsts):
            new = [x.slot < 0 for x in batch]
            feeds = [x.pending for x in batch]
            hidden = self._forward(batch, feeds)
            self.counts.prefilled += sum(map(len, feeds))
            for row, lane in enumerate(batch):
                lane.pending = []
                if new[row]:
                    self._owners[lane.prefix, lane.prompt] = (lane, hidden[row])
            self._sample(batch, hidden)
        if twins:
            self._sample(twins, torch.stack([self._copy_prompt(x) for x in twins]))

    def _copy_prompt(self, twin: Lane) -> Tensor:
        """Give a lane its prompt's keys and values from the lane that computed them."""
        owner, hidden = self._owners[twin.prefix, twin.prompt]
        twin.slot = self.cache.take()
        twin.length, twin.pending = len(twin.prompt), []
        self.cache.copy(owner.slot, twin.slot, twin.length)
        self.counts.reused += twin.length
        return hidden

    def _forward(self, lanes: list[Lane], feeds: list[list[int]]) -> Tensor:
        for lane in lanes:
            if lane.slot < 0:
                lane.slot = self.cache.take()
        width = max(map(len, feeds))
        self.cache.reserve(max(x.length for x in lanes) + width)
        device = self.rope[0].device
        chunk = Chunk(
            tokens=torch.tensor([f + [0] * (width - len(f)) for f in feeds], device=device),
            lengths=torch.tensor([len(f) for f in feeds], device=device),
            slots=torch.tensor([x.slot for x in lanes], device=device),
            offsets=torch.tensor([x.length for x in lanes], device=device),
        )
        order = _by_prefix(lanes)
        if len(order) == 1:
            hidden = forward_chunk(self.weights, self.cache, lanes[0].prefix, chunk, self.rope)
        else:
            hidden = torch.empty(len(lanes), self.weights.shape.hidden, dtype=self.cache.dtype, device=device)
            for prefix, rows in order.items():
                at = torch.tensor(rows, device=device)
                part = Chunk(tokens=chunk.tokens[at], lengths=chunk.lengths[at], slots=chunk.slots[at], offsets=chunk.offsets[at])
                hidden[at] = forward_chunk(self.weights, self.cache, prefix, part, self.rope)
        for lane, feed in zip(lanes, feeds, strict=True):
            lane.length += len(feed)
        return hidden

    def _sample(self, lanes: list[Lane], hidden: Tensor) -> None:
        logits = hidden @ self.weights.head.T
        u = uniforms([x.seed for x in lanes], [len(x.prefix) + x.length for x in lanes])
        heat = torch.tensor([x.temperature for x in lanes], device=logits.device)
        tokens, logprobs = draw(logits, heat, u)
        self.counts.sampled += len(lanes)
        decoding: list[Lane] = []
        for lane, token, logprob in zip(lanes, tokens.tolist(), logprobs.tolist(), strict=True):
            lane.sampled.append(token)
            lane.logprobs.append(logprob)
            if token in self.end_ids or len(lane.sampled) >= lane.room:
                self._end_turn(lane, "stop" if token in self.end_ids else "length")
            else:
                decoding.append(lane)
        known = set(map(id, lanes))
        self._decoding = [x for x in self._decoding if id(x) not in known] + decoding

    def _end_turn(self, lane: Lane, reason: str) -> None:
        lane.pending = [lane.sampled[-1]]
        callback, lane.done = lane.done, None
        if reason == "length" and lane.context >= self.max_context:
            reason = "context"
        if callback:
            callback(reason)


def _by_prefix(lanes: list[Lane]) -> dict[Prefix, list[int]]:
    order: dict[Prefix, list[int]] = {}
    for row, lane in enumerate(lanes):
        order.setdefault(lane.prefix, []).append(row)
    return order


def _batches(lanes: list[Lane]) -> list[list[Lane]]:
    """Group lanes of similar feed length so that padding stays small."""
    out: list[list[Lane]] = []
    for lane in sorted(lanes, key=lambda x: (len(x.pending), x.slot)):
        n = len(lane.pending)
        if out and (len(out[-1]) + 1) * n <= CHUNK_TOKENS and n <= 1.3 * len(out[-1][0].pending) + 8:
            out[-1].append(lane)
        else:
            out.append([lane])
    return out
