"""A profile's files have the names and keys that the requirement gives them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis import blocks, files
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.records import Sort
from tests.golden import golden
from tests.profile_runs import make_profile

PICTURES = (
    *("layer_performance_heatmap", "operation_time_distribution", "compute_vs_communication"),
    *("memory_usage_analysis", "performance_bottlenecks", "bandwidth_analysis"),
)


def test_layers_and_modules_in_the_requirements_keys(found: ProfileReport) -> None:
    content = files.analysis_report(found)
    attention = content["layer_breakdown"]["model.layers.0.self_attn"]
    assert attention == {
        "total_time": pytest.approx(0.096),  # 73 matmul, 10 attention and 13 all-reduce of a mean rank
        "avg_time": None,
        "count": 0,  # no row of its own Python
        "operations": {
            "linear_qkv": pytest.approx(0.073),
            "attention_compute": pytest.approx(0.010),
            "communication": pytest.approx(0.013),
        },
    }
    assert content["operation_breakdown"]["matmul"]["total_time"] == pytest.approx(0.123)
    assert content["count_unit"].startswith("calls of a module in layer_breakdown")
    assert (content["unit"], content["residual"], content["steps"]) == ("s", {"train": 0.004}, {"train": 2})


def test_a_modules_calls_are_counted_however_many_a_step_has(tmp_path: Path) -> None:
    job = make_profile()
    for process in (1, 2):
        for phase, calls in (("forward", 6), ("recompute", 4)):
            job.row(process, (phase, "model.layers.0.self_attn", Sort.HOST, "", calls, 0, None, None))
    attention = files.analysis_report(read_report(open_session(job.write(tmp_path))))["layer_breakdown"][
        "model.layers.0.self_attn"
    ]
    assert (attention["count"], attention["avg_time"]) == (10, pytest.approx(0.0096))


def test_a_call_on_each_rank_is_one_call_of_a_mean_rank(tmp_path: Path) -> None:
    job = make_profile()
    for process in (1, 2):
        job.row(process, ("forward", "model.layers.0.self_attn", Sort.HOST, "", 3, 0, None, None))
    attention = files.analysis_report(read_report(open_session(job.write(tmp_path))))["layer_breakdown"][
        "model.layers.0.self_attn"
    ]
    assert attention["count"] == 3


def test_collectives_in_the_requirements_keys(found: ProfileReport) -> None:
    content = files.comm_analysis(found)["communication_analysis"]
    assert content["total_comm_time"] == pytest.approx(0.023)
    assert content["comm_percentage"] == pytest.approx(100 * 23 / 202)
    assert content["by_operation_type"] == {
        "all_reduce": {
            "count": 4,
            "total_time": pytest.approx(0.023),
            "total_bytes": 4e6,
            "wait_time": pytest.approx(0.003),
            "transfer_time": pytest.approx(0.020),
            "hidden_time": 0,
            "avg_bandwidth_gbps": pytest.approx(0.2),  # 4 MB in 4, 5, 6 and 5 ms
        }
    }


def test_the_whole_has_both(found: ProfileReport) -> None:
    content = files.comprehensive_report(found)
    assert {"layer_breakdown", "communication_analysis", "report", "observer", "coverage"} < content.keys()
    json.dumps(content, allow_nan=False)


def test_pictures_by_the_requirements_names(found: ProfileReport) -> None:
    pictures = files.pictures(found)
    assert tuple(pictures) == PICTURES
    assert all(picture.sections[0].blocks for picture in pictures.values())


def test_the_runs_own_page(found: ProfileReport) -> None:
    made = files.readme(found, blocks.report_of(found), PICTURES[:2])
    assert made == golden("profile_readme.md")
