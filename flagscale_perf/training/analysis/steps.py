"""The steps of a run that can be compared with another run's: read in bounded memory, the others counted by
why not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import read_records
from flagscale_perf.store.decoder import decode
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PhaseJoin
from flagscale_perf.training.records import Outcome, PhaseRecord, StepRecord
from flagscale_perf.training.sample import Sample
from flagscale_perf.training.sample import Step as Step
from flagscale_perf.training.settled import Settling

MAX_STEPS = 2048
TAIL_BYTES = 1 << 18
STRETCH = 32
MIN_STEPS = 16
PAUSE_SHARE = 0.01  # of the iteration, from which on an evaluation or a checkpoint counts as one

WARMUP = "warm-up"
SLOW_START = "slow start"
UNTRAINED = "trained nothing"
TIMELESS = "without a time"
PAUSE = "evaluation or checkpoint there or just before"
THINNED = "thinned out of a long run"
UNPAIRED = "not in every run"
OTHER_BATCH = "another batch size than the other run's"


@dataclass(frozen=True)
class RunSteps:
    """One run.

    Attributes:
        session: the run.
        steps: those to compare, by iteration.
        left_out: how many are not, by the reason.
        memory_peak_bytes: highest of the whole run; None without a device.
        skipped_lines: lines of the file that are no records.
    """

    session: Session
    steps: dict[int, Step]
    left_out: dict[str, int]
    memory_peak_bytes: int | None
    skipped_lines: int

    @cached_property
    def facts(self) -> RunFacts:
        """What ran, by the header."""
        return RunFacts.of(self.session.header.facts)


def common_span(sessions: Sequence[Session]) -> range | None:
    """Iterations that lie between the first and the last one of every run; None where the runs have fewer
    than `MIN_STEPS` in common.

    So that a long run is thinned only where it is compared. Raises PerfError for what is no run file.
    """
    spans = [*map(_span, sessions)]
    common = range(max(span.start for span in spans), min(span.stop for span in spans))
    return common if len(common) >= MIN_STEPS else None


def _span(session: Session) -> range:
    """From the first step to the last one, which is looked for in the end of the file."""
    first = next((record.iteration for record in session if isinstance(record, StepRecord)), 0)
    last, path = first, session.files[-1].path
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL_BYTES))
        file.readline()  # the rest of a line
        for record in read_records(file, decode):
            last = record.iteration if isinstance(record, StepRecord) else last
    return range(first, max(first, last) + 1)


def read_steps(session: Session, warmup: int, span: range | None) -> RunSteps:
    """The run's steps in the span that are settled, without the first `warmup` iterations in any case.

    Raises PerfError where fewer than `MIN_STEPS` are left.
    """
    phases, choice = PhaseJoin(RunFacts.of(session.header.facts)), _Choice(warmup, span)
    sample: Sample[Step] = Sample(MAX_STEPS, STRETCH)
    settling = Settling()
    for record in session.chunks(into=[choice, phases, sample, settling]):
        if isinstance(record, PhaseRecord):
            phases.hold(record)
        elif isinstance(record, StepRecord):
            settling.add(record)
            joined = phases.take(record)
            if choice.takes(record):
                sample.add(Step.of(record, None if joined is None else joined.record))
    left_out = choice.left_out
    if sample.thinned:
        left_out[THINNED] = sample.thinned
    if unsettled := sample.drop_before(settling.result().settled_iteration or 0):
        left_out[SLOW_START] = unsettled
    if len(sample.steps) < MIN_STEPS:
        found = f"{str(session.path)!r} has {len(sample.steps)} iterations to compare{_listed(left_out)}"
        raise PerfError(f"{found}; {MIN_STEPS} are needed: train longer or lower --warmup")
    peak, skipped = choice.memory_peak_bytes, session.reading.skipped
    return RunSteps(session, sample.steps, dict(left_out), peak, skipped)


class _Choice:
    def __init__(self, warmup: int, span: range | None) -> None:
        self.left_out: Counter[str] = Counter()
        self.memory_peak_bytes: int | None = None
        self._warmup, self._span = warmup, span
        self._begin: int | None = None
        self._was_paused = False

    def takes(self, step: StepRecord) -> bool:
        if step.memory_peak_bytes is not None:
            self.memory_peak_bytes = max(self.memory_peak_bytes or 0, step.memory_peak_bytes)
        reason = self._why_not(step)
        self._was_paused = _is_paused(step)
        if reason is not None:
            self.left_out[reason] += step.iterations
        return reason is None

    def _why_not(self, step: StepRecord) -> str | None:
        if self._begin is None:
            self._begin = step.iteration + self._warmup
        if step.outcome != Outcome.TRAINED:
            return UNTRAINED
        if step.iteration_ns <= 0:
            return TIMELESS
        if step.warmup or step.iteration < self._begin:
            return WARMUP
        if self._was_paused or _is_paused(step):
            return PAUSE
        return None if self._span is None or step.iteration in self._span else UNPAIRED


def _is_paused(step: StepRecord) -> bool:
    """A host that only asks itself whether to save takes some microseconds."""
    return step.eval_ns + step.checkpoint_ns > PAUSE_SHARE * step.iteration_ns


def _listed(left_out: Counter[str]) -> str:
    return (
        f" (left out: {', '.join(f'{count} {reason}' for reason, count in left_out.items())})"
        if left_out
        else ""
    )


@dataclass(frozen=True)
class Aligned:
    """The same iterations of every run, row by row.

    Attributes:
        rows: a list of steps for each run, all of one length.
        is_by_iteration: step i of each run has the same number; else it is the i-th from the end.
        has_one_batch_size: step i of each run trained the same number of samples.
        left_out: of each run, by the reason.
    """

    rows: list[list[Step]]
    is_by_iteration: bool
    has_one_batch_size: bool
    left_out: list[dict[str, int]]


def align(runs: Sequence[RunSteps]) -> Aligned:
    """Puts the runs' steps side by side: those with the same number and batch size, else the last ones of
    each.
    """
    common = sorted(set.intersection(*(set(run.steps) for run in runs)))
    if len(common) < MIN_STEPS:
        return _last_of_each(runs)
    same = [number for number in common if len({run.steps[number].samples for run in runs}) == 1]
    is_one_size = len(same) >= MIN_STEPS
    rows = _rows(runs, [same if is_one_size else common] * len(runs))
    other_batch = len(common) - len(rows[0])
    return Aligned(rows, True, is_one_size, [_counted(run, len(rows[0]), other_batch) for run in runs])


def _last_of_each(runs: Sequence[RunSteps]) -> Aligned:
    count = min(len(run.steps) for run in runs)
    rows = _rows(runs, [sorted(run.steps)[-count:] for run in runs])
    is_one_size = len({step.samples for row in rows for step in row}) == 1
    return Aligned(rows, False, is_one_size, [_counted(run, count, 0) for run in runs])


def _rows(runs: Sequence[RunSteps], numbers: Sequence[Sequence[int]]) -> list[list[Step]]:
    return [[run.steps[number] for number in chosen] for run, chosen in zip(runs, numbers, strict=True)]


def _counted(run: RunSteps, used: int, other_batch: int) -> dict[str, int]:
    counts = Counter(run.left_out)
    counts.update({UNPAIRED: len(run.steps) - used - other_batch, OTHER_BATCH: other_batch})
    return {reason: count for reason, count in counts.items() if count}
