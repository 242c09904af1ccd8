"""What the GPU side holds: the model, and the key-value caches of sequences whose layers it runs whole."""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from transformers import DynamicCache

from flagscale_perf.spine.errors import PerfError

from .gpu import Argument
from .model import ModelChoice, make_model, model_sizes

MAX_SEQUENCES = 16  # whose caches are kept; the one not used for longest goes first


class GpuSide:
    """The model, as its methods use it.

    Attributes:
        model: transformers' own.
    """

    def __init__(self, choice: ModelChoice, dtype: torch.dtype, device: torch.device) -> None:
        self._choice = choice
        self.model: Any = make_model(replace(choice, attention="sdpa"), dtype, device)
        self.dtype = dtype
        self.device = device
        names = signature(self.model.model.layers[0].forward).parameters
        self._cache_name = "cache" if "cache" in names else "past_key_values"  # until transformers 5.24
        self._caches: OrderedDict[tuple[int, int], DynamicCache] = OrderedDict()

    def describe(self) -> str:
        """What the protected side must know besides `protected_parameters`: plain JSON, whatever kind of
        number the configuration holds.
        """
        config = self.model.config
        return json.dumps(
            asdict(model_sizes(config))
            | {
                "family": config.model_type,
                "epsilon": plain(config.rms_norm_eps),
                "activation": config.hidden_act,
                "max_tokens": plain(config.max_position_embeddings),
                "dtype": str(self.dtype),
                "device": str(self.device),
                "source": self._choice.source,
                "seed": None if self._choice.directory else self._choice.seed,
            }
        )

    def protected_parameters(self) -> list[Tensor]:
        """Rotary frequencies and their scaling; the norms' weights: of the inputs, after attention, the last;
        and of queries and keys, where the model has these.
        """
        inner = self.model.model
        rows = ["input_layernorm", "post_attention_layernorm"]
        if hasattr(inner.layers[0].self_attn, "q_norm"):
            rows += ["self_attn.q_norm", "self_attn.k_norm"]
        norms = [torch.stack([layer.get_submodule(row).weight for layer in inner.layers]) for row in rows]
        scaling = torch.tensor(plain(inner.rotary_emb.attention_scaling), dtype=torch.float64)
        return [inner.rotary_emb.inv_freq.float(), scaling, *norms[:2], inner.norm.weight, *norms[2:]]

    def layer(self, arguments: Mapping[str, Argument]) -> nn.Module:
        """The one that `arguments` name."""
        number, layers = arguments.get("layer"), self.model.model.layers
        if not isinstance(number, int) or not 0 <= number < len(layers):
            raise PerfError(f"layer is {number!r}; the model has 0 to {len(layers) - 1}")
        return layers[number]

    def run_layer(self, work: Work) -> Tensor:
        """A whole layer. Its keys and values stay here, by client and sequence."""
        layer, cached = self.layer(work.arguments), work.arguments.get("cached")
        key = (work.client, int(work.arguments.get("sequence", 0)))
        if cached == 0 and work.arguments["layer"] == 0:
            self._caches[key] = DynamicCache(config=self.model.config)
            while len(self._caches) > MAX_SEQUENCES:
                self._caches.popitem(last=False)
        cache = self._caches.get(key)
        if cache is None or cache.get_seq_length(work.arguments["layer"]) != cached:
            raise PerfError(f"sequence {key[1]} has no {cached} tokens here: begin it with its prompt")
        self._caches.move_to_end(key)
        (hidden,) = work.tensors
        positions = torch.arange(cached, cached + hidden.shape[1], device=self.device)[None]
        return layer(
            hidden, attention_mask=self._mask(hidden.shape[1], cached), use_cache=True,
            **{self._cache_name: cache}, position_embeddings=self.model.model.rotary_emb(hidden, positions),
            position_ids=positions,
        )  # fmt: skip

    def _mask(self, new: int, cached: int) -> Tensor | None:
        if new == 1 or not cached:
            return None  # with fused attention that means all, and causal
        allowed = torch.ones(new, cached + new, dtype=torch.bool, device=self.device).tril(cached)
        low = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, low)[None, None]


class Work:
    """One call: what came with it, and where its results go. On a CPU a result is computed where the reply
    lies; on a GPU there, and copied.

    Attributes:
        tensors: on the side's device.
        client: number of the caller.
    """

    def __init__(
        self,
        side: GpuSide,
        tensors: Sequence[Tensor],
        arguments: Mapping[str, Argument],
        reply: Callable[[torch.dtype, tuple[int, ...]], Tensor],
        client: int = 0,
    ) -> None:
        self.tensors = [tensor.to(side.device) for tensor in tensors]
        self.arguments = arguments
        self.client = client
        self._side = side
        self._reply = reply
        self._results: list[tuple[Tensor, Tensor]] = []  # in the reply; as computed

    def new(self, shape: Sequence[int], dtype: torch.dtype | None = None) -> Tensor:
        """Memory for the next result, of the model's type unless told."""
        dtype = dtype or self._side.dtype
        reply = self._reply(dtype, tuple(shape))
        on_cpu = self._side.device.type == "cpu"
        made = reply if on_cpu else torch.empty(shape, dtype=dtype, device=self._side.device)
        self._results.append((reply, made))
        return made

    def give(self, tensor: Tensor) -> None:
        """The next result is a copy of this."""
        self.new(tensor.shape, tensor.dtype).copy_(tensor)

    def finish(self) -> list[Tensor]:
        """The results, where the reply has them."""
        for reply, made in self._results:
            if made is not reply:
                reply.copy_(made)
        return [reply for reply, _ in self._results]


def plain(value: Any) -> int | float | bool:
    """A number of Python's from one of Python, numpy or torch, an array of no dimension included."""
    return value.item() if hasattr(value, "item") else value
