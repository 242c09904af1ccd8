"""The blocks of a model's layers, if the arguments tell: by the blocks' names, by the letters of Megatron's
hybrid models, by ratios, or by the layers that an experimental attention takes.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from flagscale_perf.flops.arguments import MAX_LAYERS, Arguments
from flagscale_perf.flops.families import BLOCKS
from flagscale_perf.flops.patterns import flags_of_layers
from flagscale_perf.spine.errors import PerfError

Layers = tuple[tuple[str, ...], ...]

LETTERS = {
    "M": "mamba",
    "G": "gdn",
    "*": "attention",
    "+": "latent_attention",
    "D": "sparse_attention",
    "-": "mlp",
    "E": "mixture",
}
VARIANTS = {
    "gated_delta_net": "gdn",
    "gdn": "gdn",
    "gdn2": "gdn",
    "kda": "kda",
    "dsa": "sparse_attention",
    "dsv4_hybrid": "compressed_attention",
}
# Megatron's specs of hybrid stacks, and what the letter M stands for in each.
SPECS = {
    "mamba_stack_spec": "mamba",
    "hybrid_stack_spec": "mamba",
    "gdp_stack_spec": "gdp",
    "gated_delta_product_stack_spec": "gdp",
}
_LINEAR = ("gdn", "kda")
_RATIOS = ("hybrid_attention_ratio", "hybrid_mlp_ratio")


class Pattern(NamedTuple):
    """The layers that a hybrid model's letters describe.

    Attributes:
        layers: each layer has one block.
        mtp: the blocks of a depth of multi-token prediction; empty where there is none.
    """

    layers: Layers
    mtp: tuple[str, ...]


def pattern_of(args: Arguments) -> Pattern | None:
    """The layers of a hybrid model; None for others. Raises PerfError if arguments contradict each other."""
    name, text = _given_pattern(args)
    mixer = _mixer(args)
    ratios = [ratio for ratio in _RATIOS if _share(args, ratio)]
    if text is not None and ratios:
        raise PerfError(
            f"model: {name} and {ratios[0]} are both given; the pattern says it all, drop the ratio"
        )
    if text is not None:
        return _mixed(_from_letters(args, name, text), mixer)
    if ratios or mixer:
        # Megatron's pretrain_mamba.py without ratios and pattern trains layers of the spec's mixer only
        layers = _from_ratios(args.layers(), *(_share(args, ratio) for ratio in _RATIOS))
        return _mixed(Pattern(layers, _mtp_blocks(args, name, [])), mixer)
    if args.flag("is_hybrid_model"):
        raise PerfError(
            "model: is_hybrid_model is set, but no hybrid_layer_pattern, hybrid_override_pattern or "
            "hybrid_attention_ratio; give one"
        )
    return None


def _given_pattern(args: Arguments) -> tuple[str, str | None]:
    names = [name for name in ("hybrid_layer_pattern", "hybrid_override_pattern") if args.get(name)]
    if len(names) > 1:
        raise PerfError(f"model: {names[0]} and {names[1]} are both given; drop the second, the older name")
    return (names[0], str(args.get(names[0]))) if names else ("hybrid_layer_pattern", None)


def _mixer(args: Arguments) -> str:
    """The block that the spec puts in the place of M; "" without a spec."""
    given = args.get("spec")
    words = re.findall(r"[\w.]+", str(given))
    if given is None or words in ([], ["local"]):  # BERT's layers without Transformer Engine
        return ""
    mixer = SPECS.get(words[-1].rpartition(".")[2])
    if mixer is None:
        raise PerfError(
            f"model: spec is {given!r}, and what its layers multiply is unknown; counted are those called "
            f"{', '.join(SPECS)}"
        )
    return mixer


def _mixed(pattern: Pattern, mixer: str) -> Pattern:
    if mixer in ("", "mamba"):
        return pattern
    layers = tuple(tuple(mixer if block == "mamba" else block for block in each) for each in pattern.layers)
    return Pattern(layers, tuple(mixer if block == "mamba" else block for block in pattern.mtp))


def _share(args: Arguments, name: str) -> float:
    if args.get(name) in (None, 0, "0", 0.0, "0.0"):
        return 0.0
    share = args.factor(name)
    if share > 1:
        raise PerfError(f"model: {name} is {args.get(name)!r}; give a share from 0 to 1")
    return share


def _from_letters(args: Arguments, name: str, text: str) -> Pattern:
    if len(text) > MAX_LAYERS:
        raise PerfError(f"model: {name} has {len(text)} letters; give at most {MAX_LAYERS}")
    main, *depths = text.replace("|", "").split("/")
    layers = tuple((block,) for block in _named(name, main))
    if args.get("num_layers") is not None and args.layers() != len(layers):
        raise PerfError(
            f"model: {name} has {len(layers)} layers, num_layers is {args.layers()}; make them agree"
        )
    return Pattern(layers, _mtp_blocks(args, name, depths))


def _named(name: str, letters: str) -> list[str]:
    for letter in letters:
        if letter not in LETTERS:
            valid = ", ".join(f"{letter} ({block})" for letter, block in LETTERS.items())
            raise PerfError(f"model: {name} has the letter {letter!r}; write some of {valid}")
    if not letters:
        raise PerfError(f"model: {name} has no layers; write a letter for each")
    return [LETTERS[letter] for letter in letters]


def _mtp_blocks(args: Arguments, name: str, depths: list[str]) -> tuple[str, ...]:
    older, wanted = args.get("mtp_hybrid_override_pattern"), args.get("mtp_num_layers")
    if depths and older:
        raise PerfError(f"model: {name} has '/' and mtp_hybrid_override_pattern is given; drop one")
    if depths and wanted is not None and args.integer("mtp_num_layers", 0, least=0) != len(depths):
        raise PerfError(
            f"model: {name} has {len(depths)} depths behind '/', mtp_num_layers is {wanted}; make them agree"
        )
    if len(set(depths)) > 1:
        raise PerfError(
            f"model: {name} has depths of different layers ({', '.join(depths)}); make them equal"
        )
    letters = depths[0] if depths else older
    return tuple(_named(name, str(letters))) if letters else ()


def mtp_depths(args: Arguments) -> int:
    """Depths of multi-token prediction: as given, or as many as the pattern has after its slashes."""
    _, text = _given_pattern(args)
    if args.get("mtp_num_layers") in (None, 0, "0"):
        return 0 if text is None else text.count("/")
    return args.layers("mtp_num_layers")


def _from_ratios(layers: int, attention: float, mlp: float) -> Layers:
    """Attention evenly spaced between Mamba layers, then feed-forward layers in place of Mamba layers, as
    Megatron's `allocate_layers` places them.
    """
    if attention + mlp > 1:
        raise PerfError(
            f"model: hybrid_attention_ratio {attention} and hybrid_mlp_ratio {mlp} are more than 1 together"
        )
    blocks = ["mamba"] * layers
    softmax, dense = round(layers * attention), round(layers * mlp)
    _replace(blocks, (layers - softmax) / (softmax + 1), "attention")
    if dense:
        _replace(blocks, (layers - softmax - dense) / dense, "mlp")
    return tuple((block,) for block in blocks)


def _replace(blocks: list[str], spacing: float, block: str) -> None:
    left = spacing
    for layer, present in enumerate(blocks):
        if present != "mamba":
            continue
        if left < 0.5:
            blocks[layer] = block
            left += spacing
        else:
            left -= 1


def named_blocks(args: Arguments, layers: int) -> Layers:
    """The blocks of every layer by name; empty if they are not given. Raises PerfError."""
    named = args.get("layer_blocks")
    if named is None:
        return ()
    if not isinstance(named, list | tuple) or not all(isinstance(layer, list | tuple) for layer in named):
        raise PerfError(
            f"model: layer_blocks is {named!r}; write a list of the blocks' names for every layer"
        )
    if len(named) != layers:
        raise PerfError(
            f"model: layer_blocks describes {len(named)} layers, num_layers is {layers}; make them agree"
        )
    for name in (name for layer in named for name in layer):
        if name not in BLOCKS:
            raise PerfError(f"model: layer_blocks has {name!r}; write some of {', '.join(BLOCKS)}")
    return tuple(map(tuple, named))


def variant_blocks(args: Arguments, default: Layers) -> Layers:
    """The layers that contain an experimental attention; empty if there is none. Raises PerfError.

    Args:
        args: the model's.
        default: what the layers would be without it, attention first.
    """
    variant, frequency = args.get("experimental_attention_variant"), args.get("linear_attention_freq")
    if variant is None:
        if frequency is not None:
            raise PerfError(
                f"model: linear_attention_freq is {frequency!r}, but no experimental_attention_variant is "
                "given; give the variant"
            )
        return ()
    block = VARIANTS.get(str(variant))
    if block is None:
        known = ", ".join(VARIANTS)
        raise PerfError(f"model: experimental_attention_variant is {variant!r}; counted are {known}")
    taken: Sequence[bool] = (True,) * len(default)
    if block in _LINEAR:
        taken = _linear_layers(str(variant), frequency, len(default))
    return tuple(
        (block, *rest) if takes else (attention, *rest)
        for takes, (attention, *rest) in zip(taken, default, strict=True)
    )


def _linear_layers(variant: str, frequency: Any, layers: int) -> Sequence[bool]:
    if frequency is None:
        raise PerfError(
            f"model: experimental_attention_variant is {variant!r}, but linear_attention_freq is missing; "
            "write 4 for every fourth layer with softmax attention, or a list with 1 for a linear layer"
        )
    # A whole number f: every f-th layer is softmax attention. A list: 1 is linear.
    return flags_of_layers(
        "linear_attention_freq", frequency, layers, lambda layer, each: (layer + 1) % each != 0
    )
