"""Floors of a step on a card, and the JSON of what is predicted."""

from __future__ import annotations

from flagscale_perf.profile.prediction import Card, Prediction, Setup, Work, card_of

CARD = Card("a card", 1e12, 1e11, 10**9, "by hand")
WORK = (
    Work("forward", "m.layers.0", "mm", 1, 2_000_000, 1_000),
    Work("backward", "m.layers.0", "mm", 2, 4_000_000, 2_000),
    Work("optimizer", "", "add_", 1, 0, 300_000),
)
FOUND = Prediction(
    Setup("m", 1, 8, "bfloat16"),
    500,
    1000,
    1000,
    2000,
    {"parameters": 1000, "activations": 500},
    WORK,
    6_000_000,
)


def test_a_floor_is_the_longer_of_computing_and_moving() -> None:
    assert CARD.floor_ns(2_000_000, 1_000) == 2000.0  # 2e6 / 1e12 s
    assert CARD.floor_ns(0, 300_000) == 3000.0  # 3e5 / 1e11 s
    assert Card("a card", None, 1e11, None, "").floor_ns(1, 1) is None
    assert Card("a card", 1e12, None, None, "").floor_ns(1, 1) is None


def test_sums() -> None:
    assert FOUND.peak_bytes == 1500
    assert FOUND.flops == 6_000_000


def test_json_has_each_operator_and_its_floor() -> None:
    made = FOUND.as_dict(CARD)
    assert made["memory_bytes"] == {
        "peak": 1500,
        "at_peak": {"parameters": 1000, "activations": 500},
        "parameters": 1000,
        "gradients": 1000,
        "optimizer": 2000,
    }
    assert made["flops"] == {
        "step": 6_000_000,
        "forward": 2_000_000,
        "backward": 4_000_000,
        "optimizer": 0,
        "flops_calculator": 6_000_000,
    }
    assert [row["floor_ns"] for row in made["work"]] == [2000.0, 4000.0, 3000.0]
    assert "floor_ns" not in FOUND.as_dict()["work"][0]


def test_a_card_of_the_table() -> None:
    card = card_of("H200", "bf16")
    assert (card.name, card.flop_per_s, card.bytes_per_s, card.memory_bytes) == (
        "NVIDIA H200",
        989.4e12,
        4.8e12,
        141 * 10**9,
    )
    assert card.source.endswith("memory: NVIDIA's Hopper datasheet")


def test_what_the_table_does_not_know_has_no_floor() -> None:
    assert card_of("H200", "fp32").floor_ns(1, 1) is None
    card = card_of("BI-V150", "bf16")
    assert card.bytes_per_s is None and card.source.endswith("its memory is not known")
