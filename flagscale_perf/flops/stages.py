"""How pipeline parallelism divides the layers of a model, as Megatron's `get_num_layers_to_build` does."""

from __future__ import annotations

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.spine.errors import PerfError


def layers_per_chunk(args: Arguments, layers: int) -> list[int] | None:
    """Layers of each chunk, in the model's order; None for a layout that is not divided evenly by rule.

    A chunk is what one pipeline stage, or one of its virtual stages, holds in a row. Raises PerfError.
    """
    if any(args.get(name) for name in ("pipeline_model_parallel_layout", "enable_hetero", "use_dualpipev")):
        return None
    embedding = args.flag("account_for_embedding_in_pipeline_split")
    loss = args.flag("account_for_loss_in_pipeline_split")
    per_stage = _layers_per_stage(args, layers + embedding + loss)
    virtual = _virtual_stages(args, per_stage)
    if any(held % virtual for held in per_stage):
        raise PerfError(
            f"model: pipeline stages of {per_stage} layers are not divisible into {virtual} virtual stages "
            "each; change one"
        )
    chunks = [held // virtual for _ in range(virtual) for held in per_stage]
    chunks[0] -= embedding
    chunks[-1] -= loss
    return chunks


def _layers_per_stage(args: Arguments, layers: int) -> list[int]:
    stages = args.integer("pipeline_model_parallel_size", 1)
    first = args.optional("decoder_first_pipeline_num_layers")
    last = args.optional("decoder_last_pipeline_num_layers")
    ends = (first or 0) + (last or 0)
    others = stages - (first is not None) - (last is not None)
    if others < 0 or (layers - ends) % max(others, 1) or (others == 0 and layers != ends):
        raise PerfError(
            f"model: {layers} layers cannot be divided over {stages} pipeline stages (first {first}, "
            f"last {last}); change pipeline_model_parallel_size, decoder_first_pipeline_num_layers "
            "or decoder_last_pipeline_num_layers"
        )
    middle = [(layers - ends) // others] * others if others else []
    return [*([] if first is None else [first]), *middle, *([] if last is None else [last])]


def _virtual_stages(args: Arguments, per_stage: list[int]) -> int:
    for name in ("virtual_pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank"):
        if args.get(name) is not None:
            return args.integer(name)
    if args.get("num_layers_per_virtual_pipeline_stage") is not None:
        return max(1, per_stage[0] // args.integer("num_layers_per_virtual_pipeline_stage"))
    return 1
