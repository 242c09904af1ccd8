"""A straggler is named in one line."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flagscale_perf.training.rank_records import StragglerRecord
from flagscale_perf.training.ranks.text import straggler_text
from tests.fakes import MS

SLOW = StragglerRecord(
    41,
    55,
    False,
    [37],
    "host-5",
    "NVIDIA H200",
    0,
    "forward",
    31 * MS,
    375 * MS,
    "peers",
    "clock capped by power",
)


@pytest.mark.parametrize(
    ("straggler", "text"),
    [
        (
            SLOW,
            (
                "steps 41 to 55 9 % slow: rank 37 (host-5, NVIDIA H200) takes 31 ms longer in forward than "
                "its peers, clock capped by power"
            ),
        ),
        (
            replace(SLOW, ranks=[4, 5], excess_ns=int(2.5 * MS), iteration_ns=int(102.5 * MS), cause=None),
            (
                "steps 41 to 55 2 % slow: ranks 4, 5 (host-5, NVIDIA H200) take 2.5 ms longer in forward "
                "than their peers"
            ),
        ),
        (
            replace(SLOW, against="past", phase="data_loading", cause=None),
            (
                "steps 41 to 55 9 % slow: rank 37 (host-5, NVIDIA H200) takes 31 ms longer in data_loading "
                "than before"
            ),
        ),
        (
            replace(SLOW, against="stages", ranks=[4, 5, 6, 7], stage=1, cause=None),
            (
                "steps 41 to 55: stage 1 (ranks 4 to 7) has 31 ms more to do in each step than the other "
                "stages, most of it in forward"
            ),
        ),
    ],
)
def test_a_straggler_in_one_line(straggler: StragglerRecord, text: str) -> None:
    assert straggler_text(straggler) == text
