"""By how much runs of one configuration nearby differ."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.nearby import drift_of, spread_of, usual_ns
from flagscale_perf.training.facts import RunFacts
from tests.captured_runs import ARGUMENTS, evenly, make_late, write_run


def drift(path: Path) -> tuple[float, str]:
    session = open_session(path)
    return drift_of(session, RunFacts.of(session.header.facts))


def test_three_runs_of_one_configuration_show_it(tmp_path: Path) -> None:
    own = write_run(tmp_path / "a" / "perf", evenly())
    assert drift(own) == (0.01, "assumed for devices")
    for name, by_ms in (("b", 1), ("c", 2)):
        arguments = ARGUMENTS | {"seed": by_ms, "train_iters": 100 * by_ms}
        write_run(tmp_path / name / "perf", make_late(evenly(), 0, by_ms), arguments=arguments)
    write_run(tmp_path / "d" / "perf", make_late(evenly(), 0, 30), arguments=ARGUMENTS | {"num_layers": 16})
    write_run(tmp_path / "e" / "perf", evenly(batches=8), global_batch_size=64)
    share, source = drift(own)
    assert source == "3 runs of this configuration"
    assert 0.02 < share < 0.1, "1.5 % between them, times what three runs are short of knowing it"


def test_two_configurations_that_were_run_twice_show_it(tmp_path: Path) -> None:
    own = write_run(tmp_path / "a" / "perf", evenly())
    deep = ARGUMENTS | {"num_layers": 16}
    write_run(tmp_path / "b" / "perf", make_late(evenly(), 0, 1))
    write_run(tmp_path / "c" / "perf", evenly(batches=8), global_batch_size=64)
    write_run(tmp_path / "d" / "perf", make_late(evenly(), 0, 30), arguments=deep)
    assert drift(own) == (0.01, "assumed for devices"), "one pair does not tell"
    write_run(tmp_path / "e" / "perf", make_late(evenly(), 0, 30), arguments=deep)
    share, source = drift(own)
    assert source == "4 runs of 2 configurations nearby"
    both = [[drifted(tmp_path / "a"), drifted(tmp_path / "b")], [2.0, 2.0]]
    assert share == pytest.approx(spread_of(both))


def drifted(place: Path) -> float:
    return usual_ns(open_session(next(place.glob("perf/*.jsonl"))))


def test_of_a_rehearsal_more_is_assumed(tmp_path: Path) -> None:
    path = write_run(tmp_path / "a" / "perf", evenly(), rehearsal=True)
    assert drift(path) == (0.04, "assumed for runs on a CPU")
    assert usual_ns(open_session(path)) == pytest.approx(evenly().run()[1] / 8)
