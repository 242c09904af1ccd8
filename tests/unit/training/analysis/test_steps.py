"""The steps that are compared: which are left out and why, and how two runs are aligned."""

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis import steps
from tests.fakes import MS, make_skipped_data, make_step
from tests.run_files import steady, write


def numbered(path: Path, first: int, last: int, **overrides) -> Path:
    return write(path, [make_step(number, **overrides) for number in range(first, last + 1)])


def test_what_is_left_out_is_counted_by_the_reason(tmp_path) -> None:
    records = [make_step(number) for number in range(1, 41)]
    records[0] = make_step(1, warmup=1)
    records[19] = make_step(20, eval_ns=500 * MS)
    records[29] = make_step(30, checkpoint_ns=MS // 2)  # the host looked whether to save
    records[34] = make_step(35, outcome=1)
    records[35] = make_step(36, iteration_ns=0)
    run = steps.read_steps(
        open_session(write(tmp_path / "run", [*records, make_skipped_data(45, 5), make_step(46)])), 3, None
    )
    assert run.left_out == {steps.WARMUP: 3, steps.PAUSE: 2, steps.UNTRAINED: 6, steps.TIMELESS: 1}
    assert list(run.steps) == [*range(4, 20), *range(22, 35), *range(37, 41), 46]
    assert run.steps[22] == steps.Step(22, 100 * MS, 8, 1024, 4 * 10**12, None)
    assert run.memory_peak_bytes == 3 * 10**9


def test_a_slow_start_longer_than_the_warm_up_is_left_out(tmp_path) -> None:
    records = [
        make_step(number, warmup=int(number == 1), iteration_ns=(300 if number <= 21 else 100) * MS)
        for number in range(1, 81)
    ]
    run = steps.read_steps(open_session(write(tmp_path / "run", records)), 10, None)
    assert run.left_out == {steps.WARMUP: 10, steps.SLOW_START: 11}
    assert list(run.steps) == list(range(22, 81))


def test_phases_come_with_their_step(tmp_path) -> None:
    run = steps.read_steps(open_session(write(tmp_path / "run", steady(20))), 0, None)
    assert run.left_out == {steps.WARMUP: 1}
    assert run.steps[2].phases_ns[:3] == (2 * MS, 17 * MS, 36 * MS)


def test_too_few_iterations_are_refused_with_what_was_left_out(tmp_path) -> None:
    path = numbered(tmp_path / "run", 1, 20)
    with pytest.raises(PerfError) as refusal:
        steps.read_steps(open_session(path), 10, None)
    reason = (
        "has 10 iterations to compare (left out: 10 warm-up); 16 are needed: train longer or lower --warmup"
    )
    assert str(refusal.value) == f"'{path}' {reason}"


def test_a_long_run_is_thinned_to_the_same_stretches_as_a_longer_one(tmp_path) -> None:
    short = steps.read_steps(open_session(numbered(tmp_path / "short", 1, 3000)), 0, None)
    long = steps.read_steps(open_session(numbered(tmp_path / "long", 1, 9000)), 0, None)
    assert 1024 <= len(short.steps) <= steps.MAX_STEPS and 1024 <= len(long.steps) <= steps.MAX_STEPS
    assert set(long.steps) & set(range(3000)) <= set(short.steps)
    assert len(short.steps) + short.left_out[steps.THINNED] == 3000
    assert {number // steps.STRETCH % 2 for number in short.steps} == {0}


def test_a_long_run_is_thinned_only_where_it_is_compared(tmp_path) -> None:
    runs = [
        open_session(numbered(tmp_path / name, *span))
        for name, span in (("long", (1, 9000)), ("new", (8001, 8100)))
    ]
    span = steps.common_span(runs)
    assert span == range(8001, 8101)
    assert list(steps.read_steps(runs[0], 0, span).steps) == list(span)


def test_runs_without_iterations_in_common_have_no_span(tmp_path) -> None:
    assert (
        steps.common_span(
            [open_session(numbered(tmp_path / "a", 1, 50)), open_session(numbered(tmp_path / "b", 45, 99))]
        )
        is None
    )


def test_the_span_of_a_file_that_was_cut_off(tmp_path) -> None:
    path = numbered(tmp_path / "run", 1, 40)
    path.write_bytes(path.read_bytes()[:-10])
    assert steps.common_span([open_session(path)]) == range(1, 40)


def aligned(tmp_path: Path, *records: list) -> steps.Aligned:
    return steps.align(
        [
            steps.read_steps(open_session(write(tmp_path / str(n), one)), 0, None)
            for n, one in enumerate(records)
        ]
    )


def test_runs_are_aligned_by_iteration(tmp_path) -> None:
    found = aligned(tmp_path, [make_step(n) for n in range(1, 31)], [make_step(n) for n in range(11, 41)])
    assert [[step.iteration for step in row] for row in found.rows] == [list(range(11, 31))] * 2
    assert (found.is_by_iteration, found.has_one_batch_size) == (True, True)
    assert found.left_out == [{steps.UNPAIRED: 10}] * 2


def test_iterations_of_another_batch_size_are_left_out_while_enough_agree(tmp_path) -> None:
    ramp = [make_step(n, samples=4 if n <= 5 else 8) for n in range(1, 31)]
    found = aligned(tmp_path, ramp, [make_step(n) for n in range(1, 31)])
    assert [step.iteration for step in found.rows[0]] == list(range(6, 31))
    assert found.left_out == [{steps.OTHER_BATCH: 5}] * 2
    assert found.has_one_batch_size


def test_all_are_kept_where_the_batch_size_always_differs(tmp_path) -> None:
    found = aligned(
        tmp_path, [make_step(n, samples=4) for n in range(1, 31)], [make_step(n) for n in range(1, 31)]
    )
    assert (len(found.rows[0]), found.has_one_batch_size, found.left_out) == (30, False, [{}, {}])


def test_without_iterations_in_common_the_last_ones_are_taken(tmp_path) -> None:
    found = aligned(tmp_path, [make_step(n) for n in range(1, 51)], [make_step(n) for n in range(101, 121)])
    assert [(row[0].iteration, row[-1].iteration) for row in found.rows] == [(31, 50), (101, 120)]
    assert (found.is_by_iteration, found.left_out) == (False, [{steps.UNPAIRED: 30}, {}])
