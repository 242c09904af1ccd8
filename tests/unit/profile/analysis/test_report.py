"""What is found in a profile, as data."""

from __future__ import annotations

import json

import pytest

from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Profile


def test_all_of_it_as_json(found: ProfileReport) -> None:
    content = json.loads(json.dumps(found.as_dict()))
    step = content["steps"]["train"]
    assert (content["unit"], content["state"], content["versions"]) == (
        "ns",
        "completed",
        {"torch": "2.13.0"},
    )
    assert step["residual"] == 2_000_000
    assert step["coverage"] == 1 - 2 / 101
    assert step["observer"]["pairs"] == 4
    assert step["layers"]["layer 1"]["matmul"]["self_ns"] == 25_000_000
    assert step["books_by_rank"]["rank 1"]["communication"] == 10_000_000


def test_nothing_was_profiled(nothing: Profile) -> None:
    found = report_of(nothing)
    assert (found.main, found.has_rows, found.as_dict()["steps"]) == (None, False, {})


def test_every_threshold_is_shown_known_or_not(found: ProfileReport) -> None:
    assert [(one.name, one.value, one.verdict) for one in found.verdicts] == [
        ("TP efficiency, at most", pytest.approx(1 - 46 / 404), "excellent"),  # 26 + 20 of 4 steps' 404 ms
        ("PP efficiency, at most", None, None),
        ("P2P", None, None),
        ("memory bandwidth", 10.0, "improve"),
        ("NVLink utilisation", None, None),
    ]
    assert found.verdicts[1].remark == "no pipeline was recorded"
