"""Records of the other ranks: frozen, raw integers, units in the names; `None` means "not known", as in
`training.records`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flagscale_perf.spine.records import record
from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.work import UNKNOWN, WORK

MAX_ENTRIES, MAX_RANKS_PER_ENTRY = 256, 4096
PHASE_BASE = 32  # above the number of phases

StragglerIdentity = tuple[int, str, tuple[int, ...]]


@record("node")
@dataclass(frozen=True)
class NodeRecord:
    """The ranks of one node, written when rank 0 finds them; a later record of the same rank replaces it.

    Attributes:
        hostname: of the node.
        ranks: global numbers, ascending; the lists below go with them.
        pids: of their processes.
        devices: names.
        stages: place in the pipeline, from 0.
    """

    hostname: str
    ranks: list[int]
    pids: list[int]
    devices: list[str]
    stages: list[int]


@record("ranks")
@dataclass(frozen=True)
class RanksRecord:
    """Every rank over one stretch of iterations, side by side. Bounded: of many ranks, several share an
    entry.

    Entry i stands for the ranks from `i * ranks_per_entry`. Of ranks that share one, it has the one that
    works longest (for the memory: the one with the highest peak). Times are medians per step; None for a rank
    from which nothing came in this stretch, and for what is not known without phases.

    Attributes:
        first_iteration, iteration: first and last iteration of the stretch.
        ranks_per_entry: 1 unless the job has more than 256 ranks.
        iteration_ns: as in the step's record.
        work_ns: computing, loading data, the optimizer and what no phase names: everything but waiting for
            other ranks.
        wait_ns: waiting for other ranks: pipeline and exposed communication.
        data_ns: loading data, contained in work_ns.
        memory_peak_bytes: highest peak known so far in the stretch.
        silent: ranks from which nothing came though it did from others; at most the first 64. In a run's last
            stretch only those that were silent before, never heard, or late by 5 s or more.
        silent_count: how many there are.
        host: by the fields of `host.HostStretch`, a value for each entry: of ranks that share one, those of
            the rank that waits for a CPU for the largest part of its time. None where nothing was read, as in
            files of earlier versions.
    """

    first_iteration: int
    iteration: int
    ranks_per_entry: int
    iteration_ns: list[int | None]
    work_ns: list[int | None]
    wait_ns: list[int | None]
    data_ns: list[int | None]
    memory_peak_bytes: list[int | None]
    silent: list[int]
    silent_count: int
    host: dict[str, list[int | None]] | None = None

    def __post_init__(self) -> None:
        times = (self.iteration_ns, self.work_ns, self.wait_ns, self.data_ns)
        columns = (*times, self.memory_peak_bytes, *(self.host or {}).values())
        if len({len(column) for column in columns}) > 1:
            raise ValueError(
                f"the ranks' lists differ in length: {sorted({len(column) for column in columns})}"
            )
        if len(self.work_ns) > MAX_ENTRIES or not 1 <= self.ranks_per_entry <= MAX_RANKS_PER_ENTRY:
            raise ValueError(f"{len(self.work_ns)} entries of {self.ranks_per_entry} ranks each cannot be")

    def hosts(self) -> list[HostStretch]:
        """The readings of each entry's host."""
        known = {name: values for name, values in (self.host or {}).items() if name in HostStretch._fields}
        entries = range(len(self.work_ns))
        return [HostStretch(**{name: values[entry] for name, values in known.items()}) for entry in entries]


@record("cuts")
@dataclass(frozen=True)
class CutsRecord:
    """The ranks of one pipeline stage in a step, between the ends of their collectives. Bounded: of many
    ranks, those that come last at one of the cuts, and a usual one.

    A row is a unit: a rank, or the ranks that do every step together (tensor parallel), for which the first
    of them stands. The row without ranks has the median of all units in each column, and the least wait.
    docs/formulas.md, "The ledger", says what is made of it.

    Attributes:
        iteration: the step, which reaches from the last cut of the one before to its own last cut.
        stage: place in the pipeline, from 0.
        units: how many the stage has.
        waits: for each cut the phase of the wait in front of it, a place in `training.phases.PHASES`.
        columns: for each column PHASE_BASE * number of the cut + place of the phase.
        ranks: of all rows, one row after the other.
        sizes: for each row how many of them it has.
        own_ns: row by row, a value for each column.
        wait_ns: row by row, a value for each cut, the exchange itself included.
        work: row by row, a value for each kind of `training.work.WORK`, -1 where it is not known; of the row
            without ranks the medians. None where nothing is known, and in files of earlier versions.
    """

    iteration: int
    stage: int
    units: int
    waits: list[int]
    columns: list[int]
    ranks: list[int]
    sizes: list[int]
    own_ns: list[int]
    wait_ns: list[int]
    work: list[int] | None = None

    def __post_init__(self) -> None:
        rows, cuts = len(self.sizes), len(self.waits)
        lengths = (sum(self.sizes), rows * len(self.columns), rows * cuts)
        if (
            lengths != (len(self.ranks), len(self.own_ns), len(self.wait_ns))
            or min(self.sizes, default=0) < 0
        ):
            raise ValueError(f"{rows} rows of {cuts} cuts do not have these lists")
        if self.work is not None and (
            len(self.work) != rows * len(WORK) or min(self.work, default=0) < UNKNOWN
        ):
            raise ValueError(f"{rows} rows do not have this work")
        if any(not 0 <= column < cuts * PHASE_BASE for column in self.columns):
            raise ValueError("a column of no cut")

    def works(self) -> list[list[int]]:
        """The work of each row."""
        work, kinds = self.work or [UNKNOWN] * len(WORK) * len(self.sizes), len(WORK)
        return [work[row * kinds : (row + 1) * kinds] for row in range(len(self.sizes))]


