"""A run's tables, figure by figure."""

from __future__ import annotations

from pathlib import Path

import pandas
import pytest

from flagscale_perf import open_run
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store import seal
from flagscale_perf.training.analysis import frames
from flagscale_perf.training.analysis import opened as opened_run
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.rank_records import NodeRecord, RanksRecord
from flagscale_perf.training.records import PhaseRecord, StepRecord
from tests.fakes import (
    MS,
    make_event,
    make_facts,
    make_header,
    make_interval,
    make_phases,
    make_skipped_data,
    make_step,
)


@pytest.fixture
def opened(tmp_path: Path):
    def of(*records, **facts):
        path = tmp_path / "perf_records_20240129_103000.jsonl"
        path.write_bytes(b"".join(map(encode, [make_header(facts=make_facts(**facts)), *records])))
        return open_run(path)

    return of


def row_of(frame: pandas.DataFrame, number: int = 0) -> dict[str, object]:
    return frame.iloc[number].to_dict()


def test_steps(opened) -> None:
    frame = opened(make_step(1, warmup=1), make_step(2, device_ns=None), make_skipped_data(5, 3)).steps()
    first = row_of(frame)
    assert {name: first[name] for name in list(first)[:13]} == {
        "iteration": 1,
        "iterations": 1,
        "outcome": "trained",
        "warmup": True,
        "elapsed_s": 0.1,
        "iteration_ms": 100.0,
        "train_step_ms": 90.0,
        "device_ms": 80.0,
        "eval_ms": 0.0,
        "checkpoint_ms": 0.0,
        "log_ms": pytest.approx(float("nan"), nan_ok=True),
        "samples": 8,
        "tokens": 1024,
    }
    assert (first["model_flops"], first["memory_gb"], first["memory_peak_gb"]) == (4e12, 2.0, 3.0)
    assert list(frame["iteration"]) == [1, 2, 5]
    assert list(frame["outcome"]) == ["trained", "trained", "data_skipped"]
    assert frame["device_ms"].isna().tolist() == [False, True, True]
    kinds = {name: str(kind) for name, kind in frame.dtypes.items()}
    assert (kinds["iteration"], kinds["samples"], kinds["warmup"]) == ("int64", "int64", "bool")
    assert (kinds["device_ms"], kinds["log_ms"]) == ("float64", "float64")
    assert not [name for name in frame if name.endswith(("_ns", "_bytes"))]


def test_whole_numbers_too_large_for_a_float_are_no_integers(opened) -> None:
    frame = opened(make_step(1, model_flops=2**53), make_step(2, model_flops=2**53 + 2)).steps()
    assert frame["model_flops"].dtype == "float64"
    assert frame["model_flops"].tolist() == [2.0**53, 2.0**53 + 2]


def test_phases_add_up_to_the_iteration(opened) -> None:
    run = opened(
        make_phases(1),
        make_step(1),
        make_step(2),
        make_phases(3),
        make_step(3),
        pipeline_parallel=2,
        pipeline_schedule="1f1b",
    )
    frame = run.phases()
    assert frame["iteration"].tolist() == [1, 3]  # nothing was measured of step 2
    first = row_of(frame)
    assert (first["forward_ms"], first["backward_ms"], first["pipeline_recv_wait_ms"]) == (18.0, 36.0, 15.0)
    # 2 stages, 2 micro-batches: a half of 2 + 18 + 36 ms would be idle, but no more than the 15 it waited
    assert (first["bubble_ms"], first["imbalance_ms"]) == (15.0, 0.0)
    own = [name for name in frame if name not in ("iteration", "bubble_ms", "imbalance_ms")]
    assert len(own) == len(PhaseRecord._fields) - 1
    assert frame[own].sum(axis=1).tolist() == run.steps()["iteration_ms"][[0, 2]].tolist() == [100.0, 100.0]
    assert pandas.isna(first["zero_grad_ms"])


def test_intervals_have_the_figures_by_their_keys(opened) -> None:
    frame = opened(make_interval(10), make_interval(20, throttle=None, memory_bytes=None)).intervals()
    assert list(frame) == TABLE.csv_keys()
    first, second = row_of(frame), row_of(frame, 1)
    assert (first["iteration"], first["tokens_per_s"], first["tflops_per_gpu"]) == (10, 10240.0, 5.0)
    assert first["timestamp"] == pandas.Timestamp("2024-01-29 10:30:15")
    assert (first["mfu"], first["power_w"], first["throttle"]) == (0.05, 640.0, "")
    assert pandas.isna(second["throttle"]) and pandas.isna(second["memory_gb"])
    assert frame["warmup_only"].tolist() == [False, False]


