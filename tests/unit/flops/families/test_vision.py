"""A tower of 2 layers, f 6, inner width 10, patches of 12 numbers, before the decoder of `walks`."""

from __future__ import annotations

from flagscale_perf.flops.families.vision import vision_language
from flagscale_perf.flops.tape import Tape
from flagscale_perf.flops.tower_units import Patch, PatchPair
from flagscale_perf.flops.towers import Vision
from flagscale_perf.flops_calculator import ModelShape, count
from tests.oracle.tower_configurations import QWEN3_VL, QWEN3_VL_MOE
from tests.unit.flops.families.walks import forward, tape_of

PLAIN = Vision(2, 6, 2, 10, False, 12, 8, class_token=True, used=(1,))
MERGING = Vision(
    2, 6, 2, 10, True, 12, 24, merge=2, window=1, whole_frames=(False, True), projector_norm=True
)


def walked(vision: Vision, **more: object) -> Tape:
    tape = tape_of(vision_tower=vision, **more)
    vision_language(tape)
    return tape


def phase(tape: Tape, name: str) -> dict[str, int]:
    made: dict[str, int] = {}
    for term, flops in tape.flops.items():
        if term.phase == name and term.component.startswith("vision_"):
            made[term.component] = made.get(term.component, 0) + flops
    return made


def test_the_products_of_a_clip_tower_and_a_projector():
    row, pair = Patch(extra=1), PatchPair(extra=1)
    assert {key: value for key, value in forward(walked(PLAIN)).items() if key[0].startswith("vision_")} == {
        ("vision_patch_embed", Patch()): 2 * 12 * 6,
        ("vision_qkv_proj", row): 2 * 2 * 6 * 18,
        ("vision_core_attention", pair): 2 * 2 * (6 + 6),
        ("vision_out_proj", row): 2 * 2 * 6 * 6,
        ("vision_mlp", row): 2 * (2 * 6 * 10 + 2 * 10 * 6),
        ("vision_projector", Patch()): 2 * 6 * 8 + 2 * 8 * 4,
    }


def test_windows_in_some_layers_and_a_merger():
    made = forward(walked(MERGING))
    assert made[("vision_core_attention", PatchPair(0, 1, 2))] == 2 * (6 + 6)
    assert made[("vision_core_attention", PatchPair(0, 0, 2))] == 2 * (6 + 6)
    assert made[("vision_merger", Patch(merge=2))] == 2 * 24 * 24 + 2 * 24 * 4
    assert made[("vision_mlp", Patch())] == 2 * (3 * 2 * 6 * 10)


def test_no_gradient_comes_back_to_a_layer_that_nobody_reads():
    tape = walked(PLAIN, recompute_granularity="full", recompute_method="uniform")
    forward_pass, backward, again = (phase(tape, name) for name in ("fwd", "bwd", "recompute"))
    for component in ("vision_qkv_proj", "vision_core_attention", "vision_out_proj", "vision_mlp"):
        assert backward[component] == forward_pass[component]  # twice one of two layers
        assert again[component] == forward_pass[component] // 2
    assert backward["vision_patch_embed"] == forward_pass["vision_patch_embed"]  # pixels need none


def test_a_frozen_tower_has_no_backward_and_is_not_recomputed():
    uniform = {"recompute_granularity": "full", "recompute_method": "uniform"}
    tape = walked(MERGING, frozen=["vision"], **uniform)
    expected = dict.fromkeys(phase(tape, "fwd"), 0)
    assert phase(tape, "recompute") == expected
    # its trained norm gives the merger's first layer an input with a gradient
    assert phase(tape, "bwd") == expected | {"vision_merger": 2 * (2 * 24 * 24 + 2 * 24 * 4)}
    # without one the first layer's input needs none
    assert phase(walked(PLAIN, freeze_ViT=True), "bwd")["vision_projector"] == 2 * 6 * 8 + 2 * 2 * 8 * 4


def test_a_frozen_language_model_passes_the_gradient_to_the_tower():
    tape = walked(PLAIN, freeze_LM=True)
    made = {term.component: flops for term, flops in tape.flops.items() if term.phase == "bwd"}
    forwards = {term.component: flops for term, flops in tape.flops.items() if term.phase == "fwd"}
    for component in ("qkv_proj", "out_proj", "mlp", "logits"):
        assert made[component] == forwards[component]
    assert made["core_attention"] == 2 * forwards["core_attention"]


def test_without_images_no_gradient_comes_from_them():
    tape = walked(PLAIN, freeze_LM=True, image_grids=[])
    decoder = {term: flops for term, flops in tape.flops.items() if not term.component.startswith("vision_")}
    assert not any(flops for term, flops in decoder.items() if term.phase == "bwd")


def test_layers_within_the_tower_have_mergers_of_their_own():
    tables = [count(ModelShape.from_hf(QWEN3_VL | deep), 2, 21) for deep in (_deep([]), _deep([0, 2]))]
    mergers = [table.components["vision_merger"] for table in tables]
    assert mergers[1] == {phase: 3 * flops for phase, flops in mergers[0].items()}
    # two norms over 4 x 24 with biases, and two pairs of matrices with theirs
    assert tables[1].parameters - tables[0].parameters == 2 * (2 * 96 + 96 * 96 + 96 + 96 * 32 + 32)


def test_a_frozen_router_beside_a_tower_costs_its_inputs_gradient_alone():
    frozen = {"frozen": ["language_model"], "image_grids": [[1, 4, 4]]}
    router = count(ModelShape.from_hf(QWEN3_VL_MOE | frozen), 2, 21).components["moe_router"]
    assert router["bwd"] == router["fwd"] == 2 * 2 * (2 * 21 * 32 * 4)


def _deep(layers):
    tower = QWEN3_VL["vision_config"] | {"deepstack_visual_indexes": layers}
    return {"vision_config": tower, "image_grids": [[1, 4, 4]]}
