"""The tables of a training's report, as data."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.training.ledger.entries import UnitTimes
from flagscale_perf.training.ledger.ledger import UNEVEN, Ledger, Row
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import SlowStretch


@dataclass(frozen=True)
class Phase:
    """A row of the table. `share` is of the iterations' time, `step_ms` of a mean step; None for what the
    host did not name.

    Attributes:
        exchange_ms, late_ms, in_turns_ms, residual_ms: of a wait that a ledger takes apart, what it is made
            of: see `training.ledger.ledger.Wait`.
    """

    name: str
    total_s: float | None
    share: float | None
    step_ms: float | None
    exchange_ms: float | None = None
    late_ms: float | None = None
    in_turns_ms: float | None = None
    residual_ms: float | None = None

    @property
    def parts_ms(self) -> tuple[float | None, ...]:
        """The parts of a wait, in milliseconds."""
        return self.exchange_ms, self.late_ms, self.in_turns_ms, self.residual_ms


@dataclass(frozen=True)
class Phases:
    """Rank 0's iterations by phase, over the measured steps without the first. Where there is a ledger, this
    is what it has of rank 0, over its steps.

    Attributes:
        steps: how many; 0 without `--perf-breakdown`, and then there are no rows.
        rows: one a phase, in the order of `training.phases.PHASES`.
        bubble_s, bubble_share: waiting for other pipeline stages that the schedule makes inevitable.
        imbalance_s, imbalance_share: the rest of that waiting.
        bubble_share_of_pipeline: bubble of computing and waiting together.
    """

    steps: int
    rows: list[Phase]
    bubble_s: float | None
    bubble_share: float | None
    imbalance_s: float | None
    imbalance_share: float | None
    bubble_share_of_pipeline: float | None


@dataclass(frozen=True)
class RankEntry:
    """A column of the ranks' matrix: one rank, or several in a large job. Place and device as its node
    reports them; None if it did not.

    Attributes:
        cores: that the rank may run on; None where its host was not read, like what follows.
        cpu_wait_share: of the time, its training thread's waiting for a CPU.
        memory_wait_share: of the time, anything's on its machine waiting for memory.
    """

    first_rank: int
    last_rank: int
    hostname: str | None
    device: str | None
    stage: int | None
    cores: int | None = None
    cpu_wait_share: float | None = None
    memory_wait_share: float | None = None

    @property
    def ranks(self) -> range:
        """All that it stands for."""
        return range(self.first_rank, self.last_rank + 1)


@dataclass(frozen=True)
class Ranks:
    """Every rank side by side. A matrix has a list for each stretch, and in it a value for each entry; None
    where nothing is known.

    Attributes:
        stretches: first and last iteration of each; thinned like the trend, to at most some 200.
        iteration_ms, work_ms, wait_ms, data_ms, memory_peak_gb: as in `RanksRecord`.
        cpu_wait_share: as in `RankEntry`.
        median_iteration_ms, median_work_ms, median_wait_ms, median_data_ms: of each entry over these
            stretches.
        peak_gb: of each entry, the highest.
        silent, silent_count: of the last stretch, as in `RanksRecord`.
    """

    entries: list[RankEntry]
    stretches: list[list[int]]
    iteration_ms: list[list[float | None]]
    work_ms: list[list[float | None]]
    wait_ms: list[list[float | None]]
    data_ms: list[list[float | None]]
    memory_peak_gb: list[list[float | None]]
    cpu_wait_share: list[list[float | None]]
    median_iteration_ms: list[float | None]
    median_work_ms: list[float | None]
    median_wait_ms: list[float | None]
    median_data_ms: list[float | None]
    peak_gb: list[float | None]
    silent: list[int]
    silent_count: int


@dataclass(frozen=True)
class Straggler(SlowStretch):
    """A slow stretch of a rank, as in `StragglerRecord`. What it costs is in the ledger."""

    excess_ms: float
    iteration_ms: float
    against: str
    cause: str | None
    observed: str | None


@dataclass(frozen=True)
class PathRow:
    """Time on the critical path, of a rank or, where `rank` and `stage` are None, of messages or collectives.

    Attributes:
        phase: where it passes.
        cause: "usual work", no longer than the others of its stage take, "more work", "slower", "longer"
            (which of the two is not known), "waits" (for whom is not known) or "transfer".
        step_ms, share: in a mean step, and as a share of it.
        slope: how much longer a step is for each millisecond more of this rank in this phase.
    """

    rank: int | None
    stage: int | None
    phase: str
    cause: str
    step_ms: float
    share: float
    slope: float | None


@dataclass(frozen=True)
class CriticalPath:
    """The way that captured steps took through the ranks; the rows add up to `step_ms`, a mean step."""

    steps: int
    step_ms: float
    rows: list[PathRow]


@dataclass(frozen=True)
class CapturedRank:
    """A rank that works longer than its stage's median rank in captured steps.

    Attributes:
        part: of its work: a group of phases.
        steps: in how many it is among the longest; beyond_ms: by how much longer in these, the median.
    """

    rank: int
    hostname: str | None
    stage: int | None
    part: str
    steps: int
    beyond_ms: float


@dataclass(frozen=True)
class SlowLink:
    """Two ranks of neighbouring stages whose messages take longer than those of other pairs.

    Attributes:
        round_ms: the fastest message there and the fastest one back, together.
        usual_ms: the median of all pairs, which are either of one machine or of two; pairs: how many.
    """

    ranks: list[int]
    hostnames: list[str | None]
    round_ms: float
    usual_ms: float
    pairs: int


@dataclass(frozen=True)
class CapturedRanks:
    """Every rank in the steps of the last capture.

    Attributes:
        steps: the iterations; step_ms: the median of their longest ranks.
        rows: first and last rank of each.
        beyond_ms: by part of the work, row and step: by how much the worst rank of the row works longer than
            its stage's median; None where there is nothing to compare it with.
        slow, links: the worst first.
        clocks: a line about the clock of each other machine, of few.
        not_replayed: why steps of a pipeline cannot be replayed; "" where they are.
    """

    steps: list[int]
    step_ms: float
    rows: list[list[int]]
    beyond_ms: dict[str, list[list[float | None]]]
    slow: list[CapturedRank]
    links: list[SlowLink]
    clocks: list[str] = field(default_factory=list)
    not_replayed: str = ""


@dataclass(frozen=True)
class Memory:
    """Memory of rank 0's device. `peak_share`: of its memory. `alloc_retries`: since the process began."""

    peak_gb: float | None
    reserved_peak_gb: float | None
    device_gb: float | None
    peak_share: float | None
    fragmentation: float | None
    alloc_retries: int | None
    out_of_memory_in_steps: int | None


