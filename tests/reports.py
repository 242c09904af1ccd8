"""Reports made by hand, for what renders them: a small one, one without anything, one with hostile text, and a long one with everything."""

from __future__ import annotations

import math
from dataclasses import fields, replace
from typing import Any

from flagscale_perf.analysis.report import (
    Change,
    Evidence,
    Figures,
    Finding,
    Node,
    Overview,
    Point,
    Report,
    SlowStep,
    Trend,
)
from flagscale_perf.analysis.tables import (
    GoodputBar,
    GoodputPart,
    Happening,
    Hardware,
    Memory,
    Monitor,
    Phase,
    Phases,
    RankEntry,
    Ranks,
    Reading,
    SkippedLine,
    Straggler,
)
from flagscale_perf.core.phases import GROUPS, PHASES

HOSTILE = "</script><script>alert(1)</script><img src=http://x.invalid/a onerror=alert(2)> \u2028 \u202e & \"' %{y} var(--red)"
PARTS = {
    "startup_s": "start-up", "productive_s": "productive", "evaluation_s": "evaluation", "checkpoint_s": "checkpoint",
    "data_stall_s": "data stall", "lost_s": "lost", "idle_s": "idle, other",
}  # fmt: skip


def unknown(kind: type, **known: Any) -> Any:
    """An instance of a data class of which only these fields are known."""
    return kind(**({field.name: None for field in fields(kind)} | known))


def overview(**changed: Any) -> Overview:
    """Of a run on one node that is complete."""
    known: dict[str, Any] = {
        "session_id": "20240129_103000", "end_reason": "completed", "started": "2024-01-29 10:30:00", "ended": "2024-01-29 10:31:00",
        "first_iteration": 1, "last_iteration": 30, "iterations": 30, "skipped_iterations": 0, "train_iters": 30, "resume_iteration": 0,
        "log_interval": 10, "host": "FlagScale 0.8.0", "script": "train_gpt.py", "hostname": "node1", "package_version": "0.1.0",
        "restart_count": 0, "world_size": 8, "device": "NVIDIA H200", "dtype": "bf16", "parallel": {"TP": 2, "PP": 2, "DP": 2},
        "model_family": "llama", "seq_length": 4096, "micro_batch_size": 1, "global_batch_size": 16, "flops_convention": "causal_half",
        "peak_tflops": 989.4, "peak_source": "H200 SXM, dense bf16", "missing": [], "nodes": [], "config": {"perf_log_interval": 10},
    }  # fmt: skip
    return unknown(Overview, **(known | changed))


def point(iteration: int, **changed: Any) -> Point:
    """An interval of 10 iterations of 2 s."""
    known: dict[str, Any] = {
        "first_iteration": iteration - 9, "iteration": iteration, "at": "2024-01-29 10:30:20", "elapsed_s": 2.0 * iteration, "steps": 10,
        "skipped_iterations": 0, "tflops_per_gpu": 400.0, "mfu": 0.4, "hfu": 0.5, "tokens_per_s": 32768.0, "samples_per_s": 8.0,
        "iteration_ms": 2000.0, "p50_ms": 1990.0, "p95_ms": 2100.0, "max_ms": 2200.0, "is_warmup": False, "is_suspect": False,
        "is_slow": False, "eval_s": 0.0, "checkpoint_s": 0.0,
    }  # fmt: skip
    return unknown(Point, **(known | changed))


def figures(**changed: Any) -> Figures:
    """Those of `small`."""
    known: dict[str, Any] = {
        "tflops_per_gpu": 400.0, "min_tflops_per_gpu": 390.0, "max_tflops_per_gpu": 410.0, "mfu": 0.4043, "hfu": 0.5054,
        "suspect_intervals": 0, "tokens_per_s": 32768.0, "samples_per_s": 8.0, "iteration_ms": 2000.0, "p50_ms": 1990.0,
        "p95_ms": 2100.0, "max_ms": 2200.0, "first_iteration_ms": 9000.0, "train_s": 67.0, "eval_s": 0.0, "checkpoint_s": 0.0,
        "samples": 480, "skipped_samples": 0, "tokens": 1966080, "model_flops": 192 * 10**15, "hardware_flops": 240 * 10**15,
    }  # fmt: skip
    return Figures(**(known | changed))


