"""A Hugging Face model divided among the ranks of a job: each layer's matrices, the layers, or both."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    RowwiseParallel,
    parallelize_module,
)

from flagscale_perf.spine.errors import PerfError

# How transformers' plans name what torch.distributed.tensor.parallel does.
STYLES: Mapping[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "rowwise": RowwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
}
SUMMED = "replicated_with_grad_allreduce"  # each rank has it whole, and sees a part of what it is used for


def split_tensors(model: Any, mesh: Any) -> None:
    """Leaves each rank of the mesh its share of the matrices, as the model's own plan says. Raises PerfError
    for a model that has no plan or another kind of plan, or with sizes that the ranks do not divide.
    """
    plan = _plan_of(model)
    _check_sizes(model, mesh.size())
    styles: dict[str, ParallelStyle] = {}
    for path, module in model.named_modules():
        how = next((how for pattern, how in plan.items() if fnmatch.fnmatchcase(path, pattern)), None)
        if how == SUMMED:
            for parameter in module.parameters():
                parameter.register_post_accumulate_grad_hook(_summing(mesh.get_group()))
        elif how is not None and not isinstance(module, nn.Identity):  # of another stage
            styles[path] = STYLES[how]()
    parallelize_module(model, mesh, styles)


def _plan_of(model: Any) -> dict[str, str]:
    base = model.base_model_prefix
    plan = {f"{base}.{path}": how for path, how in (model.config.base_model_tp_plan or {}).items()}
    if not plan:
        raise PerfError(
            f"--tp: transformers has no plan by which a {model.config.model_type!r} is split over ranks;"
            " give the directory of another model, or leave --tp out"
        )
    plan |= type(model)._tp_plan or {}
    unknown = sorted(set(plan.values()) - set(STYLES) - {SUMMED})
    if unknown:
        raise PerfError(
            f"--tp: a {model.config.model_type!r} is split by {', '.join(unknown)}, which is not done here;"
            " profile it in vLLM, whose ranks are profiled without a change of its command line"
        )
    return plan


def _check_sizes(model: Any, ranks: int) -> None:
    config = model.config
    for name in ("num_attention_heads", "num_key_value_heads", "intermediate_size", "vocab_size"):
        value = getattr(config, name, None)
        if value is not None and value % ranks:
            raise PerfError(
                f"--tp {ranks}: the model's {name}, {value}, is not a multiple of it; give a divisor of it"
            )


def _summing(group: Any) -> Callable[[torch.Tensor], None]:
    def sum_gradient(parameter: torch.Tensor) -> None:
        """Over the ranks, which each have that of their own heads."""
        if parameter.grad is not None:
            distributed.all_reduce(parameter.grad, group=group)

    return sum_gradient


def groups_of(model: nn.Module) -> Iterator[dict[str, Any]]:
    """Parameters for an optimizer, which takes no tensors of ranks and whole ones in one operation."""
    split: list[Any] = []
    whole: list[Any] = []
    for parameter in model.parameters():
        (split if hasattr(parameter, "placements") else whole).append(parameter)
    return ({"params": group} for group in (split, whole) if group)


class Stage(nn.Module):  # type: ignore[misc]
    """The layers of one stage of a pipeline: ids in and hidden states out, up to the logits of the last one.

    Attributes:
        module: the model, which has only these layers.
    """

    def __init__(self, model: Any, place: int, places: int) -> None:
        """Takes from the model what belongs to other stages. Raises PerfError for a model that is built in
        another way, or one with fewer layers than stages.
        """
        super().__init__()
        base = getattr(model, model.base_model_prefix, None)
        missing = [name for name in ("embed_tokens", "layers", "norm") if not hasattr(base, name)]
        if base is None or missing or not hasattr(model, "lm_head"):
            raise PerfError(
                f"--pp {places}: a {model.config.model_type!r} is not made of embed_tokens, layers, norm and"
                " lm_head, so that it cannot be cut here; profile it in FlagScale or vLLM"
            )
        if len(base.layers) < places:
            raise PerfError(f"--pp {places}: the model has {len(base.layers)} layers; give at most that many")
        self.is_first, self.is_last = place == 0, place == places - 1
        cuts = [len(base.layers) * at // places for at in range(places + 1)]
        for number, layer in enumerate(base.layers):
            layer.layer_number = number + 1  # its path has the number in the whole model
        base.layers = base.layers[cuts[place] : cuts[place + 1]]
        model.config.num_hidden_layers = len(base.layers)
        types = getattr(model.config, "layer_types", None)
        if types:
            model.config.layer_types = types[cuts[place] : cuts[place + 1]]
        if not self.is_first:
            base.embed_tokens = None
        if not self.is_last:
            base.norm, model.lm_head = nn.Identity(), nn.Identity()
        self.module = model

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Logits of the last stage, hidden states of the others."""
        words = {"input_ids" if self.is_first else "inputs_embeds": given}
        found: torch.Tensor = self.module(**words, use_cache=False).logits
        return found


class Pipeline:
    """Steps of one rank's stage: micro-batches of one sequence each, one forward and one backward in turn."""

    def __init__(self, stage: Stage, mesh: Any, batch: int, device: Any) -> None:
        place, places = mesh.get_local_rank(), mesh.size()
        self._stage = stage
        self._schedule = Schedule1F1B(
            PipelineStage(stage, place, places, device, group=mesh.get_group()), batch, loss_fn=_loss
        )

    def step(self, ids: torch.Tensor) -> None:
        """Forward and backward of the batch."""
        given = (ids,) if self._stage.is_first else ()
        target = {"target": ids} if self._stage.is_last else {}
        self._schedule.step(*given, **target)


def _loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