@dataclass(frozen=True)
class GoodputPart:
    """A class of time: `name` as a key, `label` for people; None where it is part of another one."""

    name: str
    label: str
    dur_s: float | None
    share: float | None


@dataclass(frozen=True)
class GoodputBar:
    """The whole run as a bar: the known parts add up to `wall_s`. `ettr` is the productive share."""

    wall_s: float
    parts: list[GoodputPart]
    ettr: float | None


@dataclass(frozen=True)
class Happening:
    """An event of the run file; `at` as in `Overview.started`."""

    name: str
    iteration: int
    at: str
    text: str


@dataclass(frozen=True)
class Monitor:
    """What the monitor says about itself.

    Attributes:
        self_cost_share: of the training thread's time.
        dropped_records: lost because the disk did not keep up.
        failure_count: events "failure".
        events: the first 50 of each name, in the order of the file.
        event_counts: how many there are by name; those of a name beyond the first 50 names are "other".
    """

    self_cost_share: float | None
    dropped_records: int
    failure_count: int
    events: list[Happening]
    event_counts: dict[str, int]


def phases_of(ledger: Ledger, unit: UnitTimes) -> list[Phase]:
    """A mean step of this unit by phase."""
    whole_ns = sum(unit.own_ns.values()) + sum(map(sum, unit.waits.values()))
    rows = []
    for name in PHASES:
        wait = unit.waits.get(name)
        ns = unit.own_ns.get(name, 0) + (0 if wait is None else sum(wait))
        parts_ms = () if wait is None else map(ledger.step_ms, wait)
        rows.append(Phase(name, ns / NS_PER_S, ns / max(1, whole_ns), ledger.step_ms(ns), *parts_ms))
    return rows


def in_json(ledger: Ledger) -> dict[str, Any]:
    """A ledger as JSON has it: sums in nanoseconds, and what a mean step has of them in milliseconds."""
    names = ("stage", "units", "steps", "left_out", "first_iteration", "iteration", "total_ns")
    return {name: getattr(ledger, name) for name in names} | {
        "step_ms": ledger.step_ms(ledger.total_ns),
        "rows": [_row(ledger, row) for row in ledger.rows],
        "slowest": [
            {
                name.replace("_ns", "_ms"): value / NS_PER_MS if name.endswith("_ns") else value
                for name, value in vars(one).items()
            }
            for one in ledger.slowest
        ],
        "ranks": [
            {"ranks": unit.ranks, "rows": list(map(asdict, phases_of(ledger, unit)))} for unit in ledger.ranks
        ],
    }


def _row(ledger: Ledger, row: Row) -> dict[str, Any]:
    """`usual_ms` is how much longer a late step's phase takes; other times are of a mean step."""
    late = row.late
    within = late or (ledger.uneven if row.kind == UNEVEN and ledger.uneven.cost_ns else None)

    def ms(found: Any, *names: str) -> dict[str, Any]:
        parts_ns = {f"{name}_ms": getattr(found, f"{name}_ns", None) for name in names}
        return {key: None if ns is None else ledger.step_ms(ns) for key, ns in parts_ns.items()}

    def of(*names: str) -> dict[str, Any]:
        return {name: getattr(late, name, None) for name in names}

    return {
        "kind": row.kind,
        "phase": row.phase,
        "total_ns": row.total_ns,
        "step_ms": ledger.step_ms(row.total_ns),
        "share": ledger.share(row.total_ns),
        "ranks": late.ranks if late else (),
        **of("pattern", "distance"),
        "usual_ms": late and late.usual_ns / NS_PER_MS,
        **of("last_in"),
        **ms(late, "alone"),
        **ms(within, "least", "most"),
        **of("label", "cause", "work_ratio", "work_speed"),
        **ms(late, "more_work", "more_work_least", "more_work_most"),
    }
