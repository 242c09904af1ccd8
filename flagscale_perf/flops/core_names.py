"""The names of Megatron-Core's TransformerConfig, and of what builds a model from it, as arguments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flagscale_perf.flops.arguments import Arguments
from flagscale_perf.spine.errors import PerfError

_RENAMED = {
    "num_moe_experts": "num_experts",
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}
# Names that no option of Megatron's has: with one of them, the others mean what the configuration means.
CORE_NAMES = frozenset(
    {*_RENAMED, "gated_linear_unit", "activation_func", "share_embeddings_and_output_weights"}
)


def megatron_names(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """The same model in Megatron's arguments; `given` itself where it has none of a configuration's names.

    Raises PerfError for what contradicts itself, and for an activation that may or may not have a gate.
    """
    if given.get("linear_attention_type") is not None:  # an older name, which wins where both are given
        given = {**given, "experimental_attention_variant": given["linear_attention_type"]}
    if not CORE_NAMES & given.keys():
        return given
    core, args = Arguments(given), dict(given)
    for theirs, ours in _RENAMED.items():
        if core.get(theirs) is not None:
            _agree(core, theirs, ours)
            args[ours] = given[theirs]
    shared, untied = "share_embeddings_and_output_weights", "untie_embeddings_and_output_weights"
    if core.get(shared) is not None:
        if core.get(untied) is not None and core.flag(untied) == core.flag(shared):
            raise PerfError(f"model: {shared} and {untied} are both {core.get(shared)!r}; give one of them")
        args[untied] = not core.flag(shared)
    is_latent = core.flag("multi_latent_attention")
    if is_latent and not core.has("q_lora_rank"):
        raise PerfError("model: q_lora_rank is missing; write its rank, or null for queries of full rank")
    if is_latent and not core.has("normalization"):
        args["normalization"] = "RMSNorm"  # of MLATransformerConfig
    if not core.has("group_query_attention"):
        args["group_query_attention"] = not is_latent and core.get("num_query_groups") is not None
    return args | _feed_forward(core)


def _agree(core: Arguments, theirs: str, ours: str) -> None:
    if core.get(ours) not in (None, core.get(theirs)):
        raise PerfError(
            f"model: {theirs} is {core.get(theirs)!r} and {ours} is {core.get(ours)!r}; give one of them"
        )


def _feed_forward(core: Arguments) -> dict[str, Any]:
    """Whether the feed-forward blocks have a gate, and their width, which does not depend on it unless the
    activation is called swiglu (as Megatron's --yaml-cfg does).
    """
    activation = str(core.get("activation_func")).lower()
    is_swiglu = activation == "swiglu"
    if not core.has("gated_linear_unit") and not is_swiglu and "glu" in activation:
        raise PerfError(
            f"model: activation_func is {core.get('activation_func')!r}; "
            "write gated_linear_unit true or false"
        )
    said = {name: core.flag(name) for name in ("gated_linear_unit", "swiglu") if core.get(name) is not None}
    if len(set(said.values())) > 1 and not (is_swiglu or core.flag("quick_geglu")):
        raise PerfError(
            f"model: gated_linear_unit is {core.get('gated_linear_unit')!r}, and swiglu is "
            f"{core.get('swiglu')!r}; give one of them"
        )
    gated = is_swiglu or core.flag("gated_linear_unit") or core.flag("swiglu")
    made: dict[str, Any] = {"swiglu": gated and not core.flag("quick_geglu")}
    if core.get("ffn_hidden_size") is None and not is_swiglu:
        made["ffn_hidden_size"] = 4 * core.integer("hidden_size")
    return made
