"""How often an operation is run, and what is taken for its time."""

from __future__ import annotations

import pytest
import torch

from flagscale_perf.bench.bandwidth import rank
from flagscale_perf.bench.bandwidth.rank import Timer, alone, seconds_per_run


class Machine:
    """A clock that a run advances; another rank is as slow as `slower` says."""

    def __init__(self, run_s: float, slower: float = 1.0) -> None:
        self.now, self.run_s, self.slower = 0.0, run_s, slower
        self.runs = self.barriers = 0

    def run(self) -> None:
        self.now += self.run_s
        self.runs += 1

    def barrier(self) -> None:
        self.barriers += 1
        self.now += 10.0  # what waits for others is before the clock starts

    def timer(self) -> Timer:
        return Timer(lambda: None, self.barrier, lambda values: [value * self.slower for value in values])


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine(1 / 1024, slower=2.0)
    monkeypatch.setattr(rank.time, "perf_counter", lambda: made.now)
    return made


def test_a_loop_lasts_long_enough_and_the_slowest_rank_counts(machine: Machine) -> None:
    samples = seconds_per_run(machine.run, machine.timer(), 5, 0.1)
    assert samples == [2 / 1024] * 5
    # 5 to warm up; 1, then 10, which take the slower rank 20 ms; 10 x 1.1 x 0.1 / 0.0195; 5 loops of these
    assert machine.runs == 5 + 1 + 10 + 56 + 5 * 56
    assert machine.barriers == 3 + 5


def test_a_long_operation_is_run_once_a_loop(machine: Machine) -> None:
    machine.run_s = 3.0
    assert seconds_per_run(machine.run, machine.timer(), 2, 0.1) == pytest.approx([6.0, 6.0])
    assert machine.runs == 5 + 1 + 2


def test_one_that_takes_no_time_ends(machine: Machine) -> None:
    machine.run_s = 0.0
    assert seconds_per_run(machine.run, machine.timer(), 1, 0.1) == [0.0]
    assert machine.runs == 5 + sum(10**power for power in range(6)) + rank.MAX_RUNS


def test_a_rank_alone_waits_for_nobody() -> None:
    timer = alone(torch, "cpu")
    timer.barrier()
    timer.wait()
    assert timer.longest([1.0, 2.0]) == [1.0, 2.0]
