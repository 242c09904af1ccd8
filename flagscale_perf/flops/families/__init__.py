"""The blocks that layers are made of, by name; a block of a new kind is one file here and its row below.

A block walks over its linear layers on the tape; its comments name Megatron-Core's modules, h is the hidden
size. It takes the layer's number from 0 and whether a gradient flows through the input; it returns whether
one flows through the output.
"""

from __future__ import annotations

from collections.abc import Callable

from flagscale_perf.flops.families.attention import grouped_attention, latent_attention
from flagscale_perf.flops.families.compressed import compressed_attention
from flagscale_perf.flops.families.delta import gated_delta_net, gated_delta_product, kimi_delta
from flagscale_perf.flops.families.engram import engram
from flagscale_perf.flops.families.feed_forward import dense_mlp, mixture
from flagscale_perf.flops.families.indexer import sparse_attention
from flagscale_perf.flops.families.mamba import mamba
from flagscale_perf.flops.families.rwkv import channel_mix, time_mix
from flagscale_perf.flops.tape import Tape

Block = Callable[[Tape, int, bool], bool]

BLOCKS: dict[str, Block] = {
    "attention": grouped_attention,
    "latent_attention": latent_attention,
    "sparse_attention": sparse_attention,
    "compressed_attention": compressed_attention,
    "mamba": mamba,
    "gdn": gated_delta_net,
    "gdp": gated_delta_product,
    "kda": kimi_delta,
    "rwkv_time_mix": time_mix,
    "rwkv_channel_mix": channel_mix,
    "engram": engram,
    "mlp": dense_mlp,
    "mixture": mixture,
}