def finding(**changed: Any) -> Finding:
    """A stall by data."""
    known: dict[str, Any] = {
        "name": "data_stall", "title": "Loading data holds ranks 4 to 7 up", "cost_s": 7.4, "cost_share": 0.11, "gain": 0.12,
        "gain_of": "tokens/s", "evidence": [Evidence("loading data, of an iteration", 0.11, 0.02, "share", "ours: one batch ahead")],
        "first_iteration": 2, "iteration": 30, "ranks": [4, 5, 6, 7], "causes": ["too few loader processes", "slow or far storage"],
        "changes": [Change(["--num-workers"], "raise it: more processes prepare batches ahead")],
    }  # fmt: skip
    return Finding(**(known | changed))


def bar(wall_s: float, **shares: float | None) -> GoodputBar:
    """The wall time by classes, by their shares."""
    parts = [GoodputPart(key, label, _times(shares.get(key, 0.0), wall_s), shares.get(key, 0.0)) for key, label in PARTS.items()]
    return GoodputBar(wall_s, parts, shares.get("productive_s"))


def _times(share: float | None, whole: float) -> float | None:
    return None if share is None else share * whole


def small() -> Report:
    """One finding, three intervals; no phases, no ranks, no counters."""
    return Report(
        overview=overview(),
        findings=[finding()],
        figures=figures(),
        trend=Trend([point(10), point(20, max_ms=3000.0), point(30)], 3, [SlowStep(17, 34.0, 3000.0, 1990.0)], 1, 1.0),
        phases=Phases(0, [], None, None, None, None, None),
        ranks=None,
        stragglers=[],
        memory=unknown(Memory),
        hardware=unknown(Hardware),
        goodput=bar(80.0, startup_s=0.2, productive_s=0.7, idle_s=0.1, data_stall_s=None),
        monitor=Monitor(0.0004, 0, 0, [], {}),
        files={"records": "perf_records_20240129_103000.jsonl"},
        reading=Reading("logs/perf_records_20240129_103000.jsonl", {"header": 1, "step": 30, "interval": 3, "end": 1}, 0, []),
    )


def bare() -> Report:
    """A run of which nothing but its header is there."""
    seen = unknown(
        Overview, session_id="20240129_103000", end_reason="killed", started="2024-01-29 10:30:00", ended="2024-01-29 10:30:00",
        iterations=0, skipped_iterations=0, resume_iteration=0, parallel={}, missing=["the peak"], nodes=[], config={},
    )  # fmt: skip
    none = unknown(Figures, suspect_intervals=0, train_s=0.0, eval_s=0.0, checkpoint_s=0.0, samples=0, skipped_samples=0, tokens=0)
    return replace(
        small(), overview=seen, findings=[], figures=none, trend=Trend([], 0, [], 0, 0.0), goodput=bar(0.0),
        monitor=Monitor(None, 0, 0, [], {}), files={}, reading=Reading("run.jsonl", {"header": 1}, 1, [SkippedLine(2, "no JSON")]),
    )  # fmt: skip


