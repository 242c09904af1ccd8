"""Usual steps summed by column: the same report as one by one."""

from __future__ import annotations

from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.training.analysis.fold import RunFold, read_report
from flagscale_perf.training.columns import Intervals
from flagscale_perf.training.records import IntervalRecord, PhaseRecord, StepRecord
from flagscale_perf.training.usual import UsualSteps
from flagscale_perf.training.window import IntervalWindow
from tests.fakes import MS, SCALE, make_event, make_header, make_phases, make_reading, make_step

STEPS = 4000


def run(has_phases: bool) -> list[Record]:
    """Steps of which some are slow, skipped or without a reading; pauses, other records, and intervals of
    which some are above the peak, capped or retried.
    """
    header = make_header(perf_log_interval=7)
    window = IntervalWindow(7, Anchor(header.start_wall_ns, header.start_mono_ns), SCALE)
    records: list[Record] = [header]
    start_ns = 0
    for number in range(1, STEPS + 1):
        step = make_step(
            number,
            start_ns=start_ns,
            iteration_ns=(100 + number * 7919 % 11 + 60 * (number % 397 == 0)) * MS,
            warmup=int(number == 1),
            outcome=int(number % 1200 == 0),
            eval_ns=5 * MS if number % 500 == 0 else 0,
            memory_peak_bytes=None if number % 3 else 10**9 + number,
            hardware_flops=None if number == 3999 else 10**30 if number % 900 < 90 else 5 * 10**12,
            memory_retries=number // 1500,
        )
        start_ns += step.iteration_ns + step.eval_ns
        if has_phases and number != 2500:
            records.append(make_phases(number, data_loading_ns=number % 5 * MS))
        records.append(step)
        if number % 10 == 0:
            is_capped = number % 600 > 500
            capped = {"throttle": "power", "sm_clock_mhz": 1410} if is_capped else {"throttle": "idle"}
            records.append(make_reading(start_ns, **capped))
            window.add_hardware(records[-1])
        interval = window.add(step)
        records += [] if interval is None else [interval]
        records += [make_event("note", at_ns=start_ns)] if number == 3000 else []
    return records


@pytest.mark.parametrize("has_phases", [False, True])
def test_the_report_is_the_same_as_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, has_phases: bool
) -> None:
    path, together = tmp_path / "perf_records_20240129_103000.jsonl", []
    path.write_bytes(b"".join(map(encode, run(has_phases))))
    add_usual = RunFold._add_usual

    def counted(self: RunFold, steps: UsualSteps, intervals: Intervals) -> None:
        together.append(len(steps))
        add_usual(self, steps, intervals)

    monkeypatch.setattr(RunFold, "_add_usual", counted)
    report = read_report(open_session(path))
    assert sum(together) > STEPS / 3
    assert sum(together) > 30 * len(together), "a reading among steps does not separate them"
    monkeypatch.setattr(UsualSteps, "of", lambda types, columns: None)
    assert report == read_report(open_session(path))


def test_where_intervals_begin_and_end() -> None:
    types = [IntervalRecord, PhaseRecord, StepRecord, IntervalRecord, PhaseRecord, StepRecord]
    columns = {
        StepRecord: list(
            zip(*[make_step(n, start_ns=n, eval_ns=3, iteration_ns=5) for n in (1, 2)], strict=True)
        ),
        PhaseRecord: list(zip(*[make_phases(n) for n in (1, 2)], strict=True)),
    }
    steps = UsualSteps(types, columns)
    assert (steps.ends, steps.ends_ns, len(steps)) == ([0, 1], [9, 10], 2)
    assert (steps.one(1).iteration, steps.phases_of(0)) == (2, make_phases(1))


def test_steps_that_are_not_usual_are_left_to_be_added_one_by_one() -> None:
    for step in (make_step(1, warmup=1), make_step(1, outcome=1), make_step(1, iteration_ns=0)):
        assert UsualSteps.of([StepRecord], {StepRecord: [[value] for value in step]}) is None
