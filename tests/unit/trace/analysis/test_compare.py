"""Two runs of a queue side by side."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.report import text
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.trace.analysis import compare as of_instrument
from tests.compared import of_paths
from tests.trace_runs import MIB, MS, Job

compare = of_paths(of_instrument.compare)


def _run(directory: Path, more_ms: float = 0.0, rounds: int = 40, calls: bool = True) -> Path:
    """Rounds of a rollout of 60 ms and a train of 40 ms, give or take 2 %."""
    directory.mkdir()
    source, job = random.Random(2), Job()
    rollout, train = job.process("Rollout", 1), job.process("Train", 2)

    def about(took_ms: float) -> int:
        return round(took_ms * source.lognormvariate(0, 0.02) * MS)

    for number in range(rounds):
        at_ns = number * 200 * MS
        if not calls:
            job.put(rollout, at_ns, range(64), total_ns=about(4 + more_ms))
            continue
        for process, name, get, put in (
            (rollout, "rollout", 0, about(10 + more_ms)),
            (train, "train", about(5), 0),
        ):
            compute = about(50 if name == "rollout" else 35)
            job.call(
                process, name, at_ns, get_ns=get, compute_ns=compute, put_ns=put, total_ns=get + compute + put
            )
    job.call(rollout, "once", rounds * 200 * MS)
    return job.write(directory)


def test_a_slower_put_is_found_and_named(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 30.0)
    found = compare([base], [new], CompareOptions(warmup=0, noise=0.01))
    assert (found.whole.verdict, found.culprits, found.iterations) == ("slower", ["rollout, put"], 40)
    assert found.whole.change == pytest.approx(30, rel=0.1)
    assert [figure.name for figure in found.figures] == ["mean", "p95", "moved_mib"]
    assert found.figures[2].base == 4 * MIB / MIB
    words = text.render(report_of(found))
    assert "a round is the n-th call of every function" in words


def test_the_same_again_is_no_difference(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", 0.1)
    assert compare([base], [new], CompareOptions(warmup=0)).whole.verdict == "undecided"
    assert compare([base], [base], CompareOptions(fail_if_slower=0.03)).same_run == base.stem


def test_without_calls_operations_are_compared_stage_by_stage(tmp_path: Path) -> None:
    base, new = (_operations(tmp_path / name, took) for name, took in (("base", 4), ("new", 8)))
    found = compare([base], [new], CompareOptions(warmup=0, noise=0.01))
    assert found.culprits == ["put, other"]


def _operations(directory: Path, took_ms: int) -> Path:
    directory.mkdir()
    job = Job()
    worker = job.process("W", 1)
    for number in range(20):
        job.put(worker, number * 20 * MS, range(64), total_ns=took_ms * MS + number % 3)
    return job.write(directory)


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    short = _run(tmp_path / "short", rounds=5)
    with pytest.raises(PerfError, match=r"has 5 rounds to compare \(calls of every function\); 9 are needed"):
        compare([short], [short], CompareOptions())
    run = _run(tmp_path / "run")
    with pytest.raises(PerfError, match="are the same run, and a run counts once"):
        compare([run, run], [short.parent / short.name] and [run], CompareOptions(warmup=0))


def test_bytes_that_are_not_known_in_some_rounds_are_not_known(tmp_path: Path) -> None:
    paths = []
    for side, unknown in (("base", 0), ("new", 7)):
        (tmp_path / side).mkdir()
        job = Job()
        process = job.process("W", 1)
        for number in range(20):
            size_bytes = None if unknown and number % unknown == 0 else MIB
            job.put(process, number * 20 * MS, range(4), total_ns=4 * MS + number % 3, size_bytes=size_bytes)
        paths.append(job.write(tmp_path / side))
    moved = compare([paths[0]], [paths[1]], CompareOptions(warmup=0)).figures[2]
    assert (moved.name, moved.base, moved.new) == ("moved_mib", 1.0, None)