def hostile() -> Report:
    """The small one, and wherever a text of a run is shown it is one that wants to be a script, a request or a picture."""
    bad = HOSTILE
    return replace(
        small(),
        overview=overview(
            session_id=bad, end_reason=bad, host=bad, script=bad, hostname=bad, device=bad, dtype=bad, parallel={bad: 2}, model_family=bad,
            flops_convention=bad, peak_source=bad, missing=[bad], nodes=[Node(bad, 1, 0, 0, [bad])], config={bad: bad}, package_version=bad,
        ),
        findings=[finding(name=bad, title=bad, gain_of=bad, evidence=[Evidence(bad, 2.0, 1.0, "ms", bad)], causes=[bad], changes=[Change([bad], bad)])],
        trend=Trend([point(10, sm_clock_mhz=1980, throttle=bad, power_w=700.0), point(20, sm_clock_mhz=1980, power_w=700.0)], 2, [], 0, 0.0),
        ranks=few_ranks(bad),
        stragglers=[Straggler(1, 10, True, [1], bad, bad, 0, bad, 5.0, 20.0, 0.05, bad, bad)],
        hardware=unknown(Hardware, throttle=[bad]),
        goodput=GoodputBar(2.0, [GoodputPart(bad, bad, 2.0, 1.0)], 1.0),
        monitor=Monitor(0.1, 1, 1, [Happening(bad, 3, bad, bad)], {bad: 1}),
        files={bad: bad},
        reading=Reading(bad, {bad: 1}, 1, [SkippedLine(7, bad)]),
    )  # fmt: skip


def few_ranks(name: str = "node1") -> Ranks:
    """Two ranks over two stretches; rank 1 told nothing of the second."""
    entries = [RankEntry(rank, rank, name, name, 0) for rank in range(2)]
    matrix: list[list[float | None]] = [[10.0, 15.0], [10.0, None]]
    return unknown(
        Ranks, entries=entries, stretches=[[1, 10], [11, 20]], iteration_ms=matrix, work_ms=matrix, wait_ms=matrix, data_ms=matrix,
        memory_peak_gb=matrix, median_work_ms=[10.0, 15.0], median_wait_ms=[5.0, 0.5], peak_gb=[40.0, None], silent=[1], silent_count=1,
    )  # fmt: skip


# --- the long one: what a run of 64 GPUs over a night looks like, all of it made up


def _noise(number: int, salt: int) -> float:
    """Between -1 and 1, always the same."""
    return math.sin(number * 12.9898 + salt * 78.233) * 43758.5453 % 2 - 1


def _long_point(n: int) -> Point:
    """Interval n of 2000: the loader gets worse for a while, the clock falls, every 100th writes a checkpoint."""
    iteration, is_stalled, is_hot = 10 * n, 600 <= n < 900, 1400 <= n < 1600
    data_ms = 240.0 if is_stalled else 18.0
    slow = 1.08 if is_hot else 1.0
    groups = {"Data": data_ms, "Forward": 560.0 * slow, "Backward": 1090.0 * slow, "Pipe": 210.0, "Comm": 130.0, "Optim": 95.0, "Other": 25.0, "Between": 6.0}
    groups = {name: dur_ms * (1 + 0.02 * _noise(n, salt)) for salt, (name, dur_ms) in enumerate(groups.items())}
    mean_ms = sum(groups.values())
    tflops = 840_000 / mean_ms
    is_outlier = _noise(n, 40) > 0.985
    return point(
        iteration, elapsed_s=iteration * 2.2, tflops_per_gpu=tflops, mfu=tflops / 989.4, hfu=tflops / 989.4 * 1.11, iteration_ms=mean_ms,
        tokens_per_s=4_194_304 / mean_ms * 1000, samples_per_s=1_024_000 / mean_ms, p50_ms=mean_ms * 0.997,
        p95_ms=mean_ms * (1.025 + 0.01 * _noise(n, 20)), max_ms=mean_ms * (1.9 if is_outlier else 1.045 + 0.02 * _noise(n, 30)),
        is_slow=is_outlier, eval_s=21.0 if n % 200 == 0 else 0.0, checkpoint_s=38.0 + 4 * _noise(n, 50) if n % 100 == 0 else 0.0,
        memory_gb=61.0 + 0.4 * _noise(n, 60), memory_peak_gb=118.0 + n / 400, memory_reserved_gb=127.0 + n / 400,
        power_w=(590.0 if is_hot else 668.0) + 12 * _noise(n, 70), tokens_per_joule=4_194_304 / mean_ms * 1000 / 64 / 660,
        sm_clock_mhz=round((1620 if is_hot else 1965) + 15 * _noise(n, 80)), temperature_c=round((81 if is_hot else 66) + 2 * _noise(n, 90)),
        throttle="temperature" if is_hot and n % 10 == 0 else None, groups_ms=groups, bubble_ms=160.0 + 3 * _noise(n, 3), imbalance_ms=50.0 + 3 * _noise(n, 4),
    )  # fmt: skip


