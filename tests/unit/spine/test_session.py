"""Names and labels of a session."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.session import (
    Labels,
    by_age,
    file_names,
    labels_of,
    new_session_id,
    rotated_name,
    session_of,
)
from tests.fakes import SECOND, make_header


def test_names() -> None:
    assert new_session_id(datetime(2024, 1, 29, 10, 30), 1) == "20240129_103000"
    assert new_session_id(datetime(2024, 1, 29, 10, 30), 3) == "20240129_103000_3"
    assert file_names("20240129_103000") == {
        "records": "perf_records_20240129_103000.jsonl",
        "metrics": "perf_metrics_20240129_103000.log",
        "summary": "perf_summary_20240129_103000.json",
        "realtime": "perf_realtime.log",
    }
    assert rotated_name("20240129_103000_2", 7) == "perf_metrics_20240129_103000_2.7.log"


@pytest.mark.parametrize("session_id", ["20240129_103000", "20240129_103000_2", "20240129_103000_12"])
def test_a_run_files_name_gives_its_session(session_id: str) -> None:
    assert session_of(file_names(session_id)["records"]) == session_id


@pytest.mark.parametrize(
    "name",
    [
        "perf_records_notes.jsonl",
        "perf_records_20240129_103000.jsonl.bak",
        "perf_records_20240129_103000_0.jsonl",
        "perf_records_20240129_103000_.jsonl",
        "perf_records_20240129_103000.jsonl\n",
        "xperf_records_20240129_103000.jsonl",
        "perf_metrics_20240129_103000.log",
    ],
)
def test_any_other_name_gives_none(name: str) -> None:
    assert session_of(name) is None


def test_sessions_are_ordered_by_the_clock_and_not_by_their_names(tmp_path: Path) -> None:
    """A host in Shanghai's time and its container in UTC; files without a header by their last change."""
    starts_s = {"20261128_104548": 1000, "20261128_024618": 1030, "20261128_015000": 1060}
    for session_id, start_s in starts_s.items():
        header = replace(make_header(session_id), start_wall_ns=start_s * SECOND)
        (tmp_path / file_names(session_id)["records"]).write_bytes(encode(header))
    ages_s = {"20261128_010000": 1020, "20200101_000000": 1050, "20280101_000000": 990}
    contents = (b"", b"no run", b'{"kind":"header","start_wall_ns":"text"}\n')
    for (session_id, age_s), content in zip(ages_s.items(), contents, strict=True):
        path = tmp_path / file_names(session_id)["records"]
        path.write_bytes(content)
        os.utime(path, (age_s, age_s))
    found = by_age(tmp_path, [*starts_s, *ages_s, "20240101_000000"])
    assert found == ["20240101_000000", *sorted(starts_s | ages_s, key=(starts_s | ages_s).__getitem__)]


def test_sessions_of_one_instant_are_ordered_by_their_number(tmp_path: Path) -> None:
    ids = ["20240129_103000_10", "20240129_103001", "20240129_103000_2", "20240129_103000"]
    for session_id in ids:
        (tmp_path / file_names(session_id)["records"]).write_bytes(encode(make_header(session_id)))
    assert by_age(tmp_path, ids) == [
        "20240129_103000",
        "20240129_103000_2",
        "20240129_103000_10",
        "20240129_103001",
    ]


@pytest.mark.parametrize("zone", ["UTC", "Asia/Shanghai", "America/New_York"])
def test_labels_are_the_writers_local_time_wherever_they_are_read(
    monkeypatch: pytest.MonkeyPatch, zone: str
) -> None:
    monkeypatch.setenv("TZ", zone)
    time.tzset()
    header = make_header("20240129_183000_2")  # the writer was 8 hours ahead of UTC
    label = Labels(header).at(header.start_wall_ns + 15 * SECOND + 999)
    monkeypatch.undo()
    time.tzset()
    assert label == datetime(2024, 1, 29, 18, 30, 15)


def test_a_session_id_that_is_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match="does not match format"):
        Labels(make_header("yesterday"))


def test_a_session_id_that_is_none_is_refused_by_its_name() -> None:
    with pytest.raises(PerfError) as caught:
        labels_of(make_header("../../etc"))
    assert str(caught.value) == (
        "'../../etc' is not a session id such as 20240129_103000; this is not a run file of flagscale_perf"
    )
