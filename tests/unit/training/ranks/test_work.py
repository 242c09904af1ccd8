"""What of a rank's time is its own work."""

from __future__ import annotations

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.work import Work, work_of


def test_a_block_is_work_of_one_s_own_mixed_and_waiting() -> None:
    values = {
        "data_loading": 2,
        "forward": 30,
        "backward": None,
        "exposed_grad_comm": 7,
        "pipeline_send": 1,
        "other": 4,
        "between_steps": -1,
    }
    phases = tuple(values.get(phase) for phase in PHASES)
    block = Block(0, 5, 9, 5, 1, 43, phases, None, None, None, None, None)
    assert work_of(block) == Work(own_ns=32, mixed_ns=3, wait_ns=8, data_ns=2)
    assert work_of(block._replace(phases_ns=None)) is None
