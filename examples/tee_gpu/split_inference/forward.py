"""The protected side of the model: norms, rotary positions, softmax and residuals; the rest are calls.

A forward pass is a generator of calls, so that one thread can run several, each while the others wait.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from itertools import count
from time import perf_counter_ns
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor

from flagscale_perf.spine.errors import PerfError
from split_inference.traffic import ModelSizes, Pass, Stage, pass_traffic

from .arithmetic import causal_mask, gated, masked_softmax, rms_norm, rotate_into
from .gpu import Ask, Gpu, Pending

Steps = Generator[Ask, list[Tensor], list[Tensor]]
_sequences = count()


@dataclass(frozen=True)
class SplitOptions:
    """How a layer is cut.

    Attributes:
        repeat_kv: keys and values go to `Matmul` once per query head, as in the requirement, and not once
            per group of them.
    """

    stage: Stage = Stage.CALLS6
    repeat_kv: bool = True


class KvCache:
    """Keys and values of the earlier tokens of a batch of sequences, on the protected side. With
    `fused_layer` the GPU side holds them, and this only their number.

    Attributes:
        tokens: so far.
        sequence: its number at the GPU side.
    """

    def __init__(self, sizes: ModelSizes, batch: int, capacity: int, dtype: torch.dtype) -> None:
        self.tokens = 0
        self.sequence = next(_sequences)
        shape = (sizes.layers, 2, batch, sizes.kv_heads, capacity, sizes.head_dim)
        self._kept = torch.empty(shape, dtype=dtype)  # takes no memory before it is written to

    def room(self, layer: int, new: int) -> tuple[Tensor, Tensor]:
        """Where the next `new` tokens' keys and values go."""
        return self._between(layer, self.tokens, self.tokens + new)

    def seen(self, layer: int, new: int) -> tuple[Tensor, Tensor]:
        """Keys and values of all tokens, the `new` ones included."""
        return self._between(layer, 0, self.tokens + new)

    def _between(self, layer: int, begin: int, end: int) -> tuple[Tensor, Tensor]:
        keys, values = self._kept[layer, :, :, :, begin:end]
        return keys, values


@dataclass(frozen=True)
class _Place:
    """Where in their sequences the tokens of a pass are."""

    cache: KvCache
    new: int
    cos: Tensor
    sin: Tensor
    mask: Tensor | None


