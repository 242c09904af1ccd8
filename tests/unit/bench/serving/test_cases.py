"""Arms and cases that this machine or the model cannot run are refused or left out by name."""

from __future__ import annotations

import re
from argparse import ArgumentTypeError

import pytest

from flagscale_perf.bench.serving.cases import Arm, Case, arms_of, check_devices, fitting, numbers
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
