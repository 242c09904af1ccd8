"""A training's steps, phases, ranks and counters on a timeline."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any, NamedTuple

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Counter, Item, Name, Span, Timeline, Track
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.units import numbered
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES, PhaseJoin
from flagscale_perf.training.rank_records import RanksRecord, StragglerRecord
from flagscale_perf.training.rates import per_second, tflops_per_gpu
from flagscale_perf.training.records import (
    OUTCOMES,
    HardwareRecord,
    IntervalRecord,
    Outcome,
    PhaseRecord,
    StepRecord,
)
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import end_mono_ns

RANK_0, RANKS = 1, 2  # processes of the trace
STEPS, PHASES_OF_STEPS = 1, 2  # threads of rank 0
REMEMBERED = 4096  # steps whose times are kept for what comes later about them

Args = Mapping[str, int | None]

_STEPS, _PHASES = Track(RANK_0, STEPS), Track(RANK_0, PHASES_OF_STEPS)


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    tracks = _Tracks(session.header)
    own: dict[type, Callable[[Any], Iterable[Item]]] = {
        PhaseRecord: tracks.hold,
        StepRecord: tracks.step,
        IntervalRecord: tracks.interval,
        HardwareRecord: tracks.reading,
        RanksRecord: tracks.ranks,
        StragglerRecord: tracks.straggler,
    }
    names = [
        Name(Track(RANK_0, 0), f"rank 0 on {tracks.facts.hostname}", is_process=True),
        Name(_STEPS, "iterations"),
        Name(_PHASES, "phases, end to end"),
        Name(Track(RANKS, 0), "ranks: work and waiting per stretch, end to end", is_process=True),
    ]
    return Timeline(session.header, own, names, tracks.rest)


class _Stretch(NamedTuple):
    start_ns: int
    end_ns: int


class _Tracks:
    def __init__(self, header: RunHeader) -> None:
        self.facts = RunFacts.of(header.facts)
        self._scale = Scale.of(self.facts)
        self._phases = PhaseJoin(self.facts)
        self._recent: deque[tuple[int, _Stretch]] = deque(maxlen=REMEMBERED)
        self._named_ranks: set[int] = set()
        self._slow: dict[tuple[int, ...], StragglerRecord] = {}

    def hold(self, record: PhaseRecord) -> tuple[Item, ...]:
        self._phases.hold(record)
        return ()

    def rest(self) -> Iterator[Item]:
        for straggler in self._slow.values():
            yield from self._slow_stretch(straggler)

    def step(self, step: StepRecord) -> Iterator[Item]:
        whole = _Stretch(step.start_ns, end_mono_ns(step))
        self._recent.append((step.iteration, whole))
        args = {
            "outcome": OUTCOMES.get(step.outcome, str(step.outcome)),  # a damaged file may have any number
            "samples": step.samples,
            "tokens": step.tokens,
        }
        yield Span(_STEPS, f"iteration {step.iteration}", *whole, args)
        if step.outcome != Outcome.DATA_SKIPPED:
            yield Span(
                _STEPS, "train step", step.start_ns, min(step.start_ns + step.train_step_ns, whole.end_ns)
            )
        start_ns = step.start_ns + step.iteration_ns
        for name, dur_ns in (("evaluation", step.eval_ns), ("checkpoint", step.checkpoint_ns)):
            if dur_ns > 0:
                yield Span(_STEPS, name, start_ns, start_ns + dur_ns)
                start_ns += dur_ns
        phases = self._phases.take(step)
        if phases is not None:
            named = zip(PHASES, phases.record[1:], strict=True)
            iteration = _Stretch(step.start_ns, step.start_ns + step.iteration_ns)
            yield from _end_to_end(
                _PHASES, iteration, ((name, ns or 0, {"dur_ns": ns}) for name, ns in named)
            )

    def interval(self, interval: IntervalRecord) -> Iterator[Item]:
        span = self._stretch(interval.first_iteration, interval.iteration)
        elapsed_ns = interval.iteration_ns
        figures = {
            "tokens/s": per_second(interval.tokens, elapsed_ns),
            "TFLOPS/GPU": tflops_per_gpu(interval.model_flops, elapsed_ns, self._scale.world_size),
            "memory bytes": interval.memory_bytes,
        }
        if span is not None:
            yield from _counters(span.end_ns, figures)

    def reading(self, reading: HardwareRecord) -> Iterator[Item]:
        figures = {
            "power W": None if reading.power_mw is None else reading.power_mw / 1000,
            "SM clock MHz": reading.sm_clock_mhz,
            "temperature C": reading.temperature_c,
        }
        return _counters(reading.at_ns, figures)

    def ranks(self, ranks: RanksRecord) -> Iterator[Item]:
        """Work and waiting of every entry in its stretch: a step's time, times the number of steps."""
        span = self._stretch(ranks.first_iteration, ranks.iteration)
        if span is None:
            return
        steps = ranks.iteration - ranks.first_iteration + 1
        for entry, (work_ns, wait_ns) in enumerate(zip(ranks.work_ns, ranks.wait_ns, strict=False)):
            if entry not in self._named_ranks:
                self._named_ranks.add(entry)
                yield Name(Track(RANKS, entry), _ranks_of(entry, ranks.ranks_per_entry))
            parts = (("work", work_ns), ("wait", wait_ns))
            of_stretch = ((name, (ns or 0) * steps, {"ns_per_step": ns}) for name, ns in parts)
            yield from _end_to_end(Track(RANKS, entry), span, of_stretch)

    def straggler(self, straggler: StragglerRecord) -> Iterator[Item]:
        key = tuple(straggler.ranks)
        if not straggler.is_over:
            if key in self._slow or len(self._slow) < REMEMBERED:
                self._slow[key] = straggler
            return
        self._slow.pop(key, None)
        yield from self._slow_stretch(straggler)

    def _slow_stretch(self, straggler: StragglerRecord) -> Iterator[Item]:
        span = self._stretch(straggler.first_iteration, straggler.iteration)
        if span is None:
            return
        name = f"slow: {numbered('rank', straggler.ranks)}"
        args = {
            "phase": straggler.phase,
            "excess_ns": straggler.excess_ns,
            "against": straggler.against,
            "cause": straggler.cause,
        }
        key = str(straggler.ranks[:1])
        yield Span(Track(RANKS, 0), name, *span, args, "straggler", key)

    def _stretch(self, first_iteration: int, iteration: int) -> _Stretch | None:
        """The stretch from the first to the last of these steps; None if none of them is remembered."""
        newest_first = takewhile(lambda step: step[0] >= first_iteration, reversed(self._recent))
        spans = [span for number, span in newest_first if number <= iteration]
        return _Stretch(spans[-1].start_ns, spans[0].end_ns) if spans else None


def _end_to_end(track: Track, whole: _Stretch, parts: Iterable[tuple[str, int, Args]]) -> Iterator[Span]:
    """Parts of which only the nanoseconds are recorded, not when they were."""
    start_ns = whole.start_ns
    for name, dur_ns, args in parts:
        end_ns = min(start_ns + max(0, dur_ns), whole.end_ns)
        if end_ns > start_ns:
            yield Span(track, name, start_ns, end_ns, args)
            start_ns = end_ns


def _counters(at_ns: int, figures: Mapping[str, float | None]) -> Iterator[Counter]:
    return (Counter(name, at_ns, value) for name, value in figures.items() if value is not None)


def _ranks_of(entry: int, ranks_per_entry: int) -> str:
    first = entry * ranks_per_entry
    ranks = numbered("rank", range(first, first + ranks_per_entry))
    return ranks if ranks_per_entry == 1 else f"{ranks}, the slowest"
