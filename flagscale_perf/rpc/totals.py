"""Calls summed up in bounded memory, all together and by method."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from operator import add
from typing import Any, NamedTuple

from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import ALL_STAGES, Stage, stage_times
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S

MAX_METHODS = 64  # kept apart; the others are summed under one name
OTHER_METHODS = "(other methods)"


class StageSum(NamedTuple):
    """One stage of some calls.

    Attributes:
        stage: which.
        took_ns: in the calls that tell it; None where none does.
        share: of the time of all; None like `took_ns`. Those that are known add to 1.
        told: in how many calls it is told.
    """

    stage: Stage
    took_ns: int | None
    share: float | None
    told: int


class Totals:
    """Sums of calls.

    Attributes:
        calls: how many.
        failed: those whose status is not OK.
        total_ns: of all.
        stages_ns: the same by `ALL_STAGES`, each of the calls that tell it.
        told: how many these are.
        sent_bytes, received_bytes: of arrays.
        socket_bytes, shared_bytes: both ways.
    """

    def __init__(self) -> None:
        self.calls = self.failed = self.total_ns = 0
        self.stages_ns = [0] * len(ALL_STAGES)
        self.told = [0] * len(ALL_STAGES)
        self.sent_bytes = self.received_bytes = self.socket_bytes = self.shared_bytes = 0

    def add(self, call: CallRecord) -> None:
        """Adds a call."""
        self.calls += 1
        self.failed += call.status != Status.OK
        self.total_ns += call.total_ns
        for place, took_ns in enumerate(stage_times(call)):
            if took_ns is not None:
                self.stages_ns[place] += took_ns
                self.told[place] += 1
        self.sent_bytes += call.sent_bytes
        self.received_bytes += call.received_bytes
        self.socket_bytes += call.socket_sent_bytes + call.socket_received_bytes
        self.shared_bytes += call.shared_sent_bytes + call.shared_received_bytes

    def merge(self, other: Totals) -> None:
        """Adds the calls of other totals."""
        for name, more in vars(other).items():
            own = getattr(self, name)
            setattr(self, name, own + more if isinstance(own, int) else [*map(add, own, more)])

    def as_dict(self, stages: Mapping[str, Any]) -> dict[str, Any]:
        """JSON-ready; `stages`: what is said of the stages, in their place."""
        return {
            "calls": self.calls,
            "failed": self.failed,
            "total_ns": self.total_ns,
            **stages,
            **({"told_calls": told} if (told := self.partly_told()) else {}),
            "sent_bytes": self.sent_bytes,
            "received_bytes": self.received_bytes,
            "socket_bytes": self.socket_bytes,
            "shared_bytes": self.shared_bytes,
        }

    @property
    def moved_bytes(self) -> int:
        """Of arrays, both ways together."""
        return self.sent_bytes + self.received_bytes

    @property
    def bytes_per_s(self) -> float | None:
        """Moved in the calls' time; None where there is none."""
        return self.moved_bytes * NS_PER_S / self.total_ns if self.total_ns else None

    def stages(self) -> list[StageSum]:
        """Each of `ALL_STAGES`: the one place that tells 0 from unknown."""
        rows = zip(ALL_STAGES, self.stages_ns, tenths(self.stages_ns), self.told, strict=True)
        return [
            StageSum(stage, took_ns, share, told) if told else StageSum(stage, None, None, 0)
            for stage, took_ns, share, told in rows
        ]

    def partly_told(self) -> dict[str, int]:
        """In how many calls a stage is told, by its name, of those that some calls tell and others do not."""
        return {one.stage.name: one.told for one in self.stages() if 0 < one.told < self.calls}

    def partly_told_words(self) -> str | None:
        """The sentence about these; None where there are none."""
        told = ", ".join(f"{name} by {calls:,}" for name, calls in self.partly_told().items())
        return f"not told by all {self.calls:,} calls: {told}; sums and means are of these" if told else None

    def mean_ms(self, place: int) -> float | None:
        """Of this one of `ALL_STAGES`, over the calls that tell it; None where none does."""
        told = self.told[place]
        return self.stages_ns[place] / told / NS_PER_MS if told else None


class CallTotals:
    """Sums over all calls and over each method's.

    Attributes:
        overall: of all.
        methods: by their names, `MAX_METHODS` at most.
    """

    def __init__(self) -> None:
        self.overall = Totals()
        self.methods: dict[str, Totals] = {}

    def add(self, call: CallRecord) -> None:
        """Adds a call."""
        self.overall.add(call)
        self.of(call.method).add(call)

    def of(self, method: str) -> Totals:
        """The sums of this method."""
        found = self.methods.get(method)
        if found is None:
            name = method if len(self.methods) < MAX_METHODS else OTHER_METHODS
            found = self.methods.setdefault(name, Totals())
        return found


def tenths(parts: Sequence[float]) -> list[float]:
    """The parts as shares of their sum, rounded to tenths of a percent so that they add to 100.0 %: the
    largest remainders are rounded up. All 0 if the sum is.
    """
    whole = sum(parts)
    if whole <= 0:
        return [0.0] * len(parts)
    exact = [1000 * part / whole for part in parts]
    rounded = [math.floor(share) for share in exact]
    by_rest = sorted(range(len(parts)), key=lambda place: rounded[place] - exact[place])
    for place in by_rest[: 1000 - sum(rounded)]:
        rounded[place] += 1
    return [share / 1000 for share in rounded]
