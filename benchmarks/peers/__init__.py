"""Others' formulas for the FLOPs of a training step, each called as its own package has it, in a process of
its own.
"""

from __future__ import annotations

from typing import NamedTuple


class Peer(NamedTuple):
    """One formula to hold against the count.

    Attributes:
        module: of this package; its `load(name)` returns the function that calls the formula.
        distribution: the PyPI package it is in.
        convention: how it counts attention, of `flagscale_perf.flops_calculator.CONVENTIONS`.
        formula: where it is.
        bundled: make venv installs it; the others come from a directory of the user's choice.
    """

    module: str
    distribution: str
    convention: str
    formula: str
    bundled: bool = False


PEERS = {
    "FlagScale": Peer(
        "megatron_style",
        "flag-scale",
        "causal_half",
        "flagscale.train.train.num_floating_point_operations",
        bundled=True,
    ),
    "FS _fs": Peer(
        "megatron_style",
        "flag-scale",
        "causal_half",
        "flagscale.train.train.num_floating_point_operations_fs",
        bundled=True,
    ),
    "Megatron": Peer(
        "megatron_style",
        "flag-scale",
        "causal_half",
        "megatron.training.training.num_floating_point_operations",
        bundled=True,
    ),
    "HF 6N": Peer(
        "transformers_style",
        "transformers",
        "causal_half",
        "transformers.Trainer.floating_point_ops: no attention term",
        bundled=True,
    ),
    "Bridge": Peer(
        "bridge",
        "megatron-bridge",
        "causal_half",
        "megatron.bridge.training.utils.flop_utils.num_floating_point_operations",
    ),
    "verl": Peer(
        "transformers_style", "verl", "causal_half", "verl.utils.flops_counter.FlopsCounter.estimate_flops"
    ),
    "torchtitan": Peer("titan", "torchtitan", "full", "each model's Config.get_nparams_and_flops"),
    "litgpt": Peer("lit", "litgpt", "full", "litgpt.utils.estimate_flops"),
}


class UnsupportedModelError(Exception):
    """The peer has no model, or no answer, for this configuration."""
