"""Continuous batching: feeds and decodes many conversations that come and go.

A conversation lives in a lane. `feed` gives it tokens, the sampler computes them, samples a turn
and calls back; its keys and values stay where they are until the next feed. Conversations that
start with the same prompt are computed once and copied, as long as one of them is open.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from learnloop.policy.decode import Feed, compute_prefix, forward
from learnloop.policy.draw import draw, uniforms
from learnloop.policy.kv import Prefix, SlotCache
from learnloop.policy.network import rope_table
from learnloop.policy.weights import Weights

CHUNK_TOKENS = 4096
WORTH_FEEDING = 1.0
"""Lanes that wait to be fed, relative to those in the middle of a turn, from which they are fed."""
KEPT_PREFIXES = 4

TurnStop = Literal["stop", "length", "context"]
"""Why a turn ended: the model said so, the turn's limit, or the conversation's."""
Done = Callable[[TurnStop], None]


@dataclass(eq=False)
class Lane:
    """One conversation in the sampler.

    `length` counts its own tokens in the cache, `reused` the tokens that its last feed found
    there or copied, `pending` holds those that still have to be computed.
    """

    prefix: Prefix
    seed: int
    temperature: float
    slot: int = -1
    length: int = 0
    reused: int = 0
    pending: list[int] = field(default_factory=list[int])
    prompt: tuple[int, ...] = ()
    sampled: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    room: int = 0
    done: Done | None = None

    @property
    def context(self) -> int:
        """Return how many tokens the conversation holds, those not yet computed included."""
        return len(self.prefix) + self.length + len(self.pending)


_Key = tuple[Prefix, tuple[int, ...]]


@dataclass(eq=False)
class _Twins:
    """Open lanes that started with the same prompt, and the hidden state at its end."""

    lanes: list[Lane]
    hidden: Tensor


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
        self._ended: list[tuple[Lane, TurnStop]] = []
        self._twins: dict[_Key, _Twins] = {}

    def open(self, shared: tuple[int, ...], *, seed: int, temperature: float) -> Lane:
        """Start a lane behind the shared prefix, which is computed when it is new."""
        if shared in self._prefixes:
            self._prefixes.move_to_end(shared)
            self.counts.reused += len(shared)
        else:
            found = compute_prefix(self.weights, shared, self.rope) if shared else Prefix(())
            self._prefixes[shared] = found
            self.counts.prefilled += len(shared)
            if len(self._prefixes) > KEPT_PREFIXES:
                self._prefixes.popitem(last=False)
        return Lane(self._prefixes[shared], seed, temperature)

    def feed(self, lane: Lane, tokens: Sequence[int], max_tokens: int, done: Done) -> None:
        """Queue tokens and ask for a turn; `done` is called at the end of the step that ends it.

        A conversation that has no room left gets its call at once, with reason `context`.
        """
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
        """Drop a lane at any moment and free its slot; its callback will not be called."""
        lane.done = None
        self._feeding = [x for x in self._feeding if x is not lane]
        self._decoding = [x for x in self._decoding if x is not lane]
        key = (lane.prefix, lane.prompt)
        twins = self._twins.get(key)
        if twins and lane in twins.lanes:
            twins.lanes.remove(lane)
            if not twins.lanes:
                del self._twins[key]
        if lane.slot >= 0:
            self.cache.give_back(lane.slot)
            lane.slot = -1
            if self.cache.unused:  # gigabytes that another sampler or training can use
                self.cache.drop()

    @property
    def busy(self) -> bool:
        """Return whether there is anything to compute."""
        return bool(self._feeding or self._decoding)

    @property
    def waiting(self) -> int:
        """Return how many lanes wait to be fed while none is in the middle of a turn."""
        return 0 if self._decoding else len(self._feeding)

    def forget_prefixes(self) -> None:
        """Drop the prefixes: training needs their memory, and changes the weights they came from.

        All lanes must be closed.
        """
        self._prefixes.clear()

    @torch.inference_mode()
    def step(self) -> None:
        """Feed what waits, then sample one token for every lane that is in the middle of a turn.

        Feeding waits until it is worth a batch, so that a few early tool results do not slow down
        all the lanes that are still talking.
        """
        if self._feeding and len(self._feeding) >= len(self._decoding) * WORTH_FEEDING:
            self._feed_all()
        if self._decoding:
            lanes = sorted(self._decoding, key=lambda x: x.slot)
            hidden = self._forward(lanes, [[x.sampled[-1]] for x in lanes])
            self._sample(lanes, hidden)
        # Callbacks come last: they may feed and close lanes, this one or others.
        ended, self._ended = self._ended, []
        for lane, reason in ended:
            callback, lane.done = lane.done, None
            if callback:
                callback(reason)

    def _feed_all(self) -> None:
        waiting, self._feeding = self._feeding, []
        firsts: list[Lane] = []
        copies: list[Lane] = []
        seen: set[_Key] = set()
        for lane in waiting:
            key = (lane.prefix, lane.prompt)
            new = lane.slot < 0
            if new and (key in seen or key in self._twins):
                copies.append(lane)
                continue
            firsts.append(lane)
            if new:
                seen.add(key)
        for batch in _batches(firsts):
            self._sample(batch, self._feed_batch(batch))
        if copies:
            self._sample(copies, torch.stack([self._copy_prompt(x) for x in copies]))

    def _feed_batch(self, batch: list[Lane]) -> Tensor:
        """Compute what waits in each lane; return the hidden states [B, H] of its last token."""
        new = [x.slot < 0 for x in batch]
        hidden = self._forward(batch, [x.pending for x in batch])
        for row, lane in enumerate(batch):
            self.counts.prefilled += len(lane.pending)
            lane.reused = len(lane.prefix) + lane.length - len(lane.pending)
            lane.pending = []
            if new[row]:
                self._twins[lane.prefix, lane.prompt] = _Twins([lane], hidden[row])
        return hidden

    def _copy_prompt(self, lane: Lane) -> Tensor:
        """Give a lane its prompt's keys and values from a twin; return the hidden state [H] there."""
        twins = self._twins[lane.prefix, lane.prompt]
        lane.slot = self.cache.take()
        lane.length, lane.pending = len(lane.prompt), []
        lane.reused = len(lane.prefix) + lane.length
        self.cache.copy(twins.lanes[0].slot, lane.slot, lane.length)
        self.counts.reused += lane.length
        twins.lanes.append(lane)
        return twins.hidden

    def _forward(self, lanes: list[Lane], tokens: list[list[int]]) -> Tensor:
        """Compute new tokens of each lane, one pass for each prefix; [B, H] hidden of last tokens."""
        for lane in lanes:
            if lane.slot < 0:
                lane.slot = self.cache.take()
        self.cache.reserve(max(x.length + len(t) for x, t in zip(lanes, tokens, strict=True)))
        shape = (len(lanes), self.weights.shape.hidden)
        hidden = torch.empty(shape, dtype=self.cache.dtype, device=self.rope[0].device)
        for prefix, rows in _by_prefix(lanes).items():
            feeds = [
                Feed(tokens=tokens[i], slot=lanes[i].slot, offset=lanes[i].length) for i in rows
            ]
            hidden[rows] = forward(self.weights, self.cache, prefix, feeds, self.rope)
        for lane, new in zip(lanes, tokens, strict=True):
            lane.length += len(new)
        return hidden

    def _sample(self, lanes: list[Lane], hidden: Tensor) -> None:
        logits = hidden @ self.weights.head.T
        u = uniforms([x.seed for x in lanes], [len(x.prefix) + x.length for x in lanes])
        heat = torch.tensor([x.temperature for x in lanes], device=logits.device)
        tokens, logprobs = draw(logits, heat, u)
        self.counts.sampled += len(lanes)
        known = set(map(id, lanes))
        self._decoding = [x for x in self._decoding if id(x) not in known]
        for lane, token, logprob in zip(lanes, tokens.tolist(), logprobs.tolist(), strict=True):
            lane.sampled.append(token)
            lane.logprobs.append(logprob)
            if token in self.end_ids:
                self._end_turn(lane, "stop")
            elif len(lane.sampled) >= lane.room:
                self._end_turn(lane, "length")
            else:
                self._decoding.append(lane)

    def _end_turn(self, lane: Lane, reason: TurnStop) -> None:
        lane.pending = [lane.sampled[-1]]
        if reason == "length" and lane.context >= self.max_context:
            reason = "context"
        self._ended.append((lane, reason))


def _by_prefix(lanes: list[Lane]) -> dict[Prefix, list[int]]:
    order: dict[Prefix, list[int]] = {}
    for row, lane in enumerate(lanes):
        order.setdefault(lane.prefix, []).append(row)
    return order


def _batches(lanes: list[Lane]) -> list[list[Lane]]:
    """Cut lanes that wait into passes of at most CHUNK_TOKENS tokens (a longer one stands alone)."""
    out: list[list[Lane]] = []
    size = 0
    for lane in sorted(lanes, key=lambda x: x.slot):
        size += len(lane.pending)
        if not out or size > CHUNK_TOKENS:
            out.append([])
            size = len(lane.pending)
        out[-1].append(lane)
    return out
