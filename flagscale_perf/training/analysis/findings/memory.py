"""Memory of a device that is full, or fragmented."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Advice, Change, Finding, rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.advice import halve, provided, set_to, switch_on, written
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows, warns


def _more_tensor(case: TrainingCase) -> Change | None:
    """More tensor parallelism, for when activations are recomputed and the optimizer state is sharded."""
    now, heads = case.number("tensor_model_parallel_size"), case.number("num_attention_heads")
    if not now or heads is None or heads % (2 * now) or case.argument("recompute_granularity") is None:
        return None
    text = "divide the model over more devices; activations are recomputed already"
    return written(case, {"--tensor-model-parallel-size": int(2 * now)}, text)


@rule(
    limits={
        "memory_limit": Limit(
            0.95,
            "share",
            "ours: CUDA's context, NCCL's buffers and fragmentation need some GB of an 80 GB device",
        )
    },
    causes=["activations of a large micro-batch", "optimizer state that is not divided over the ranks"],
    changes=[
        provided(
            set_to(
                "--recompute-granularity",
                "selective",
                "attention's activations are made again instead of kept",
            ),
            lambda case: case.argument("recompute_granularity") is None,
        ),
        provided(
            switch_on(
                "--use-distributed-optimizer",
                text="divide the optimizer's state over the data-parallel ranks",
            ),
            lambda case: (case.number("data_parallel_size") or 1) > 1,
        ),
        halve("--micro-batch-size", "lower it"),
        provided(
            switch_on(
                "--sequence-parallel", text="with tensor parallelism: divide the remaining activations, too"
            ),
            lambda case: (case.number("tensor_model_parallel_size") or 1) > 1,
        ),
        Advice(["--tensor-model-parallel-size"], "divide the model over more devices", make=_more_tensor),
    ],
)
def memory_limit(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """The highest peak of all ranks near what the device has, or growing towards it before training ends."""
    memory = case.report.memory
    if not memory.device_gb:
        return None
    rank, peak_gb = _fullest(case)
    share, ends_early = peak_gb / memory.device_gb, _ends_early(case)
    if not this.exceeds(share, "memory_limit") and not ends_early:
        return None
    title = f"Memory of rank {rank}'s device is {percent(share)} full at peak"
    if ends_early:
        left = memory.out_of_memory_in_steps
        title += f" and grows: out of memory in {left} steps at the latest if it goes on like this"
    evidence = [this.broke("peak, of the device's memory", share, "memory_limit")]
    return replace(warns(this, title, evidence), ranks=[rank])


def _fullest(case: TrainingCase) -> tuple[int, float]:
    ranks, own_gb = case.report.ranks, case.report.memory.peak_gb or 0.0
    others = [] if ranks is None else zip(ranks.entries, ranks.peak_gb, strict=True)
    peaks = [(0, own_gb), *((entry.first_rank, gb) for entry, gb in others if gb is not None)]
    return max(peaks, key=lambda peak: peak[1])


def _ends_early(case: TrainingCase) -> bool:
    overview, left = case.report.overview, case.report.memory.out_of_memory_in_steps
    if left is None or overview.train_iters is None:
        return False
    return (overview.last_iteration or 0) + left < overview.train_iters


def _expandable_segments(case: TrainingCase) -> Change | None:
    name, value = "PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"
    in_force = (case.facts.environment or {}).get(name) or ""
    if value in str(in_force):
        return None
    joined = f"{in_force},{value}" if in_force else value
    return written(case, {name: joined}, "in the environment: segments that grow do not fragment")


@rule(
    needs_speed=True,
    explains={"jitter", "slowdown"},
    limits={
        "allocator_retries": Limit(
            0, "", "PyTorch's notes on CUDA memory: a retry frees the cache, which synchronises the device"
        )
    },
    causes=["fragmentation: lengths or batch sizes that vary", "memory at its limit"],
    changes=[
        Advice(["PYTORCH_CUDA_ALLOC_CONF"], "set it in the environment", make=_expandable_segments),
        provided(
            set_to(
                "--empty-unused-memory-level",
                0,
                "leave it at 0: freeing the cache in every step costs as much",
            ),
            lambda case: bool(case.argument("empty_unused_memory_level")),
        ),
        provided(
            set_to("--recompute-granularity", "selective", "if memory is at its limit as well"),
            lambda case: case.argument("recompute_granularity") is None,
        ),
    ],
)
def allocator_retries(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Times that the allocator freed its cache in the middle of training, after the first interval."""
    signals, trouble = case.signals, case.signals.retried
    if not this.exceeds(signals.retries, "allocator_retries"):
        return None
    title = f"The memory allocator of rank 0 ran out of room {signals.retries} times and freed its cache"
    evidence = [this.broke("retries after the first interval", signals.retries, "allocator_retries")]
    excess_ns = trouble.excess_ns(signals.usual_ns())
    share = case.share_of_steps(None if excess_ns is None else excess_ns / NS_PER_S)
    found = slows(this, case, title, share, evidence) if share else warns(this, title, evidence)
    return replace(found, first_iteration=trouble.first_iteration, iteration=trouble.iteration, ranks=[0])