class ProtectedModel:
    """A model whose matrix products another process computes.

    Attributes:
        facts: what the GPU side said about the model.
        in_calls_ns: how long this side was in calls, since it was made.
    """

    def __init__(self, gpu: Gpu, options: SplitOptions | None = None) -> None:
        self.options = options or SplitOptions()
        facts = json.loads(gpu.description)
        self.facts = SimpleNamespace(**facts)
        self.sizes = ModelSizes(**{name: facts[name] for name in ModelSizes.__dataclass_fields__})
        self.dtype: torch.dtype = getattr(torch, self.facts.dtype.removeprefix("torch."))
        self.in_calls_ns = 0
        self._gpu = gpu
        self._scale = self.sizes.head_dim**-0.5
        self._activation = _activation(self.facts.activation)
        (parameters,) = self.run([_init()])
        self._frequencies, scaling, *norms = parameters
        self._rope_scaling = float(scaling)
        self._input_norms, self._post_norms, self._last_norm, *self._head_norms = norms

    def methods(self) -> list[str]:
        """The names of those that a pass calls, in the order of their first call."""
        return list(dict.fromkeys(call.method for call in pass_traffic(self.sizes, Pass(self.options.stage))))

    def cache(self, batch: int, capacity: int) -> KvCache:
        """An empty one, of `capacity` tokens a sequence at most."""
        return KvCache(self.sizes, batch, capacity, self.dtype)

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def logits(self, ids: Tensor, cache: KvCache | None = None, micro_batches: int = 1) -> Tensor:
        """Logits of the last of `ids` (batch, tokens), which follow the tokens in `cache`.

        With two micro-batches or more the GPU side works on one while this side works on another.
        """
        if cache is not None:
            return self.run([self._forward(ids, cache)])[0][0]
        parts = ids.chunk(micro_batches)
        passes = [self._forward(part, self.cache(*part.shape)) for part in parts]
        return torch.cat([logits for (logits,) in self.run(passes)])

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def generate(self, ids: Tensor, count: int) -> Tensor:
        """`ids` and the `count` most likely tokens behind them, one at a time."""
        cache = self.cache(ids.shape[0], ids.shape[1] + count)
        new = ids
        for _ in range(count):
            new = self.logits(new, cache).argmax(-1)
            ids = torch.cat([ids, new], dim=1)
        return ids

    def run(self, passes: Sequence[Steps]) -> list[list[Tensor]]:
        """Runs them side by side, one call of each under way at a time, and returns what each returned."""
        done: dict[int, list[Tensor]] = {}
        under_way: deque[tuple[int, Ask, Pending]] = deque()
        for number, steps in enumerate(passes):
            ask = next(steps)
            under_way.append((number, ask, self._submit(ask)))
        while under_way:
            number, ask, pending = under_way.popleft()
            begun = perf_counter_ns()
            results = pending.result()
            self.in_calls_ns += perf_counter_ns() - begun
            try:
                ask = passes[number].send(results)
                under_way.append((number, ask, self._submit(ask)))
            except StopIteration as end:
                done[number] = end.value
        return [done[number] for number in range(len(passes))]

    def _submit(self, ask: Ask) -> Pending:
        begun = perf_counter_ns()
        pending = self._gpu.submit(ask)
        self.in_calls_ns += perf_counter_ns() - begun
        return pending

    def _forward(self, ids: Tensor, cache: KvCache) -> Steps:
        if cache.tokens + ids.shape[1] > self.facts.max_tokens:
            raise PerfError(
                f"{cache.tokens + ids.shape[1]} tokens are more than the model's {self.facts.max_tokens}"
            )
        (embedded,) = yield Ask("Embedding", [self._copied(ids)], {})
        hidden = embedded.clone()
        place = self._place(cache, ids.shape[1])
        for layer in range(self.sizes.layers):
            if self.options.stage is Stage.FUSED_LAYER:
                whole = {"layer": layer, "cached": cache.tokens, "sequence": cache.sequence}
                (hidden,) = yield Ask("fused_layer", [self._copied(hidden)], whole)
                continue
            (update,) = yield from self._attention(layer, hidden, place)
            hidden += update
            (update,) = yield from self._mlp(layer, hidden)
            hidden += update
        cache.tokens += ids.shape[1]
        (logits,) = yield Ask("LMHead", [self._normed(hidden[:, -1:], self._last_norm)], {})
        return [logits.clone()]

    def _attention(self, layer: int, hidden: Tensor, place: _Place) -> Steps:
        normed = self._normed(hidden, self._input_norms[layer])
        query, key, value = yield Ask("BatchLinear", [normed], {"layer": layer, "weights": "qkv"})
        query = self._rotated(layer, query, key, value, place)
        stage = self.options.stage
        if stage in (Stage.FUSED_ATTENTION, Stage.FUSED_BLOCKS):
            method = "Attention" if stage is Stage.FUSED_ATTENTION else "AttentionLinear"
            keys, values = (self._copied(kept) for kept in place.cache.seen(layer, place.new))
            result = yield Ask(method, [query, keys, values], {"layer": layer})
            if stage is Stage.FUSED_BLOCKS:
                return result
            context = self._copied(result[0])
        else:
            keys, values = place.cache.seen(layer, place.new)
            (scores,) = yield Ask("Matmul", [query, self._shared(keys)], {"transposed": True})
            probabilities = self._memory(scores.shape, self.dtype)
            masked_softmax(scores, self._scale, place.mask, probabilities)
            product = [probabilities, self._shared(values)]
            if stage is Stage.CALLS4:
                return (yield Ask("MatmulLinear", product, {"layer": layer}))
            (result,) = yield Ask("Matmul", product, {})
            context = self._copied(result.transpose(1, 2)).flatten(2)
        return (yield Ask("BatchLinear", [context], {"layer": layer, "weights": "o"}))

    def _mlp(self, layer: int, hidden: Tensor) -> Steps:
        normed = self._normed(hidden, self._post_norms[layer])
        if self.options.stage in (Stage.CALLS4, Stage.FUSED_BLOCKS):
            return (yield Ask("MLP", [normed], {"layer": layer}))
        gate, up = yield Ask("BatchLinear", [normed], {"layer": layer, "weights": "gate_up"})
        inner = gated(gate, up, self._activation, self._memory(gate.shape, self.dtype))
        return (yield Ask("BatchLinear", [inner], {"layer": layer, "weights": "down"}))

    def _rotated(self, layer: int, query: Tensor, key: Tensor, value: Tensor, place: _Place) -> Tensor:
        """Keeps key and value; returns the query, as (batch, heads, tokens, dimension), in the next call's
        memory.
        """
        query, key, value = (part.unflatten(-1, (-1, self.sizes.head_dim)) for part in (query, key, value))
        if self._head_norms:
            query, key = (
                rms_norm(part, weights[layer], self.facts.epsilon, torch.empty_like(part))
                for part, weights in zip((query, key), self._head_norms, strict=True)
            )
        keys, values = place.cache.room(layer, place.new)
        rotate_into(keys, key.transpose(1, 2), place.cos, place.sin)
        values.copy_(value.transpose(1, 2))
        query = query.transpose(1, 2)
        out = self._memory(query.shape, self.dtype)
        rotate_into(out, query, place.cos, place.sin)
        return out

    def _place(self, cache: KvCache, new: int) -> _Place:
        seen = cache.tokens + new
        angles = torch.arange(cache.tokens, seen)[:, None].float() * self._frequencies
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = (part * self._rope_scaling for part in (angles.cos(), angles.sin()))
        mask = causal_mask(new, seen, self.dtype)
        return _Place(cache, new, cos.to(self.dtype), sin.to(self.dtype), mask)

    def _normed(self, hidden: Tensor, weight: Tensor) -> Tensor:
        return rms_norm(hidden, weight, self.facts.epsilon, self._memory(hidden.shape, self.dtype))

    def _shared(self, kept: Tensor) -> Tensor:
        if not self.options.repeat_kv:
            return self._copied(kept)
        times = self.sizes.heads // self.sizes.kv_heads
        grouped = kept[:, :, None].expand(-1, -1, times, -1, -1)
        return self._copied(grouped).flatten(1, 2)

    def _memory(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """For an argument of the next call: where the call takes it from."""
        return self._gpu.buffer(shape, dtype)

    def _copied(self, tensor: Tensor) -> Tensor:
        """In the next call's memory."""
        return self._memory(tensor.shape, tensor.dtype).copy_(tensor)


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    known: dict[str, Callable[[Tensor], Tensor]] = {"silu": F.silu, "gelu": F.gelu}
    if name not in known:
        raise PerfError(f"activation {name!r} is not known here, only: {', '.join(known)}")
    return known[name]


def _init() -> Steps:
    results = yield Ask("Init", [], {})
    return [result.clone() for result in results]
