"""A host that gives its ranks too little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from flagscale_perf.analysis.rules import Change, Finding, rule
from flagscale_perf.spine.limits import Limit
from flagscale_perf.spine.units import percent
from flagscale_perf.training.analysis.findings.case import TrainingCase, TrainingRule, slows
from flagscale_perf.training.analysis.tables import RankEntry
from flagscale_perf.training.host import SHORT
from flagscale_perf.training.stretch import Stretch

_EXPLAINED = {"data_stall", "straggler", "exposed_comm", "jitter", "long_phase"}
_LIMITED = ["more threads, loader processes or ranks than the container's CPU limit has room for"]
_UNLIMIT = [
    Change([], "raise the container's CPU limit, or take it off: with one, a burst stops all of its threads"),
    Change(["--num-workers"], "or let less run at once: fewer loader processes, a lower OMP_NUM_THREADS"),
]
_ALONE = RankEntry(0, 0, None, None, None)


class _Shortage(NamedTuple):
    """A shortage on the ranks' hosts.

    Attributes:
        share: of the time, that the rank with the longest wait spends waiting.
        rank: that rank.
        ranks: all ranks that wait for longer than the limit; empty where all do.
    """

    share: float
    rank: RankEntry
    ranks: list[int]


@rule(
    needs_speed=True,
    explains=_EXPLAINED,
    limits={"host_short_of_cpu": SHORT},
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
    """The training thread of a rank is ready to run and has no CPU."""
    host = case.signals.host
    short = _shortage(this, case, host.run_delay_ns, lambda rank: rank.cpu_wait_share)
    if short is None:
        return None
    cores = short.rank.cores or (None if short.rank.first_rank else host.cores)
    first, last = short.rank.first_rank, short.rank.last_rank
    thread = "the training thread" if case.report.ranks is None else f"rank {first}'s training thread"
    if first != last:
        thread = f"the training thread of one of ranks {first} to {last}"
    title = (
        f"{_host_of(case, short.rank)} is short of CPU: {thread} waits {percent(short.share)}"
        f" of the time for one{'' if cores is None else f' of its {cores} cores'}"
    )
    figure = "ready to run without a CPU, of the time"
    # It stops a thread for the rest of a period at most: what it cannot have cost, others on the host have.
    if (throttled := _throttled(host)) >= short.share / 2 and this.exceeds(throttled, this.name):
        title = (
            f"The container's CPU limit of {(host.cpu_limit_milli or 0) / 1000:.1f} CPUs throttled it in "
            f"{percent(throttled)} of its periods: {thread} waits {percent(short.share)} of the time"
        )
        return replace(_finding(this, case, short, title, figure), causes=_LIMITED, changes=_UNLIMIT)
    return _finding(this, case, short, title, figure)


def _throttled(host: Stretch) -> float:
    """Share of the limit's periods in which the container was throttled; 0 without a limit."""
    return host.cpu_throttled_periods / host.cpu_periods if host.cpu_limit_milli and host.cpu_periods else 0.0


@rule(
    needs_speed=True,
    explains=_EXPLAINED,
    limits={
        "host_short_of_memory": Limit(0.05, "share", "ours: a machine with free memory never waits for it")
    },
    causes=["data and loader processes that fill the memory", "other processes on the machine"],
    changes=[Change(["--num-workers"], "lower it, or what each worker keeps: the machine swaps or reclaims")],
)
def host_short_of_memory(this: TrainingRule, case: TrainingCase) -> Finding | None:
    """Something on the machine of a rank waits for memory."""
    own_ns = case.signals.host.memory_stall_ns
    short = _shortage(this, case, own_ns, lambda rank: rank.memory_wait_share)
    if short is None:
        return None
    who = _host_of(case, short.rank)
    title = f"{who} is short of memory: something on it waits for memory {percent(short.share)} of the time"
    return _finding(this, case, short, title, "waiting for memory, of the time")


def _shortage(
    this: TrainingRule, case: TrainingCase, own_ns: int, share_of: Callable[[RankEntry], float | None]
) -> _Shortage | None:
    """None below the limit. `own_ns`: rank 0's, which is known step by step."""
    host, entries = case.signals.host, case.entries or [_ALONE]
    shares = [share_of(entry) or 0.0 for entry in entries]
    if host.host_ns and entries[0].first_rank == entries[0].last_rank:
        shares[0] = host.waiting(own_ns)
    worst = max(range(len(shares)), key=shares.__getitem__)
    if not this.exceeds(shares[worst], this.name):
        return None
    beyond = [entry for entry, share in zip(entries, shares, strict=True) if this.exceeds(share, this.name)]
    named = [] if len(beyond) == len(entries) else [rank for entry in beyond for rank in entry.ranks]
    return _Shortage(min(1.0, shares[worst]), entries[worst], named)


def _host_of(case: TrainingCase, rank: RankEntry) -> str:
    return "The host" if rank.hostname is None or case.is_on_one_host() else f"The host {rank.hostname}"


def _finding(this: TrainingRule, case: TrainingCase, short: _Shortage, title: str, figure: str) -> Finding:
    found = slows(this, case, title, short.share, [this.broke(figure, short.share, this.name)])
    return replace(found, pattern="constant", ranks=short.ranks)
