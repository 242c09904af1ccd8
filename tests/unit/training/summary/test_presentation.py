"""What the text log says of a training below its heading."""

from __future__ import annotations

import pytest

from flagscale_perf.training.summary.presentation import PRESENTATION
from tests.fakes import make_facts, make_header


@pytest.mark.parametrize(
    ("facts", "note"),
    [
        ({}, "FLOPs causal_half, bf16; peak of a device 100 TFLOP/s (a round number)"),
        (
            {"peak_flop_per_s": None, "peak_source": "no peak is known", "dtype": None},
            "FLOPs causal_half, -; peak of a device - (no peak is known)",
        ),
    ],
)
def test_it_says_what_is_counted_and_against_which_peak(facts: dict[str, object], note: str) -> None:
    assert PRESENTATION.notes(make_header(facts=make_facts(**facts))) == [note]
