"""Runs real transformers models and counts what they multiply: one JSON list of configurations in, one of
counts out.

Its own process: `python -m tests.oracle.transformers_counter`. A configuration is a model's config.json
(`config`), the step (`batch`, `seq_length`, where it applies `decoder_seq_length` and `image_grids`), and
what of it is frozen or recomputed, in the argument names that the formulas read.
"""

from __future__ import annotations

import functools
import json
import re
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop
from transformers.modeling_layers import GradientCheckpointingLayer

from tests.oracle import reference_cores
from tests.oracle.hybrid_components import FROZEN_PARTS, rows_of
from tests.oracle.products import UNCOUNTED, Counter
from tests.oracle.transformers_components import COMPONENTS, FROZEN

AUTO = ("AutoModelForPreTraining", "AutoModelForImageTextToText", "AutoModelForCausalLM")


def model_of(content: dict[str, Any]) -> torch.nn.Module:
    """The model of a config.json, with attention and experts in plain products."""
    config = transformers.AutoConfig.for_model(**content)
    for auto in AUTO:
        try:
            model = getattr(transformers, auto).from_config(config, attn_implementation="eager")
        except ValueError as error:
            if "Unrecognized configuration class" not in str(error):
                raise
        else:
            for module in model.modules():
                if hasattr(module, "config") and hasattr(module.config, "_experts_implementation"):
                    module.config._experts_implementation = "eager"
            return model.train()
    raise ValueError(f"transformers trains no {content['model_type']}")


def naming(config: dict[str, Any]) -> Callable[[str], str | None]:
    """From a module's path to its component, by the first row of this kind of model that fits."""

    rows = rows_of(config) or COMPONENTS[config["model_type"]]

    def component_of(path: str) -> str | None:
        if re.search(r"rotary_(pos_)?emb$", path):
            return UNCOUNTED
        for pattern, component in rows:
            if re.search(pattern, path):
                return component
        return None

    return component_of


def freeze(model: torch.nn.Module, args: dict[str, Any]) -> None:
    """Takes the gradient from what is frozen."""
    for name in args.get("frozen", ()):
        table = FROZEN.get(args["config"]["model_type"], FROZEN_PARTS)
        pattern = next(each[1] for each in table if re.fullmatch(each[0], name))
        number = name.rsplit(".", 1)[-1]
        found = [p for path, p in model.named_parameters() if re.match(pattern.format(number), path)]
        assert found, f"nothing of the model is called {name}"
        for parameter in found:
            parameter.requires_grad_(False)


def recompute(model: torch.nn.Module, args: dict[str, Any]) -> None:
    """Every layer whole, its last product included, as Megatron's checkpoint does.

    Megatron's lets no gradient through a layer whose input has none, and never trains it; transformers' own
    switch lets one through the input of frozen towers. Here gradients are what they are without.
    """
    if args.get("recompute_granularity") != "full":
        return
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = True
            module._gradient_checkpointing_func = functools.partial(checkpoint, use_reentrant=False)


def inputs_of(model: torch.nn.Module, args: dict[str, Any]) -> dict[str, torch.Tensor]:
    """A step's tokens and labels, and its images with a placeholder for each of their tokens."""
    size = (args["batch"], args["seq_length"])
    text = model.config.get_text_config()
    given = {"input_ids": torch.randint(5, text.vocab_size, size)}
    if args.get("image_grids"):
        given |= images_of(model.config, given["input_ids"], args["image_grids"])
    if args.get("decoder_seq_length"):
        given["labels"] = torch.randint(5, text.vocab_size, (size[0], args["decoder_seq_length"]))
    else:
        given["labels"] = given["input_ids"]
    if args["config"]["model_type"] == "bert":
        given["next_sentence_label"] = torch.zeros(size[0], dtype=torch.long)
    return given


def images_of(config: Any, tokens: torch.Tensor, grids: list[list[int]]) -> dict[str, torch.Tensor]:
    """Pixels as the model's processor would hand them over; puts the placeholders into `tokens`."""
    vision = config.vision_config
    if config.model_type == "llava":
        size = vision.image_size
        per_image = (size // vision.patch_size) ** 2
        has_class = vision.model_type == "clip_vision_model"
        per_image += has_class and config.vision_feature_select_strategy == "full"
        given = {"pixel_values": torch.randn(len(grids), vision.num_channels, size, size)}
        places = per_image * len(grids)
    else:
        patches = sum(frames * height * width for frames, height, width in grids)
        places = patches // vision.spatial_merge_size**2
        width = vision.in_channels * vision.temporal_patch_size * vision.patch_size**2
        given = {"pixel_values": torch.randn(patches, width), "image_grid_thw": torch.tensor(grids)}
    if config.model_type.startswith("qwen3_vl"):  # where images stand does not change what is multiplied
        given["position_ids"] = torch.arange(tokens.shape[1]).expand(3, *tokens.shape)
    assert places <= tokens.numel(), f"{places} placeholders do not fit into {tuple(tokens.shape)} tokens"
    tokens.view(-1)[:places] = config.image_token_id
    return given


def count(args: dict[str, Any]) -> dict[str, Any]:
    """One forward and one backward pass over the whole batch."""
    model = model_of(args["config"])
    freeze(model, args)
    recompute(model, args)
    counter = Counter(model, naming(args["config"]))
    given = inputs_of(model, args)
    undo = reference_cores.install(counter, args["config"]["model_type"], args.get("core", "recurrent"))
    with counter, set_checkpoint_early_stop(False):
        loss = model(**given).loss
        counter.in_backward = True
        loss.backward()
    undo()
    return {
        "components": counter.counts,
        "unattributed": counter.unattributed,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }


def main() -> None:
    warnings.filterwarnings("ignore")
    torch._dynamo.config.disable = True  # fused products would not be seen one by one
    transformers.logging.set_verbosity_error()
    results = []
    for args in json.load(sys.stdin):
        torch.manual_seed(1)
        results.append(count(args))
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
