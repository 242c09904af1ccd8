"""What is a rank's own work, and what it is too much of."""

from __future__ import annotations

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block
from flagscale_perf.training.ranks.work import Work, excess_ns, work_of

USUAL = Work(own_ns=100, mixed_ns=10, wait_ns=50, data_ns=5)


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


def test_waiting_is_never_work() -> None:
    assert excess_ns(USUAL._replace(wait_ns=900), USUAL) == 0
    assert excess_ns(USUAL._replace(mixed_ns=90, wait_ns=50), USUAL) == 0, "nobody waits for it"


def test_work_is_what_is_longer() -> None:
    assert excess_ns(USUAL._replace(own_ns=130, wait_ns=20), USUAL) == 30
    assert excess_ns(USUAL._replace(own_ns=90), USUAL) == -10


def test_a_mixed_phase_is_work_as_far_as_others_wait_for_it() -> None:
    assert excess_ns(USUAL._replace(mixed_ns=40, wait_ns=20), USUAL) == 30
    assert excess_ns(USUAL._replace(mixed_ns=40, wait_ns=45), USUAL) == 5