def _long_ranks() -> Ranks:
    """64 ranks on 8 nodes; rank 21 is slow from the middle on, the last stage does more."""
    entries = [RankEntry(rank, rank, f"gpu-node-{rank // 8:02d}", "NVIDIA H200", rank // 16) for rank in range(64)]
    stretches = [[100 * n + 1, 100 * n + 100] for n in range(200)]

    def matrix(usual: float, salt: int, slow: float) -> list[list[float | None]]:
        return [
            [usual * (1 + 0.012 * _noise(64 * n + rank, salt)) * (slow if rank == 21 and 90 <= n < 160 else 1.02 if rank >= 48 else 1) for rank in range(64)]
            for n in range(200)
        ]

    medians = [1790.0 * (1.14 if rank == 21 else 1) for rank in range(64)]
    return unknown(
        Ranks, entries=entries, stretches=stretches, iteration_ms=matrix(2140, 1, 1), work_ms=matrix(1790, 2, 1.14), wait_ms=matrix(340, 3, 0.3),
        data_ms=matrix(18, 4, 1), memory_peak_gb=matrix(118, 5, 1), median_work_ms=medians, median_wait_ms=[340.0] * 64, peak_gb=[123.0] * 64,
        silent=[], silent_count=0,
    )  # fmt: skip


def _long_findings() -> list[Finding]:
    """In the order of what they cost, and a risk at the end."""
    return [
        finding(
            title="Data loading stalls the steps between iterations 6,000 and 9,000", cost_s=4380.0, cost_share=0.089, gain=0.107,
            first_iteration=6000, iteration=8990, ranks=list(range(8, 16)),
            evidence=[Evidence("loading data, of an iteration", 0.104, 0.02, "share", "ours: a loader with prefetch hands over a batch in 1 % of a step or less")],
            changes=[Change(["--num-workers"], "raise it: more processes prepare batches ahead"), Change(["--data-cache-path"], "keep the dataset's index files on a local disk")],
        ),
        finding(
            name="pipeline_bubble", title="The pipeline's schedule leaves the stages idle", cost_s=3310.0, cost_share=0.067, gain=0.072, ranks=[],
            first_iteration=None, iteration=None, causes=["few micro-batches for so many stages"],
            evidence=[Evidence("bubble of computing and waiting", 0.158, 0.1, "share", "ours: half of (p-1)/(m+p-1) at m = 4 p, which Huang et al. (GPipe, 2019) call negligible")],
            changes=[Change(["--num-layers-per-virtual-pipeline-stage"], "interleave v stages on each device: the bubble shrinks v times"), Change(["--global-batch-size"], "raise it, if the optimisation allows it: more micro-batches")],
        ),
        finding(
            name="straggler", title="Rank 21 works 14 % longer than its peers", cost_s=1740.0, cost_share=0.035, gain=0.036, ranks=[21],
            first_iteration=9001, iteration=16000, causes=["a device with a lower clock", "another process on its host", "a bad link or disk"],
            evidence=[Evidence("excess of an iteration", 0.118, 0.01, "share", "ours: what one rank costs all others is worth a look from 1 % on"), Evidence("lowest SM clock", 1590.0, 1906.0, "MHz", "97 % of the highest clock of the run")],
            changes=[Change([], "look at that device's clocks and errors (nvidia-smi -q -d PERFORMANCE,ECC), then leave its node out")],
        ),
        finding(
            name="memory_limit", title="Memory is near the device's limit", cost_s=None, cost_share=None, gain=None, gain_of="tokens/s", ranks=[],
            first_iteration=None, iteration=None, causes=["activations of a large micro-batch"],
            evidence=[Evidence("reserved at peak, of the device", 0.934, 0.92, "share", "ours: CUDA's context, NCCL's buffers and fragmentation need some GB")],
            changes=[Change(["--recompute-granularity"], "selective: attention's activations are made again instead of kept"), Change(["--use-distributed-optimizer"], "divide the optimizer's state over the data-parallel ranks")],
        ),
    ]  # fmt: skip


def _long_phases() -> Phases:
    """Totals that belong to the points, roughly."""
    ms = {"data_loading": 52.0, "forward": 566.0, "backward": 1101.0, "pipeline_recv_wait": 190.0, "pipeline_send": 20.0, "exposed_grad_comm": 96.0, "exposed_param_comm": 34.0, "optimizer_inner_step": 70.0, "optimizer_clip": 25.0, "forward_backward_other": 20.0, "other": 5.0, "between_steps": 6.0}  # fmt: skip
    whole = sum(ms.values())
    rows = [Phase(name, ms[name] * 20 if name in ms else None, ms[name] / whole if name in ms else None, ms.get(name)) for name in PHASES]
    return Phases(19999, rows, 3310.0, 0.072, 1030.0, 0.023, 0.158)


def long() -> Report:
    """Everything there is, with findings."""
    points = [_long_point(n) for n in range(1, 2001)]
    slow = [SlowStep(p.iteration - 3, p.elapsed_s, p.max_ms or 0.0, p.p50_ms or 0.0) for p in points if p.is_slow]
    events = [Happening("slow_interval", 14010, "2024-01-29 19:03:12", "steps 14001 to 14010 8 % slow: rank 0, clock capped by temperature")]
    nodes = [Node(f"gpu-node-{n:02d}", 8, 8 * n, 8 * n + 7, ["NVIDIA H200"]) for n in range(8)]
    assert set(points[0].groups_ms or {}) == set(GROUPS)
    return replace(
        small(),
        overview=overview(
            ended="2024-01-30 00:10:11", last_iteration=20000, iterations=20000, skipped_iterations=2, train_iters=20000, hostname="gpu-node-00",
            world_size=64, parallel={"TP": 4, "PP": 4, "DP": 4, "CP": 1, "EP": 1}, pipeline_schedule="1f1b", global_batch_size=1024,
            micro_batch_size=2, nodes=nodes,
        ),
        findings=_long_findings(),
        figures=figures(
            tflops_per_gpu=391.6, min_tflops_per_gpu=349.2, max_tflops_per_gpu=399.8, mfu=0.3958, hfu=0.4393, tokens_per_s=1_951_210.0,
            samples_per_s=476.4, iteration_ms=2149.0, p50_ms=2131.0, p95_ms=2390.0, max_ms=4290.0, first_iteration_ms=48_210.0,
            train_s=42_980.0, eval_s=210.0, checkpoint_s=764.0, samples=20_478_000, tokens=83_877_888_000, skipped_samples=2048,
            model_flops=1_077 * 10**18, hardware_flops=1_195 * 10**18,
        ),
        trend=Trend(points, 2000, slow, len(slow), 58.4),
        phases=_long_phases(),
        ranks=_long_ranks(),
        stragglers=[Straggler(9001, 16000, True, [21], "gpu-node-02", "NVIDIA H200", 1, "forward", 249.0, 2140.0, 1743.0, "peers", "clock capped by power")],
        memory=Memory(123.0, 132.0, 141.4, 0.870, 0.07, 0, None),
        hardware=Hardware(656.0, 29_100_000.0, 44_000.0, 46.2, 0.0216, 1606, 84, ["power", "temperature"], 0, 0, 5, 16, 0, 18),
        goodput=bar(
            49_211.0, startup_s=0.0061, productive_s=0.8732, evaluation_s=0.0043, checkpoint_s=0.0155, data_stall_s=0.089, lost_s=0.0001, idle_s=0.0118
        ),
        monitor=Monitor(0.00021, 0, 0, events, {"slow_interval": 1}),
    )  # fmt: skip
