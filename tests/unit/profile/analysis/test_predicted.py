"""What was predicted, as text."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.profile.analysis.predicted import report_of
from flagscale_perf.profile.prediction import Card, Prediction, Setup, Work
from flagscale_perf.report.text import render
from tests.golden import golden

GB = 10**9
WORK = [
    Work("forward", "model.embed_tokens", "embedding", 1, 0, 4 * GB),
    Work("forward", "model.layers.0.mlp.up", "mm", 1, 2 * 10**12, GB),
    Work("forward", "model.layers.1.mlp.up", "mm", 1, 2 * 10**12, GB),
    Work("backward", "model.layers.1.mlp.up", "mm", 2, 5 * 10**12, 2 * GB),
    Work("backward", "model.layers.0.mlp.up", "mm", 2, 4 * 10**12, 2 * GB),
    Work("optimizer", "", "add_", 9, 0, 8 * GB),
]
FOUND = Prediction(
    setup=Setup("configs/toy", 2, 4096, "bfloat16", is_foreach=True),
    parameters=4 * GB,
    parameter_bytes=8 * GB,
    gradient_bytes=8 * GB,
    optimizer_bytes=16 * GB,
    at_peak={"parameters": 8 * GB, "optimizer": 24 * GB, "gradients": 8 * GB},
    work=WORK,
    flops_calculator=12 * 10**12,
)
CARD = Card("A card", 1e15, 4e12, 80 * GB, "its datasheet")


def test_a_training_step_on_a_card() -> None:
    assert render(report_of(FOUND, CARD)) == golden("profile_predicted.txt")


def test_a_step_that_does_not_fit() -> None:
    text = render(report_of(FOUND, replace(CARD, memory_bytes=24 * GB)))
    assert "does not fit: 40.0 GB are more than the 24 GB of A card" in text


def test_a_prefill_has_no_backward_and_without_a_card_there_is_no_floor() -> None:
    work = [one for one in WORK if one.part == "forward"]
    setup = replace(FOUND.setup, is_inference=True, is_foreach=False)
    text = render(report_of(replace(FOUND, setup=setup, work=work, flops_calculator=None), None))
    assert "a prefill of 2 x 4096 tokens" in text
    assert "backward" not in text and "floor" not in text and "flops_calculator" not in text


def test_layers_that_need_the_same_stand_in_one_row() -> None:
    layers = [
        Work("forward", f"model.layers.{n}.mlp.up", "mm", 1, 10**12 * (1 + n // 3), GB) for n in range(4)
    ]
    text = render(report_of(replace(FOUND, work=layers), None))
    assert [line.split("  ")[1] for line in text.splitlines() if "layer" in line and "FLOP" in line] == [
        "layers 0 to 2, each",
        "layer 3",
    ]


def test_a_roof_that_is_not_known_leaves_the_floor_out() -> None:
    text = render(report_of(FOUND, replace(CARD, bytes_per_s=None, memory_bytes=None)))
    assert "A card: how much memory it has is not known" in text
    assert text.count(" -\n") == 5  # four places and the step
