"""A card by its name, and the JSON of what is predicted."""

from __future__ import annotations

from flagscale_perf.profile.prediction import Card, Prediction, Setup, Work, card_of

CARD = Card("a card", 10**9)
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


def test_sums() -> None:
    assert FOUND.peak_bytes == 1500
    assert FOUND.flops == 6_000_000


def test_json_has_each_operator() -> None:
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
    assert made["work"][0] == WORK[0]._asdict()
    assert (made["card"], "card" in FOUND.as_dict()) == ({"name": "a card", "memory_bytes": 10**9}, False)


def test_a_card_by_a_part_of_its_name() -> None:
    assert card_of("H200") == ("NVIDIA H200", 141 * 10**9)
    assert card_of("BI-V150").memory_bytes is None
