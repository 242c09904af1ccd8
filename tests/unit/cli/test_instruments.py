"""Which instrument wrote a run file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from flagscale_perf.cli import instruments
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.analysis.instrument import INSTRUMENT
from tests.fakes import make_header
from tests.trace_runs import lines_of_call

PROBE = """
import json
from flagscale_perf.cli import instruments
from flagscale_perf.spine.records import KINDS
before = sorted(KINDS)
instruments.load_records()
print(json.dumps([before, sorted(KINDS)]))
"""


def test_record_types_are_known_once_the_instruments_are_loaded(run_python) -> None:
    before, after = json.loads(run_python("-c", PROBE).stdout)
    assert before == ["clock", "end", "event", "header", "name", "process"]
    training = "capture captured cuts hardware host interval node phases ranks standstill step straggler"
    queue = "tq_call tq_clear tq_fields tq_keys tq_operation tq_rows tq_start tq_units tq_unsized tq_wait"
    parts = "begin collective delay memory rank roof row step window"
    profile = [f"profile_{part}" for part in parts.split()]
    bench = [f"bench_{part}" for part in ("begin", "end", "figure", "point")]
    others = ["rpc_call", "rpc_served", *queue.split(), *profile, *bench]
    assert after == sorted([*before, *training.split(), *others])


def test_a_file_without_a_name_is_of_a_training(tmp_path: Path) -> None:
    path = tmp_path / "perf_records_20240129_103000.jsonl"
    path.write_bytes(encode(make_header()))
    assert instruments.instrument_for(path) is INSTRUMENT


def test_a_directory_is_of_its_newest_file_that_can_be_read(tmp_path: Path) -> None:
    (tmp_path / "perf_records_20240129_103000.jsonl").write_bytes(encode(make_header()))
    (tmp_path / "perf_records_20240129_110000.jsonl").write_bytes(b"")
    assert instruments.instrument_in(tmp_path) is INSTRUMENT
    with pytest.raises(PerfError, match="cannot read"):
        instruments.instrument_in(tmp_path.parent / "nothing")


def test_a_log_is_of_the_instrument_whose_title_it_has(tmp_path: Path) -> None:
    (tmp_path / "any.log").write_text("ZeroMQ Performance Log - Transport: IPC\n")
    assert instruments.instrument_for(tmp_path / "any.log") is instruments.load("rpc")


def test_a_log_with_an_instruments_lines_is_of_it_whatever_stands_before(tmp_path: Path) -> None:
    log = tmp_path / "training.log"
    log.write_text("step 1\n" * 1000 + "\n".join(lines_of_call(before="(W pid=1) ")) + "\n")
    (tmp_path / "old.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    assert instruments.instrument_for(log) is instruments.load("trace")
    assert instruments.instrument_for(tmp_path / "old.log.1.gz") is instruments.load("trace")
    assert instruments.instrument_for(tmp_path) is instruments.load("trace")
    assert instruments.run_or_logs(tmp_path) == tmp_path


def test_a_run_file_comes_before_the_logs_beside_it(tmp_path: Path) -> None:
    (tmp_path / "tq_trace_7.log").write_text("\n".join(lines_of_call()))
    run = tmp_path / "perf_records_20240129_103000.jsonl"
    run.write_bytes(encode(make_header()))
    assert instruments.run_or_logs(tmp_path) == run
    assert not instruments.has_logs(tmp_path)
    assert instruments.instrument_for(run) is INSTRUMENT
