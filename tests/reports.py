"""Reports made by hand, for what renders them: a small one, one without anything, and one whose every text is
hostile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from flagscale_perf.analysis.rules import Change, Evidence, Finding
from flagscale_perf.store.run_file import Reading, SkippedLine
from flagscale_perf.training.analysis.report import (
    Figures,
    Node,
    Overview,
    Point,
    SlowStep,
    TrainingReport,
    Trend,
)
from flagscale_perf.training.analysis.tables import (
    GoodputBar,
    GoodputPart,
    Happening,
    Memory,
    Monitor,
    Phases,
    RankEntry,
    Ranks,
    Straggler,
)
from flagscale_perf.training.analysis.trend import ALWAYS, LIMITED, ORDERS, PAUSES, WAITS
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.hardware import HardwareSummary

HOSTILE = (
    "</script><script>alert(1)</script><img src=http://x.invalid/a onerror=alert(2)> \u2028 \u202e & "
    "\"' %{y} var(--red)"
)
PARTS = {
    "startup": "start-up",
    "productive": "productive",
    "evaluation": "evaluation",
    "checkpoint": "checkpoint",
    "data_stall": "data (rank 0)",
    "lost": "lost",
    "idle": "idle, other",
}


def unknown(kind: type, **known: Any) -> Any:
    """An instance of a data class of which only these fields are known."""
    return kind(**({field.name: None for field in fields(kind)} | known))


def overview(**changed: Any) -> Overview:
    """Of a run on one node that is complete."""
    known: dict[str, Any] = {
        "session_id": "20240129_103000",
        "end_reason": "completed",
        "started": "2024-01-29 10:30:00",
        "ended": "2024-01-29 10:31:00",
        "first_iteration": 1,
        "last_iteration": 30,
        "iterations": 30,
        "skipped_iterations": 0,
        "train_iters": 30,
        "resume_iteration": 0,
        "log_interval": 10,
        "host": "FlagScale 0.8.0",
        "script": "train_gpt.py",
        "hostname": "node1",
        "package_version": "0.1.0",
        "restart_count": 0,
        "world_size": 8,
        "device": "NVIDIA H200",
        "dtype": "bf16",
        "parallel": {"TP": 2, "PP": 2, "DP": 2},
        "model_family": "llama",
        "seq_length": 4096,
        "micro_batch_size": 1,
        "global_batch_size": 16,
        "flops_convention": "causal_half",
        "peak_tflops": 989.4,
        "peak_source": "H200 SXM, dense bf16",
        "missing": [],
        "nodes": [],
        "config": {"perf_log_interval": 10},
    }
    return unknown(Overview, **(known | changed))


def point(iteration: int, groups_ms: dict[str, float] | None = None, **changed: Any) -> Point:
    """An interval of 10 iterations of 2 s."""
    known: dict[str, Any] = {
        "first_iteration": iteration - 9,
        "iteration": iteration,
        "timestamp": "2024-01-29 10:30:20",
        "elapsed_s": 2.0 * iteration,
        "steps": 10,
        "skipped_iterations": 0,
        "tflops_per_gpu": 400.0,
        "mfu": 0.4,
        "hfu": 0.5,
        "tokens_per_s": 32768.0,
        "samples_per_s": 8.0,
        "iteration_ms": 2000.0,
        "iteration_p50_ms": 1990.0,
        "iteration_p95_ms": 2100.0,
        "iteration_max_ms": 2200.0,
        "warmup_only": False,
        "suspect": False,
        "eval_ms": 0.0,
        "checkpoint_ms": 0.0,
    }
    return Point(dict.fromkeys(TABLE.csv_keys()) | known | changed, False, groups_ms)


def figures(**changed: Any) -> Figures:
    """Those of `small`."""
    known: dict[str, Any] = {
        "tflops_per_gpu": 400.0,
        "min_tflops_per_gpu": 390.0,
        "max_tflops_per_gpu": 410.0,
        "mfu": 0.4043,
        "hfu": 0.5054,
        "intervals": 3,
        "suspect_intervals": 0,
        "tokens_per_s": 32768.0,
        "samples_per_s": 8.0,
        "iteration_ms": 2000.0,
        "p50_ms": 1990.0,
        "p95_ms": 2100.0,
        "max_ms": 2200.0,
        "first_iteration_ms": 9000.0,
        "train_s": 67.0,
        "eval_s": 0.0,
        "checkpoint_s": 0.0,
        "samples": 480,
        "skipped_samples": 0,
        "tokens": 1966080,
        "model_flops": 192 * 10**15,
        "hardware_flops": 240 * 10**15,
    }
    return Figures(**(known | changed))


def finding(**changed: Any) -> Finding:
    """A stall by data."""
    known: dict[str, Any] = {
        "name": "data_stall",
        "title": "Loading data holds ranks 4 to 7 up",
        "cost_s": 7.4,
        "cost_share": 0.11,
        "gain": 0.12,
        "gain_of": "tokens/s",
        "evidence": [Evidence("loading data, of an iteration", 0.11, 0.02, "share", "ours: one batch ahead")],
        "first_iteration": 2,
        "iteration": 30,
        "ranks": [4, 5, 6, 7],
        "causes": ["too few loader processes", "slow or far storage"],
        "changes": [Change(["--num-workers"], "raise it: more processes prepare batches ahead")],
    }
    return Finding(**(known | changed))


def bar(wall_s: float, **shares: float | None) -> GoodputBar:
    """The wall time by classes, by their shares."""
    parts = [
        GoodputPart(key, label, _times(shares.get(key, 0.0), wall_s), shares.get(key, 0.0))
        for key, label in PARTS.items()
    ]
    return GoodputBar(wall_s, parts, shares.get("productive"))


def _times(share: float | None, whole: float) -> float | None:
    return None if share is None else share * whole


def trend_of(points: Sequence[Point], *others: Any) -> Trend:
    """A trend of these intervals; `others`: its other fields."""
    settled = [one for one in points if not one.figures["warmup_only"]]
    timed = [one for one in settled if one.groups_ms is not None]
    suspect = [one for one in settled if one.figures["suspect"]]
    capped = [one for one in points if one.figures["throttle"]]

    def rows(name: str, shown: Sequence[Point]) -> list[tuple[Any, ...]]:
        return [(one.figures["iteration"], one.figures[name]) for one in shown]

    curves = {name: rows(name, points if name in ALWAYS else settled) for name in ORDERS}
    curves |= {
        name: [
            (at, None if one in suspect else y)
            for (at, y), one in zip(rows(name, settled), settled, strict=True)
        ]
        for name in LIMITED
    }
    curves |= {name: rows(name, timed) for name in WAITS}
    curves |= {name: [row for row in rows(name, settled) if (row[1] or 0) > 1] for name in PAUSES}
    curves["suspect"] = rows("tflops_per_gpu", suspect)
    curves["capped"] = [
        (*row, one.figures["throttle"]) for row, one in zip(rows("sm_clock_mhz", capped), capped, strict=True)
    ]
    curves["groups"] = [
        (*row, one.groups_ms) for row, one in zip(rows("iteration_ms", timed), timed, strict=True)
    ]
    return Trend(list(points), curves, *others)


def small() -> TrainingReport:
    """One finding, three intervals; no phases, no ranks, no counters."""
    return TrainingReport(
        overview=overview(),
        findings=[finding()],
        unjudged=["throttling: no counters were read"],
        figures=figures(),
        trend=trend_of(
            [point(10), point(20, iteration_max_ms=3000.0), point(30)],
            3,
            [SlowStep(17, 34.0, 3000.0, 1990.0)],
            1,
            1.0,
        ),
        phases=Phases(0, [], None, None, None, None, None),
        ranks=None,
        stragglers=[],
        memory=unknown(Memory),
        hardware=unknown(HardwareSummary),
        goodput=bar(80.0, startup=0.2, productive=0.7, idle=0.1, data_stall=None),
        monitor=Monitor(0.0004, 0, 0, [], {}),
        files={"records": "perf_records_20240129_103000.jsonl"},
        reading=Reading(
            "logs/perf_records_20240129_103000.jsonl",
            {"header": 1, "step": 30, "interval": 3, "end": 1},
            0,
            [],
        ),
    )


def bare() -> TrainingReport:
    """A run of which nothing but its header is there."""
    seen = unknown(
        Overview,
        session_id="20240129_103000",
        end_reason="killed",
        started="2024-01-29 10:30:00",
        ended="2024-01-29 10:30:00",
        iterations=0,
        skipped_iterations=0,
        resume_iteration=0,
        parallel={},
        missing=["the peak"],
        nodes=[],
        config={},
    )
    none = unknown(
        Figures,
        intervals=0,
        suspect_intervals=0,
        train_s=0.0,
        eval_s=0.0,
        checkpoint_s=0.0,
        samples=0,
        skipped_samples=0,
        tokens=0,
    )
    return replace(
        small(),
        overview=seen,
        findings=[],
        unjudged=[],
        figures=none,
        trend=trend_of([], 0, [], 0, 0.0),
        goodput=bar(0.0),
        monitor=Monitor(None, 0, 0, [], {}),
        files={},
        reading=Reading("run.jsonl", {"header": 1}, 1, [SkippedLine(2, "no JSON")]),
    )


def hostile() -> TrainingReport:
    """The small one, and wherever a text of a run is shown it is one that wants to be a script, a request or
    a picture.
    """
    bad = HOSTILE
    return replace(
        small(),
        overview=overview(
            session_id=bad,
            end_reason=bad,
            host=bad,
            script=bad,
            hostname=bad,
            device=bad,
            dtype=bad,
            parallel={bad: 2},
            model_family=bad,
            flops_convention=bad,
            peak_source=bad,
            missing=[bad],
            nodes=[Node(bad, 1, 0, 0, [bad])],
            config={bad: bad},
            package_version=bad,
        ),
        findings=[
            finding(
                name=bad,
                title=bad,
                gain_of=bad,
                causes=[bad],
                changes=[Change([bad], bad)],
                evidence=[Evidence(bad, 2.0, 1.0, "ms", bad)],
            ),
        ],
        unjudged=[bad],
        trend=trend_of(
            [point(10, sm_clock_mhz=1980, throttle=bad), point(20, sm_clock_mhz=1980)], 2, [], 0, 0.0
        ),
        ranks=few_ranks(bad),
        stragglers=[Straggler(1, 10, True, [1], bad, bad, 0, bad, 5.0, 20.0, bad, bad, bad)],
        hardware=unknown(HardwareSummary, throttle=[bad]),
        goodput=GoodputBar(2.0, [GoodputPart(bad, bad, 2.0, 1.0)], 1.0),
        monitor=Monitor(0.1, 1, 1, [Happening(bad, 3, bad, bad)], {bad: 1}),
        files={bad: bad},
        reading=Reading(bad, {bad: 1}, 1, [SkippedLine(7, bad)]),
    )


def few_ranks(name: str = "node1") -> Ranks:
    """Two ranks over two stretches; rank 1 told nothing of the second."""
    entries = [RankEntry(rank, rank, name, name, 0) for rank in range(2)]
    matrix: list[list[float | None]] = [[10.0, 15.0], [10.0, None]]
    return unknown(
        Ranks,
        entries=entries,
        stretches=[[1, 10], [11, 20]],
        iteration_ms=matrix,
        work_ms=matrix,
        wait_ms=matrix,
        data_ms=matrix,
        memory_peak_gb=matrix,
        cpu_wait_share=matrix,
        median_work_ms=[10.0, 15.0],
        median_iteration_ms=[10.0, 15.0],
        median_wait_ms=[5.0, 0.5],
        median_data_ms=[1.0, None],
        peak_gb=[40.0, None],
        silent=[1],
        silent_count=1,
    )
