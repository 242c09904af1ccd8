"""Two configurations side by side: is one slower than the other, by how much, in which phase, and is that
more than noise?

The method is in docs/reading.md. Frozen data, JSON-ready by `as_dict`; None means "not known". Shares are
parts of 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flagscale_perf.analysis.blocks import Section
from flagscale_perf.analysis.compare.judge import CONFIDENCE, FASTER, SLOWER, UNDECIDED, Needed, Row
from flagscale_perf.spine.averages import mean, median
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.spine.shift import Shift

COMPARISON_VERSION = 6
DEFAULT_WARMUP = 10
NOISE = 0.04  # between two sessions on a machine that others use, too; --noise says another
BASE, NEW = "BASE", "NEW"
LARGE = 0.1  # of a change; smaller parts of it are not named
NOT_SLOWER = "not slower"  # beside SLOWER and UNDECIDED what a gate can say
MEDIAN, MEAN = "median", "mean"
STATISTICS: dict[str, Callable[[Sequence[float]], float]] = {MEDIAN: median, MEAN: mean}


@dataclass(frozen=True)
class CompareOptions:
    """Options of a comparison.

    Attributes:
        warmup: iterations after a run's start that are left out.
        noise: standard deviation to assume between the medians of two runs of one configuration, as a share;
            None for what is usual.
        fail_if_slower: how much slower NEW may be, as a share; None for no limit.
        judge: what is judged of the times of a run's iterations, a name of `STATISTICS`.
        tests: comparisons that are made with this one: the intervals of all of them hold together.
    """

    warmup: int = DEFAULT_WARMUP
    noise: float | None = None
    fail_if_slower: float | None = None
    judge: str = MEDIAN
    tests: int = 1

    @property
    def error(self) -> float:
        """How often the interval of this one may be wrong."""
        return (1 - CONFIDENCE) / self.tests


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
class Slowing:
    """Something from outside that made a run slower: a sentence with {} for the run's name, and the share of
    the run's time that it took at most.
    """

    words: str
    share: float


@dataclass(frozen=True)
class Disturbance:
    """A `Slowing` of a run of one side.

    Attributes:
        side: `BASE` or `NEW`.
        words: the sentence, with the run's name.
        share: of the side's time.
        is_doubt: with the side's others it may be all there is to the verdict, or to the gate's answer.
    """

    side: str
    words: str
    share: float
    is_doubt: bool = False


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
class Terms:
    """What an instrument compares, and the words for it.

    Attributes:
        noun: what a unit is called.
        most: units of a run that can be compared.
        labels: by figure, what it is called, and its decimals.
        remarks: sentences that stand in every text.
        words: what a part is called in a text, from its name.
        basis, unit: what the times are divided by, the noun if empty, and what they are in then.
        noise, assumed: standard deviation to assume between two runs of one configuration, as a share, and
            where it is from.
    """

    noun: str
    most: int
    labels: Mapping[str, tuple[str, int]]
    remarks: Sequence[str] = ()
    words: Callable[[str], str] = str
    basis: str = ""
    unit: str = "ms"
    noise: float = NOISE
    assumed: str = "assumed"

    @property
    def a_noun(self) -> str:
        """The noun with its article."""
        return f"{'an' if self.noun[0] in 'aeiou' else 'a'} {self.noun}"


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
        terms: in no JSON.
        remarks: what the instrument says of these runs.
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
    terms: Terms
    remarks: Sequence[str] = ()
    charts: Sequence[Section] = ()
    stretches: Sequence[Stretch] = ()
    disturbed: Sequence[Disturbance] = ()

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON, `comparison_version` first."""
        content = asdict(replace(self, charts=()))
        del content["charts"], content["terms"]
        return {"comparison_version": COMPARISON_VERSION} | dict(finite(content))


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
