"""A run as a trace for Perfetto (https://ui.perfetto.dev) or chrome://tracing: steps, phases, ranks and
counters on one timeline.

The format is the JSON array of Chrome's "Trace Event Format": times in microseconds, "X" a span, "C" a
counter, "i" an instant, "b" and "e" the ends of a span that may overlap others, "M" a name.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile
from typing import Any, NamedTuple

from flagscale_perf.spine.records import EventRecord, RunHeader
from flagscale_perf.spine.units import printable
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import PHASES, PhaseJoin, StepPhases
from flagscale_perf.training.ranks.records import RanksRecord, StragglerRecord
from flagscale_perf.training.rates import per_second, tflops_per_gpu
from flagscale_perf.training.records import (
    HardwareRecord,
    IntervalRecord,
    Outcome,
    PhaseRecord,
    Record,
    StepRecord,
)
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import end_mono_ns

NS_PER_US = 1000
RANK_0, RANKS = 1, 2  # "processes" of the trace
STEPS, PHASES_OF_STEPS = 1, 2  # "threads" of rank 0
REMEMBERED = 4096  # steps whose times are kept for what comes later about them

_OUTCOMES = {
    outcome.value: outcome.name.lower() for outcome in Outcome
}  # of a damaged file it may be any number

Event = dict[str, Any]


class _Span(NamedTuple):
    start_ns: int
    end_ns: int


class TraceEvents:
    """Turns records into events one by one; memory does not grow with the run."""

    def __init__(self, header: RunHeader) -> None:
        self._zero_ns = header.start_mono_ns
        facts = RunFacts.of(header.facts)
        self._scale = Scale.of(facts)
        self._phases = PhaseJoin(facts)
        self._recent: deque[tuple[int, _Span]] = deque(maxlen=REMEMBERED)
        self._named_ranks: set[int] = set()
        self._slow: dict[tuple[int, ...], StragglerRecord] = {}
        self._names = [
            _name("process_name", RANK_0, 0, f"rank 0 on {facts.hostname}"),
            _name("thread_name", RANK_0, STEPS, "iterations"),
            _name("thread_name", RANK_0, PHASES_OF_STEPS, "phases, end to end"),
            _name("process_name", RANKS, 0, "ranks: work and waiting per stretch, end to end"),
        ]

    def begin(self) -> list[Event]:
        """What the trace begins with."""
        return self._names

    def of(self, record: Record) -> Iterable[Event]:
        """The record's events; none for a record that has no place in time."""
        if isinstance(record, PhaseRecord):
            self._phases.hold(record)
        elif isinstance(record, StepRecord):
            return self._step(record)
        elif isinstance(record, IntervalRecord):
            return self._interval(record)
        elif isinstance(record, HardwareRecord):
            return self._reading(record)
        elif isinstance(record, EventRecord):
            return [
                self._at(record.at_ns)
                | {
                    "ph": "i",
                    "s": "g",
                    "name": printable(record.name),
                    "args": {"text": printable(record.text)},
                }
            ]
        elif isinstance(record, RanksRecord):
            return self._ranks(record)
        elif isinstance(record, StragglerRecord):
            return self._straggler(record)
        return []

    def end(self) -> Iterator[Event]:
        """Stragglers of which no end was recorded."""
        for straggler in self._slow.values():
            yield from self._slow_stretch(straggler)

    def _step(self, step: StepRecord) -> Iterator[Event]:
        whole = _Span(step.start_ns, end_mono_ns(step))
        self._recent.append((step.iteration, whole))
        args = {
            "outcome": _OUTCOMES.get(step.outcome, str(step.outcome)),
            "samples": step.samples,
            "tokens": step.tokens,
        }
        yield self._span(f"iteration {step.iteration}", whole, STEPS, args)
        if step.outcome != Outcome.DATA_SKIPPED:
            yield self._span(
                "train step",
                _Span(step.start_ns, min(step.start_ns + step.train_step_ns, whole.end_ns)),
                STEPS,
            )
        start_ns = step.start_ns + step.iteration_ns
        for name, dur_ns in (("evaluation", step.eval_ns), ("checkpoint", step.checkpoint_ns)):
            if dur_ns > 0:
                yield self._span(name, _Span(start_ns, start_ns + dur_ns), STEPS)
                start_ns += dur_ns
        phases = self._phases.take(step)
        if phases is not None:
            yield from self._phases_of(step, phases)

    def _phases_of(self, step: StepRecord, phases: StepPhases) -> Iterator[Event]:
        """End to end from the step's start; only how long each took is recorded, not when."""
        start_ns, limit_ns = step.start_ns, step.start_ns + step.iteration_ns
        for name, dur_ns in zip(PHASES, phases.record[1:], strict=True):
            end_ns = min(start_ns + max(0, dur_ns or 0), limit_ns)
            if end_ns > start_ns:
                yield self._span(name, _Span(start_ns, end_ns), PHASES_OF_STEPS, {"dur_ns": dur_ns})
                start_ns = end_ns

    def _interval(self, interval: IntervalRecord) -> Iterator[Event]:
        span = self._stretch(interval.first_iteration, interval.iteration)
        elapsed_ns = interval.iteration_ns
        figures = {
            "tokens/s": per_second(interval.tokens, elapsed_ns),
            "TFLOPS/GPU": tflops_per_gpu(interval.model_flops, elapsed_ns, self._scale.world_size),
            "memory bytes": interval.memory_bytes,
        }
        if span is not None:
            yield from (
                self._counter(name, span.end_ns, value)
                for name, value in figures.items()
                if value is not None
            )

    def _reading(self, reading: HardwareRecord) -> Iterator[Event]:
        power_w = None if reading.power_mw is None else reading.power_mw / 1000
        figures = {
            "power W": power_w,
            "SM clock MHz": reading.sm_clock_mhz,
            "temperature C": reading.temperature_c,
        }
        yield from (
            self._counter(name, reading.at_ns, value) for name, value in figures.items() if value is not None
        )

    def _ranks(self, ranks: RanksRecord) -> Iterator[Event]:
        """For every entry the stretch's work and waiting: the time of a step times its steps."""
        span = self._stretch(ranks.first_iteration, ranks.iteration)
        if span is None:
            return
        steps = ranks.iteration - ranks.first_iteration + 1
        for entry, (work_ns, wait_ns) in enumerate(zip(ranks.work_ns, ranks.wait_ns, strict=False)):
            if entry not in self._named_ranks:
                self._named_ranks.add(entry)
                yield _name("thread_name", RANKS, entry, _ranks_of(entry, ranks.ranks_per_entry))
            start_ns = span.start_ns
            for name, dur_ns in (("work", work_ns), ("wait", wait_ns)):
                end_ns = min(start_ns + max(0, dur_ns or 0) * steps, span.end_ns)
                if end_ns > start_ns:
                    yield self._span(name, _Span(start_ns, end_ns), entry, {"ns_per_step": dur_ns}) | {
                        "pid": RANKS
                    }
                    start_ns = end_ns

    def _straggler(self, straggler: StragglerRecord) -> Iterator[Event]:
        key = tuple(straggler.ranks)
        if not straggler.is_over:
            if key in self._slow or len(self._slow) < REMEMBERED:
                self._slow[key] = straggler
            return
        self._slow.pop(key, None)
        yield from self._slow_stretch(straggler)

    def _slow_stretch(self, straggler: StragglerRecord) -> Iterator[Event]:
        span = self._stretch(straggler.first_iteration, straggler.iteration)
        if span is None:
            return
        name = f"slow: rank {', '.join(map(str, straggler.ranks))}"
        common = {"cat": "straggler", "id": str(straggler.ranks[:1]), "name": name, "pid": RANKS, "tid": 0}
        args = {
            "phase": printable(straggler.phase),
            "excess_ns": straggler.excess_ns,
            "against": straggler.against,
            "cause": straggler.cause,
        }
        yield self._at(span.start_ns) | common | {"ph": "b", "args": args}
        yield self._at(span.end_ns) | common | {"ph": "e"}

    def _stretch(self, first_iteration: int, iteration: int) -> _Span | None:
        """From the start of the first to the end of the last of the steps that are remembered; None if none
        is.
        """
        newest_first = takewhile(lambda step: step[0] >= first_iteration, reversed(self._recent))
        spans = [span for number, span in newest_first if number <= iteration]
        return _Span(spans[-1].start_ns, spans[0].end_ns) if spans else None

    def _span(self, name: str, span: _Span, thread: int, args: Event | None = None) -> Event:
        dur_us = (span.end_ns - span.start_ns) / NS_PER_US
        return self._at(span.start_ns) | {
            "ph": "X",
            "name": name,
            "tid": thread,
            "dur": dur_us,
            "args": args or {},
        }

    def _counter(self, name: str, at_ns: int, value: float) -> Event:
        return self._at(at_ns) | {"ph": "C", "name": name, "args": {"value": value}}

    def _at(self, at_ns: int) -> Event:
        return {"pid": RANK_0, "tid": 0, "ts": (at_ns - self._zero_ns) / NS_PER_US}


def _name(kind: str, process: int, thread: int, name: str) -> Event:
    return {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": {"name": printable(name)}}


def _ranks_of(entry: int, ranks_per_entry: int) -> str:
    first = entry * ranks_per_entry
    return (
        f"rank {first}"
        if ranks_per_entry == 1
        else f"ranks {first} to {first + ranks_per_entry - 1}, the slowest"
    )


def trace_lines(header: RunHeader, records: Iterable[Record]) -> Iterator[str]:
    """The whole file, one event a line, made while it is read."""
    trace = TraceEvents(header)
    facts = RunFacts.of(header.facts)
    about = {"session": header.session_id, "script": facts.script, "device": facts.device}
    yield json.dumps(
        {"displayTimeUnit": "ms", "otherData": {key: printable(value) for key, value in about.items()}}
    )[:-1]
    separator = ', "traceEvents": [\n'
    for event in chain(trace.begin(), chain.from_iterable(map(trace.of, records)), trace.end()):
        yield separator + json.dumps(event, allow_nan=False)
        separator = ",\n"
    yield "\n]}\n"
