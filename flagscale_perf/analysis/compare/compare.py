"""Two configurations side by side: is one slower than the other, by how much, in which phase, and is that
more than noise?

The method is in docs/reading.md. Frozen data, JSON-ready by `as_dict`; None means "not known". Shares are
parts of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flagscale_perf.analysis.blocks import Section
from flagscale_perf.analysis.compare import bootstrap
from flagscale_perf.analysis.compare.judge import FASTER, SLOWER, UNDECIDED, Needed, Row, distance
from flagscale_perf.analysis.shift import Shift
from flagscale_perf.spine.jsonl import finite

COMPARISON_VERSION = 6
DEFAULT_WARMUP = 10
NOISE = 0.04  # between two sessions on a machine that others use, too; --noise says another
BASE, NEW = "BASE", "NEW"
LARGE = 0.1  # of a change; smaller parts of it are not named
NOT_SLOWER = "not slower"  # beside SLOWER and UNDECIDED what a gate can say
MEDIAN, MEAN = "median", "mean"
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {MEDIAN: bootstrap.median, MEAN: bootstrap.mean}


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        warmup: iterations after a run's start that are left out.
        noise: standard deviation to assume between the medians of two runs of one configuration, as a share;
            None for what is usual.
        fail_if_slower: how much slower NEW may be, as a share; None for no limit.
        judge: what is judged of the times of a run's iterations, a name of `STATISTICS`.
    """

    warmup: int = DEFAULT_WARMUP
    noise: float | None = None
    fail_if_slower: float | None = None
    judge: str = MEDIAN


@dataclass(frozen=True)
class Difference:
    """A fact or an option in which the sides differ; `base` and `new` are JSON values."""

    name: str
    base: Any
    new: Any


@dataclass(frozen=True)
class RunEntry:
    """One run: its file, what is judged of it in `Comparison.unit`, how many iterations are left out by the
    reason, lines that are no records, and where it changed within itself.
    """

    path: str
    session_id: str
    judged: float
    left_out: dict[str, int]
    skipped_lines: int
    shift: Shift | None = None


@dataclass(frozen=True)
class Figure:
    """A figure of each side, over the iterations compared of all its runs together; `change` as a part of
    `base`.

    "mean" and "p95" (of an iteration) are in `Comparison.unit`; "memory_peak_gb" is of the whole runs.
    """

    name: str
    base: float | None
    new: float | None
    change: float | None


@dataclass(frozen=True)
class Gate:
    """The answer to `--fail-if-slower`.

    Attributes:
        limit: what NEW may be slower, a share.
        outcome: `SLOWER`: by more than noise, and by more than the limit. `NOT_SLOWER`: the whole interval of
            the change lies below the limit. Else, and where a run is compared with itself, `UNDECIDED`.
        needed: what would decide it; None where it is decided or nothing could.
    """

    limit: float
    outcome: str
    needed: Needed | None = None


@dataclass(frozen=True)
class Disturbance:
    """Something from outside that made a run of a side (`BASE`, `NEW`) slower: `words` is a sentence."""

    side: str
    words: str


@dataclass(frozen=True)
class Stretch:
    """Iterations between two changes of a run within itself, judged apart; the intervals of all stretches
    together hold with 95 %.

    Attributes:
        first, last: of BASE's first run.
        whole, culprits: as in `Comparison`.
    """

    first: int
    last: int
    whole: Row
    culprits: list[str]


