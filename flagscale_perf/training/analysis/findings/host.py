"""A host that gives the training thread too little."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.analysis.rules import Change, Finding, Limit, rule
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows


@rule(
    needs_speed=True,
    explains={"data_stall", "straggler", "exposed_comm", "jitter", "long_phase"},
    limits={
        "host_short_of_cpu": Limit(
            0.05,
            "share",
            "ours: a thread with a core of its own waits less than 1 % of the time for it",
        ),
    },
    causes=[
        "other processes on the same cores",
        "more ranks, loader processes or threads than cores",
        "a container with too few cores",
    ],
    changes=[
        Change([], "look at what else runs on the host (top), and keep it off the cores of the training"),
        Change([], "give each rank cores of its own (taskset, numactl), or the container more of them"),
    ],
)
def host_short_of_cpu(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Rank 0's training thread is ready to run and has no CPU."""
    host = case.signals.host
    share = host.share(host.run_delay_ns)
    if not this.exceeds(share, "host_short_of_cpu"):
        return None
    cores = "" if host.cores is None else f" of its {host.cores} cores"
    title = f"The host is short of CPU: the training thread waits {percent(share)} of the time for one{cores}"
    evidence = [this.broke("ready to run without a CPU, of the time", share, "host_short_of_cpu")]
    return replace(slows(this, case, title, share, evidence), pattern="constant")


@rule(
    needs_speed=True,
    explains={"data_stall", "straggler", "exposed_comm", "jitter", "long_phase"},
    limits={
        "host_short_of_memory": Limit(0.05, "share", "ours: a machine with free memory never waits for it")
    },
    causes=["data and loader processes that fill the memory", "other processes on the machine"],
    changes=[Change(["--num-workers"], "lower it, or what each worker keeps: the machine swaps or reclaims")],
)
def host_short_of_memory(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Something on rank 0's machine waits for memory."""
    host = case.signals.host
    share = host.share(host.memory_stall_ns)
    if not this.exceeds(share, "host_short_of_memory"):
        return None
    title = f"The host is short of memory: something on it waits for memory {percent(share)} of the time"
    evidence = [this.broke("waiting for memory, of the time", share, "host_short_of_memory")]
    return replace(slows(this, case, title, share, evidence), pattern="constant")