HOST = {
    "host_ns": 2000 * MS,
    "run_delay_ns": 500 * MS,
    "cpu_stall_ns": 1000 * MS,
    "memory_stall_ns": 250 * MS,
    "io_stall_ns": 0,
    "memory_available_bytes": 7 * 10**9,
    "disk_bytes": 60 * 10**6,
    "network_bytes": 2 * 10**6,
}


def test_ranks_have_a_row_for_each_and_stretch(opened) -> None:
    nodes = [NodeRecord("node0", [0, 1], [10, 11], ["H200", "H200"], [0, 1])]
    stretch = RanksRecord(
        11,
        20,
        1,
        [100 * MS] * 3,
        [80 * MS, 90 * MS, None],
        [20 * MS, 10 * MS, None],
        [1 * MS, None, None],
        [3 * 10**9, None, None],
        [2],
        1,
        {name: [value, None, None] for name, value in HOST.items()},
    )
    frame = opened(*nodes, stretch, world_size=3).ranks()
    assert row_of(frame) == {
        "first_iteration": 11,
        "iteration": 20,
        "rank": 0,
        "ranks": 1,
        "hostname": "node0",
        "device": "H200",
        "stage": 0.0,
        "iteration_ms": 100.0,
        "work_ms": 80.0,
        "wait_ms": 20.0,
        "data_ms": 1.0,
        "memory_peak_gb": 3.0,
        "run_delay_share": 0.25,
        "cpu_stall_share": 0.5,
        "memory_stall_share": 0.125,
        "io_stall_share": 0.0,
        "host_memory_available_gb": 7.0,
        "disk_mb_per_s": 30.0,
        "network_mb_per_s": 1.0,
    }
    assert frame["rank"].tolist() == [0, 1, 2]
    assert frame["work_ms"].isna().tolist() == frame["hostname"].isna().tolist() == [False, False, True]


def test_of_ranks_that_share_a_row_the_first_and_how_many(opened) -> None:
    times = [[10 * MS] * 2 for _ in range(4)]
    frame = opened(RanksRecord(1, 5, 4, *times, [None, None], [], 0), world_size=6).ranks()
    assert (frame["rank"].tolist(), frame["ranks"].tolist()) == ([0, 4], [4, 2])


def test_events(opened) -> None:
    frame = opened(make_event("slow", iteration=7, text="rank 3"), make_event()).events()
    assert row_of(frame) == {
        "event": "slow",
        "timestamp": pandas.Timestamp("2024-01-29 10:30:01"),
        "elapsed_s": 1.0,
        "iteration": 7,
        "text": "rank 3",
    }
    assert len(frame) == 2


@pytest.mark.parametrize("table", ["steps", "phases", "intervals", "ranks", "events"])
def test_a_table_without_rows_has_its_columns(opened, table: str) -> None:
    frame = getattr(opened(), table)()
    assert len(frame) == 0
    assert "iteration" in frame


def test_a_part_of_a_long_run(opened) -> None:
    run = opened(*(each for n in range(1, 11) for each in (make_phases(n), make_step(n))))
    assert run.steps(first=4)["iteration"].tolist() == [4, 5, 6, 7, 8, 9, 10]
    assert run.steps(last=2)["iteration"].tolist() == [1, 2]
    assert run.phases(first=4, last=5)["iteration"].tolist() == [4, 5]


@pytest.mark.parametrize("limits", [{}, {"first": 3, "last": 6}, {"last": 1}, {"first": 8, "last": 10}])
def test_the_steps_of_a_long_run_come_from_its_table_alike(
    opened, monkeypatch: pytest.MonkeyPatch, limits: dict[str, int]
) -> None:
    unlike = [
        {"model_flops": 3 * 10**20, "device_ns": None},
        {"memory_bytes": None, "memory_retries": None},
        {"outcome": 7, "tokens": 2**53 + 1, "warmup": 1},
    ]
    steps = [make_step(n, **(unlike[n - 3] if 3 <= n <= 5 else {"hardware_flops": None})) for n in range(12)]
    run = opened(*steps)
    expected = run.steps(**limits)
    monkeypatch.setattr(opened_run, "LONG_BYTES", 0)
    monkeypatch.setattr(seal, "PIECE_ROWS", 4)
    pandas.testing.assert_frame_equal(run.steps(**limits), expected, check_exact=True)
    with run.path.open("ab") as file:  # a second table, behind the first one
        file.writelines(map(encode, [make_step(12), *steps * 100]))
    pandas.testing.assert_frame_equal(
        run.steps(**limits), frames.steps(run._between(**{"first": None, "last": None} | limits), run.header)
    )


def test_every_field_of_a_step_has_a_column() -> None:
    assert len(frames._STEP) == len(StepRecord._fields)