@dataclass(frozen=True)
class Comparison:
    """Everything.

    Attributes:
        judged: a name of `STATISTICS`.
        basis, unit: what the times are divided by, and what they are in then.
        iterations: of each run compared.
        first_iteration, last_iteration: of BASE's first run.
        is_by_iteration: iterations with the same number are compared; else the last ones of each run.
        base_runs, new_runs: at least one each.
        figures: those of `Figure`, always all of them.
        whole: the iteration; at 95 %.
        mean: the same by its mean, which rates follow.
        phases: at 95 % for all of them together; none if not every run measured them.
        culprits: phases that are slower, or faster, as the whole is; what changed most comes first.
        large_parts: those of a tenth of the change or more that are within the noise.
        noise, noise_source: standard deviation between what is judged of two runs of one configuration, a
            share, and where it is from.
        block_length: iterations of a block of the bootstrap.
        is_apart: every iteration of NEW is on the same side of every one of BASE.
        needed: what would decide whether NEW is slower or faster; None where it is decided.
        differences: facts and options in which the sides differ.
        same_run: the session of a run that is on both sides; None where there is none.
        gate: None where no limit was asked for.
        remarks: what the instrument says of the runs.
        charts: the runs drawn over each other; in no JSON.
        stretches: two or more where a run changed within itself and one of them differs; else none.
        disturbed: what made runs of a side slower from outside.
    """

    judged: str
    basis: str
    unit: str
    iterations: int
    first_iteration: int
    last_iteration: int
    is_by_iteration: bool
    base_runs: list[RunEntry]
    new_runs: list[RunEntry]
    figures: list[Figure]
    whole: Row
    mean: Row
    phases: list[Row]
    culprits: list[str]
    large_parts: list[Row]
    noise: float
    noise_source: str
    block_length: int
    is_apart: bool
    needed: Needed | None
    differences: list[Difference]
    same_run: str | None
    gate: Gate | None
    remarks: Sequence[str] = ()
    charts: Sequence[Section] = ()
    stretches: Sequence[Stretch] = ()
    disturbed: Sequence[Disturbance] = ()

    @property
    def doubts(self) -> list[Disturbance]:
        """Disturbances that may be all there is to the verdicts."""
        verdicts = {one.whole.verdict for one in self.stretches} or {self.whole.verdict}
        gated = set() if self.gate is None else {self.gate.outcome}
        return [one for verdict in sorted(verdicts | gated) for one in doubts(verdict, self.disturbed)]

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON, `comparison_version` first."""
        content = asdict(replace(self, charts=()))
        del content["charts"]
        return {"comparison_version": COMPARISON_VERSION} | dict(finite(content))


def gate(whole: Row, limit: float, needed: Callable[[float], Needed]) -> Gate:
    """Whether NEW is slower than the limit allows. `needed` says what would make the interval so narrow that
    it reaches no farther than that from the change, see `judge.distance`.
    """
    share, high = whole.share or 0.0, whole.share_high
    if whole.verdict == SLOWER and share > limit:
        return Gate(limit, SLOWER)
    if high is not None and high < limit:
        return Gate(limit, NOT_SLOWER)
    return Gate(limit, UNDECIDED, needed(distance(share) if share > limit else distance(share, limit)))


def gate_of_stretches(stretches: Sequence[Stretch], limit: float) -> Gate:
    """`SLOWER` where NEW is in any stretch, `NOT_SLOWER` where it is in none."""
    outcomes = {gate(one.whole, limit, lambda _: Needed(None, None)).outcome for one in stretches}
    if SLOWER in outcomes:
        return Gate(limit, SLOWER)
    return Gate(limit, NOT_SLOWER if outcomes == {NOT_SLOWER} else UNDECIDED)


def doubts(verdict: str, disturbed: Sequence[Disturbance]) -> list[Disturbance]:
    """Those that can make this verdict by themselves: a disturbed NEW is slower, beside a disturbed BASE it
    is faster, or not slower.
    """
    side = {SLOWER: NEW, FASTER: BASE, NOT_SLOWER: BASE}.get(verdict)
    return [one for one in disturbed if one.side == side]


def culprits(whole: Row, parts: Sequence[Row]) -> list[str]:
    """Parts that are slower where the whole is, or faster where it is; what changed most comes first."""
    if whole.verdict not in (SLOWER, FASTER):
        return []
    changed = [row for row in parts if row.verdict == whole.verdict]
    return [row.name for row in sorted(changed, key=lambda row: -abs(row.change or 0))]


def large_parts(whole: Row, parts: Sequence[Row]) -> list[Row]:
    """Undecided parts of at least a tenth of a decided whole's change, the largest first."""
    if not whole.change or whole.verdict not in (SLOWER, FASTER):
        return []
    large = [row for row in parts if row.verdict == UNDECIDED and (row.change or 0.0) / whole.change >= LARGE]
    return sorted(large, key=lambda row: -abs(row.change or 0.0))


def relative(base: float | None, new: float | None) -> float | None:
    """The change as a part of `base`."""
    return None if new is None or not base else new / base - 1
