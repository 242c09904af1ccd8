"""Arms, cases, their order."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError
from collections import Counter

import pytest

from flagscale_perf.bench.serving.cases import (
    Arm,
    Case,
    Turn,
    arms_of,
    case_of,
    check_devices,
    fitting,
    numbers,
    turns,
)
from flagscale_perf.bench.serving.model import Model
from flagscale_perf.spine.errors import PerfError

MODEL = Model(None, {}, 1024, False)


def test_one_device_and_every_size_that_is_asked_for_once() -> None:
    assert arms_of([2, 1, 2, 4], [2]) == [
        Arm("single"),
        Arm("TP 2", tensor=2),
        Arm("TP 4", tensor=4),
        Arm("PP 2", pipeline=2),
    ]


def test_every_arm_measures_every_case_in_each_repetition_in_another_order() -> None:
    arms, cases = arms_of([2], []), [Case(1, 128, 16), Case(2, 128, 16)]
    made = turns(arms, cases, 3)
    wanted = [Turn(arm, case, repetition) for repetition in range(3) for case in cases for arm in arms]
    assert Counter(made) == Counter(wanted) and made == turns(arms, cases, 3)
    once = [[turn[:2] for turn in made[start : start + 4]] for start in (0, 4, 8)]
    assert once[0] != once[1] and [turn.repetition for turn in made] == [0] * 4 + [1] * 4 + [2] * 4


def test_a_usual_case_that_is_too_long_is_left_out_by_name_and_a_chosen_one_refused() -> None:
    fit, too_long = Case(1, 1000, 24), Case(1, 1000, 25)
    why = "1000 tokens and 25 of output are 1025, and a small Qwen3 (built in) is made for 1024"
    assert fitting([fit, too_long], MODEL, False, "give less") == ([fit], [(too_long, why)])
    with pytest.raises(PerfError, match=f"^{re.escape(why)}; give less$"):
        fitting([fit, too_long], MODEL, True, "give less")
    with pytest.raises(PerfError, match="1025"):
        fitting([too_long], MODEL, False, "give less")


def test_more_ranks_than_devices_are_refused() -> None:
    check_devices(arms_of([2], [2]), 2, "GPU")
    with pytest.raises(
        PerfError, match="^--pp 3: needs 3 GPUs, and this machine has 2; give --pp 2 or less$"
    ):
        check_devices(arms_of([2], [3]), 2, "GPU")


def test_a_list_of_sizes() -> None:
    assert numbers("128, 512") == [128, 512]
    for text in ("", "0", "12a", "-1"):
        with pytest.raises(ArgumentTypeError, match="such as 128,512"):
            numbers(text)


def test_what_a_point_is_known_by() -> None:
    turn = Turn(Arm("TP 2", tensor=2), Case(4, 128, 16), 1)
    assert case_of(turn, "vllm") == {
        "arm": "TP 2",
        "tp": 2,
        "pp": 1,
        "engine": "vllm",
        "batch": 4,
        "seq": 128,
        "output": 16,
        "repetition": 1,
    }
