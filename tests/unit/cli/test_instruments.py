"""Which instrument wrote a run file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.cli import instruments
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.training.analysis.instrument import INSTRUMENT
from tests.fakes import make_header

PROBE = """
import json
from flagscale_perf.cli import instruments
from flagscale_perf.spine.records import KINDS
before = sorted(KINDS)
instruments.INSTRUMENTS["not_installed"] = "nowhere"
instruments.load_records()
print(json.dumps([before, sorted(KINDS)]))
"""


def test_record_types_are_known_once_the_instruments_are_loaded(run_python) -> None:
    before, after = json.loads(run_python("-c", PROBE).stdout)
    assert before == ["clock", "end", "event", "header"]
    training = "capture captured hardware interval node phases ranks step straggler"
    assert after == sorted([*before, *training.split(), "rpc_call", "rpc_served"])


def test_every_instrument_can_be_loaded() -> None:
    assert [type(instruments.load(name)) for name in instruments.INSTRUMENTS] == [type(INSTRUMENT)] * 2


def test_one_that_is_not_there_is_named() -> None:
    with pytest.raises(PerfError, match="the instrument 'sonar' is not known; this version has training"):
        instruments.load("sonar")


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