@dataclass(frozen=True)
class SlowStretch:
    """A stretch of steps in which a rank made the others wait. The file, the summary and the report add how
    long, each in its unit.

    Attributes:
        first_iteration, iteration: of the slow stretch as far as it is known.
        is_over: it is not slow any more, or the run has ended.
        ranks: the slow rank; several where they work in lockstep (tensor parallel), as each of these takes as
            long as the slowest of them.
        hostname, device: of the first of them.
        stage: its place in the pipeline.
        phase: where the time goes, a name of `training.phases.PHASES`.
    """

    first_iteration: int
    iteration: int
    is_over: bool
    ranks: list[int]
    hostname: str
    device: str
    stage: int
    phase: str


@record("straggler")
@dataclass(frozen=True)
class StragglerRecord(SlowStretch):
    """A rank that makes the others wait; written when it is named, and again with the same first_iteration
    when the others wait twice as long as it says, and when it is over.

    Attributes:
        excess_ns: what it works longer per step than it should, the median.
        iteration_ns: the median iteration then.
        against: "peers" of the same pipeline stage, its own "past", or "stages": it belongs to a stage that
            has more to do than the others.
        cause: "work", "speed" or "both", as in `ledger.LateRow`; None where it is not known. In files of
            earlier versions, what is `observed` now.
        observed: what its device says, e.g. "clock capped by power"; None if nothing.
    """

    excess_ns: int
    iteration_ns: int
    against: str
    cause: str | None
    observed: str | None = None

    def __post_init__(self) -> None:
        if not self.ranks:
            raise ValueError("a straggler record without ranks")

    def stretch(self) -> dict[str, Any]:
        """The fields that the summary and the report have, too: all but the times."""
        return {name: value for name, value in vars(self).items() if not name.endswith("_ns")}

    @property
    def identity(self) -> StragglerIdentity:
        """The same for all records of one slow stretch, and for no other. What shows who is slow now goes by
        the ranks alone: a stretch whose end was lost with its writer is replaced by their next one.
        """
        return self.first_iteration, self.against, tuple(self.ranks)


@record("doing")
@dataclass(frozen=True)
class DoingRecord:
    """What a rank was doing when it was asked: in a hang, or by `flagscale-perf stacks`.

    Attributes:
        rank: who.
        hostname, pid: of its process.
        iteration: its last finished one; None where it did not say, like `where` and `for_ns`.
        where: "step", "between_steps", "eval", "checkpoint", or "start" before the first step.
        phase: of the step, as in `PhaseRecord`; None outside of one and without phases.
        for_ns: how long that has lasted; in a step, since the last of the host's timers began or ended.
        stack: Python's frames of the thread that trains, the innermost first, such as `train.py:12 step`.
        threads: the same of its other threads, by name.
        collectives: the last one of each process group, by torch's flight recorder: "group", "begun" (its
            number there, the same on all ranks), "is_over", "op", and "shapes" of its tensors.
        debug_port: on which torch.distributed.debug answers for this rank; None where it is not on.
        source: who has said it: "itself"; "py-spy" or "/proc" where the process did not answer; "" where it
            is on another node and nothing came.
        state: of the process as /proc has it, where it did not answer.
    """

    rank: int
    hostname: str
    pid: int
    iteration: int | None
    where: str | None
    phase: str | None
    for_ns: int | None
    stack: list[str]
    threads: dict[str, list[str]]
    collectives: list[dict[str, Any]]
    debug_port: int | None
    source: str
    state: str
