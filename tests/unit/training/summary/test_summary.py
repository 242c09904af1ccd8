"""The summary as data and as the text of its file."""

from __future__ import annotations

import json

from flagscale_perf.spine.records import RUNNING
from flagscale_perf.training.goodput import Goodput
from flagscale_perf.training.summary.summary import Failure, Summary
from flagscale_perf.training.summary.totals import RunTotals
from tests.fakes import SECOND, make_header, sample_run


def sample_summary() -> Summary:
    totals = RunTotals(make_header())
    for record in sample_run():
        totals.add(record)
    return totals.result()


def test_it_is_data_with_types() -> None:
    summary = sample_summary()
    assert (summary.session_info.end_reason, summary.final_statistics.avg_mfu) == ("completed", 0.05)
    assert (summary.totals.samples, summary.memory.alloc_retries, summary.hardware.pcie_width) == (176, 0, 16)
    assert summary.failures == [
        Failure("2024-01-29 10:30:01", 12, "summary: OSError: [Errno 28] No space left on device")
    ]
    assert isinstance(summary.goodput, Goodput)


def test_another_end_reason_changes_nothing_else() -> None:
    summary = sample_summary()
    running = summary.ended(RUNNING)
    assert running.session_info.end_reason == "running"
    assert running.ended("completed") == summary


def test_it_becomes_a_dict_at_the_very_end() -> None:
    summary = sample_summary()
    content = summary.as_dict()
    assert list(content) == list(Summary.__dataclass_fields__)
    assert content["goodput"]["wall_s"] == summary.goodput.wall_ns / SECOND
    assert content["failures"][0]["iteration"] == 12
    assert json.loads(summary.text()) == content


def test_a_line_for_each_row() -> None:
    lines = sample_summary().text().splitlines()
    assert [line[:16] for line in lines[-5:-2]] == ['    {"iteration"'] * 3
    assert lines[-2:] == ["  ]", "}"]
