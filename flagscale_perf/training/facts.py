"""The facts of a run file's header: what a training's host knows when the run starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flagscale_perf.spine.facts import facts_of

# The summary is written every few seconds.
ONLY_IN_RUN_FILE = frozenset({"arguments", "environment", "work_flops"})


@dataclass(frozen=True)
class RunFacts:
    """What the host knows about the run when training starts; unknown values are None.

    Attributes:
        package_version: of flagscale_perf.
        host: e.g. "FlagScale 0.8.0".
        script: the training script's file name.
        hostname, pid, world_size, restart_count: of rank 0's process.
        tensor_parallel, pipeline_parallel, data_parallel, context_parallel, expert_parallel: sizes.
        pipeline_schedule: "1f1b", "interleaved" or "dualpipev"; None without pipeline parallelism.
        device: e.g. "NVIDIA H200", or "CPU (rehearsal)".
        rehearsal: True when torch.cuda calls land on the CPU.
        dtype: "bf16", "fp16" or "fp32".
        peak_flop_per_s: dense peak of one device for dtype, the mean over all ranks where their devices
            differ; None if not known, and then there is no MFU and no HFU.
        peak_source: where the peak is from, or why there is none and how to set it.
        flops_convention: "causal_half".
        model_family: e.g. "llama".
        model: the shape the FLOPs are computed from.
        seq_length, micro_batch_size, global_batch_size, train_iters: of the host.
        resume_iteration: the iteration training continues after; 0 for a fresh start.
        tensorboard_dir: the host's, absolute; None if it writes none.
        missing: hooks or values that are not available, one phrase each.
        process_start_ns: monotonic mark of the start of rank 0's process; None if unknown.
        device_uuid: of rank 0's device, as in "GPU-<uuid>" without the prefix; None without a device.
        device_memory_bytes: all the memory of that device; None without a device.
        arguments: the host's own, as they are when training starts, see `training.host_arguments`; of
            Megatron-Bridge its configuration's, each behind its section, as in `dataset.num_workers`; None
            for a host without either, and in files of earlier versions.
        environment: variables of rank 0's process that change how fast a training is; None like arguments.
        flop_per_clock: dense FLOP of all tensor cores of a device in one clock of its SMs, for dtype; None if
            that is not known, where devices differ, where some products are in fp8 or fp4, and in files of
            earlier versions.
        host_monitor: "replace" or "keep", what --perf-host-monitor made of the host's own monitor; None for a
            host without one.
        work_flops: for one unit of each kind of a rank's work, see `flops_calculator.work_flops`; None where
            the model's FLOPs are not known, and in files of earlier versions.
    """

    package_version: str
    host: str
    script: str
    hostname: str
    pid: int
    world_size: int
    restart_count: int
    tensor_parallel: int | None
    pipeline_parallel: int | None
    data_parallel: int | None
    context_parallel: int | None
    expert_parallel: int | None
    pipeline_schedule: str | None
    device: str
    rehearsal: bool
    dtype: str | None
    peak_flop_per_s: float | None
    peak_source: str
    flops_convention: str
    model_family: str | None
    model: dict[str, Any] | None
    seq_length: int | None
    micro_batch_size: int | None
    global_batch_size: int | None
    train_iters: int | None
    resume_iteration: int
    tensorboard_dir: str | None
    missing: list[str]
    process_start_ns: int | None = None
    device_uuid: str | None = None
    device_memory_bytes: int | None = None
    arguments: dict[str, Any] | None = None
    environment: dict[str, Any] | None = None
    host_monitor: str | None = None
    flop_per_clock: int | None = None
    work_flops: dict[str, Any] | None = None

    @property
    def is_on_cpu(self) -> bool:
        """Whether the run's devices are CPUs."""
        return self.rehearsal or self.device.startswith("CPU")

    @classmethod
    def of(cls, facts: Mapping[str, Any]) -> RunFacts:
        """Reads a run header's facts, whatever version or program wrote them.

        A value that is missing or of another type is None or, where the field has no None, empty: "", 0, [].
        """
        return facts_of(cls, facts)
