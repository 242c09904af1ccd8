"""The limits that findings are judged by, as data: each with its unit and where it is from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Threshold:
    """A limit. `unit` as in `Evidence`; `source` is a publication, or says by which reasoning we chose it."""

    value: float
    unit: str
    source: str


THRESHOLDS: dict[str, Threshold] = {
    "min_steps": Threshold(20, "", "ours: fewer steps than this are noise"),
    "data_stall": Threshold(
        0.02, "share", "ours: a loader with prefetch hands over a batch in 1 % of a step or less"
    ),
    "straggler": Threshold(0.01, "share", "ours: what one rank costs all others is worth a look from 1 % on"),
    "slow_stage": Threshold(
        0.05, "share", "ours: whole layers cannot be divided more evenly than that in most models"
    ),
    "pipeline_bubble": Threshold(
        0.10,
        "share",
        "ours: half of (p-1)/(m+p-1) at m = 4 p, which Huang et al. (GPipe, 2019) call negligible",
    ),
    "exposed_comm": Threshold(
        0.05,
        "share",
        "ours: with overlap only the last bucket of gradients and the first of parameters is waited for",
    ),
    "throttling": Threshold(0.01, "share", "ours: time lost to a lower clock is worth a look from 1 % on"),
    "throttling_clock": Threshold(
        0.97, "share", "ours: of the highest clock of the run; one or two clock steps below it are normal"
    ),
    "memory_limit": Threshold(
        0.95,
        "share",
        "ours: CUDA's context, NCCL's buffers and fragmentation need some GB of an 80 GB device",
    ),
    "allocator_retries": Threshold(
        0, "", "PyTorch's notes on CUDA memory: a retry frees the cache, which synchronises the device"
    ),
    "checkpoint": Threshold(
        0.035, "share", "Mohan et al. (CheckFreq, FAST 2021): the overhead that their checkpoints keep to"
    ),
    "evaluation": Threshold(
        0.05, "share", "ours: one step of evaluation, a third of a train step, for every seven"
    ),
    "startup_s": Threshold(
        300, "s", "ours: imports, communicators, a checkpoint of some 100 GB and compilation take less"
    ),
    "startup": Threshold(0.05, "share", "ours: of the wall time so far"),
    "slow_step": Threshold(
        1.2, "times", "ours: the median of the 64 steps before; even steps stay within a tenth of it"
    ),
    "gc_pauses": Threshold(0.005, "share", "ours: regular pauses are worth a flag from half a percent on"),
    "gc_count": Threshold(5, "", "ours: fewer pauses than this have no period"),
    "gc_spread": Threshold(
        0.2,
        "share",
        "ours: half of the distances between the pauses differ no more than that from their median",
    ),
    "jitter": Threshold(
        1.2,
        "times",
        "ours: p95 of steps, each against the median of the 64 before; even steps stay within a tenth of it",
    ),
    "jitter_cost": Threshold(0.01, "share", "ours: slow steps are worth a look from 1 % on"),
    "micro_batch_tokens": Threshold(
        2048, "", "ours: rows of a GEMM below which large devices wait for memory and for launches"
    ),
    "micro_batch_mfu": Threshold(
        0.30, "share", "Megatron-LM's README reports 41 % to 48 % on H100 from 2 to 462 billion parameters"
    ),
    "spare_memory": Threshold(
        0.6, "share", "ours: of the device at peak; what recomputation or a small batch saves has to fit in"
    ),
    "full_recompute": Threshold(
        1.2,
        "times",
        "Korthikanti et al. (2022): full recomputation does one more forward pass, a third more FLOPs",
    ),
    "mfu_suspect": Threshold(
        0.75, "share", "ours: no training run on current devices has been published above 70 %"
    ),
    "lost": Threshold(0.01, "share", "ours: one iteration in a hundred that trains nothing"),
    "idle": Threshold(0.05, "share", "ours: time in no iteration and no known pause"),
    "idle_s": Threshold(60, "s", "ours: the way to the end of a process takes less"),
}
