"""A session of profiled ranks summed up: the summary's file."""

from __future__ import annotations

import json

from flagscale_perf.profile.summary import PRESENTATION, NoMetrics, ProfileSummary
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from tests.profiled import MS, NAMES, REASON, made, rank, step, window

HEADER = RunHeader(1, "20240129_103000", 0, 0, {"job": "a"}, {}, "profile")
BEGUN = ProcessRecord(1, 123, "rank 0", 5, end=None, dropped=0, lost=0)
OVER = ProcessRecord(1, 123, "rank 0", 5, end="completed", dropped=0, lost=0)


def of_process(record: Record) -> Record:
    return record._replace(process=1)  # type: ignore[attr-defined,no-any-return]


def test_the_summary_says_what_there_was_and_what_profiling_cost() -> None:
    summary = ProfileSummary(HEADER)
    records: list[Record] = [
        BEGUN,
        *(NameRecord(1, number, text) for number, text in NAMES.items()),
        *map(of_process, [rank(1), *made(2, first=2), step(8, total_ns=110 * MS, communication_ns=22 * MS)]),
        OVER,
        RunEnd("completed", 0, 8, 0),
    ]
    for record in records:
        summary.add(record)
    content = json.loads(summary.text())
    assert (content["state"], content["records_lost"], content["facts"]) == ("completed", 0, {"job": "a"})
    (found,) = content["ranks"]
    assert found.pop("process")["end"] == "completed"
    assert found == {
        "rank": 0,
        "world_size": 2,
        "model": "Qwen3ForCausalLM",
        "host": "torch",
        "device": "",
        "windows": 1,
        "rows": 2,
        "without_rows": [],
        "events": 900,
        "dropped_events": 0,
        "steps": {
            "train": {
                "profiled": 2,
                "clean": 1,
                "profiled_median_ns": 105 * MS,
                "clean_median_ns": 95 * MS,
                "observer_ratio": 105 / 95,
                "total_ns": 210 * MS,
                "operators_ns": 120 * MS,
                "outside_ns": 20 * MS,
                "host_ns": 24 * MS,
                "engine_ns": 10 * MS,
                "communication_ns": 34 * MS,
                "residual_ns": 2 * MS,
            }
        },
    }


def test_what_is_not_known_of_one_step_is_not_known_of_all() -> None:
    summary = ProfileSummary(HEADER)
    for record in (step(1), step(2, engine_ns=None), step(3)):
        summary.add(of_process(record))
    (found,) = json.loads(summary.text())["ranks"]
    assert (found["rank"], found["steps"].popitem()[1]["engine_ns"]) == (None, None)


def test_a_window_without_rows_says_why() -> None:
    summary = ProfileSummary(HEADER)
    summary.add(NameRecord(1, REASON, "no module ran"))
    summary.add(of_process(window(1, reason=REASON)))
    (found,) = json.loads(summary.text())["ranks"]
    assert (found["windows"], found["rows"], found["without_rows"]) == (1, 0, ["no module ran"])


def test_a_session_that_goes_on_is_running() -> None:
    content = json.loads(ProfileSummary(HEADER).text())
    assert (content["state"], content["records_lost"], content["ranks"]) == ("running", None, [])


def test_there_are_no_metrics_of_a_profile() -> None:
    metrics = PRESENTATION.metrics(HEADER)
    metrics.add(step(1))
    assert isinstance(metrics, NoMetrics)
    assert (metrics.table, metrics.values()) == ({}, {})
