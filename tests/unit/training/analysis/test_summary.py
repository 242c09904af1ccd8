"""The summary from the run file alone."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import open_locked
from flagscale_perf.spine.jsonl import BadLine, encode
from flagscale_perf.training.analysis.summary import summarize
from tests.fakes import make_header, make_step, sample_run
from tests.golden import golden


def write_run(directory: Path, *lines: bytes) -> Path:
    path = directory / "perf_records_20240129_103000.jsonl"
    path.write_bytes(b"".join(lines))
    return path


def test_it_equals_the_one_of_the_writer(tmp_path: Path) -> None:
    run = summarize(write_run(tmp_path, *map(encode, sample_run())))
    assert run.summary.text() == golden("perf_summary.json")
    assert (run.bad_lines, run.skipped) == ([], 0)


def test_without_an_end_the_run_is_running_or_was_killed(tmp_path: Path) -> None:
    path = write_run(tmp_path, *map(encode, sample_run()[:-1]))
    assert summarize(path).summary.session_info.end_reason == "killed"
    held = open_locked(path)
    assert summarize(path).summary.session_info.end_reason == "running"
    os.close(held)


def test_a_damaged_file_gives_what_is_left(tmp_path: Path) -> None:
    run = summarize(
        write_run(tmp_path, encode(make_header()), encode(make_step(1)), b"\0\n", encode(make_step(3)))
    )
    assert (run.summary.totals.samples, run.skipped) == (16, 1)
    assert run.bad_lines == [BadLine(3, "no JSON: Expecting value at character 1")]


def test_extreme_values_of_a_hostile_file_break_nothing(tmp_path: Path) -> None:
    most, least = 2**63 - 1, -(2**63) + 1
    steps = [
        make_step(2**100, start_ns=most, iteration_ns=most, eval_ns=most, checkpoint_ns=most, samples=2**126),
        make_step(-5, iteration_ns=1, model_flops=2**126, iterations=2**100),
        make_step(1, start_ns=least, iteration_ns=least, outcome=77, warmup=9),
    ]
    run = summarize(write_run(tmp_path, encode(make_header()), *map(encode, steps)))
    assert run.summary.totals.train_steps == 3
    json.loads(run.summary.text(), parse_constant=pytest.fail)


def test_a_session_id_that_is_none_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path, encode(make_header("../../etc")))
    with pytest.raises(PerfError) as caught:
        summarize(path)
    assert str(caught.value) == f"{path}:1: '../../etc' is no session id such as 20240129_103000"
