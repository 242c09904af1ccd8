"""A training's steps, phases, ranks and counters as items."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, takewhile
from typing import Any, NamedTuple

from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import (
    Counter,
    Drawn,
    Id,
    Item,
    Part,
    Process,
    Timeline,
    Track,
    end_to_end,
    id_of,
    id_within,
    nothing,
)
from flagscale_perf.spine.units import numbered
from flagscale_perf.training.capture import is_sound, unpacked
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.host import HostRecord
from flagscale_perf.training.marks import spans
from flagscale_perf.training.phases import PHASES, TABLE, PhaseJoin
from flagscale_perf.training.rank_records import (
    PHASE_BASE,
    CutsRecord,
    NodeRecord,
    RanksRecord,
    StragglerRecord,
)
from flagscale_perf.training.rates import known_tokens, per_second, tflops_per_gpu
from flagscale_perf.training.records import (
    OUTCOMES,
    CapturedRecord,
    CaptureRecord,
    HardwareRecord,
    IntervalRecord,
    Outcome,
    PhaseRecord,
    StepRecord,
)
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import end_mono_ns

STEPS, PHASES_ROW, CAPTURED, CUTS, STRETCHES, SLOW = (
    ("iterations", 1),
    ("phases, end to end", 3),
    ("phases, as captured", 2),
    ("phases between collectives, end to end", 3),
    ("work and waiting per stretch, end to end", 8),
    ("slow", 9),
)
REMEMBERED = 4096  # steps whose times are kept for what comes later about them
_FIRST_RECORDS = 20_000  # among which the ranks of all nodes are looked for
_FIRST_OF_STEP = ("between_steps", "zero_grad", "other", "forward_backward_other")  # in its first stretch


def timeline(session: Session) -> Timeline:
    """The timeline of a session."""
    tracks = _Tracks(session)
    own: dict[type, Callable[[Any], Iterable[Drawn]]] = {
        PhaseRecord: tracks.hold,
        StepRecord: tracks.step,
        IntervalRecord: tracks.interval,
        HardwareRecord: tracks.reading,
        HostRecord: tracks.host,
        NodeRecord: tracks.node,
        RanksRecord: tracks.ranks,
        CutsRecord: tracks.cuts,
        CaptureRecord: nothing,
        CapturedRecord: tracks.captured,
        StragglerRecord: tracks.straggler,
    }
    return Timeline(session, own, tracks.rest, tracks.process(0))


class _Stretch(NamedTuple):
    start_ns: int
    end_ns: int


class _Ranks:
    """The processes of the ranks, by their pids where the nodes have told them."""

    def __init__(self, session: Session, facts: RunFacts) -> None:
        self._header, self._facts = session.header, facts
        self._known: dict[int, tuple[str, int, int]] = {}  # host, pid, stage
        self._made: dict[int, Process] = {}
        for record in islice(session, _FIRST_RECORDS):
            if isinstance(record, NodeRecord):
                self.add(record)

    def add(self, node: NodeRecord) -> None:
        for rank, pid, stage in zip(node.ranks, node.pids, node.stages, strict=False):
            self._known.setdefault(rank, (node.hostname, pid, stage))

    def process(self, rank: int) -> Process:
        """The same one each time."""
        if rank not in self._made:
            self._made[rank] = self._make(rank)
        return self._made[rank]

    def _make(self, rank: int) -> Process:
        header, facts = self._header, self._facts
        host, pid, stage = self._known.get(rank, (None, None, None))
        if rank == 0:
            host, pid = header.host or facts.hostname or None, header.pid or facts.pid or None
        stages, world = facts.pipeline_parallel or 1, facts.world_size or 0
        width = (facts.tensor_parallel or 1) * (facts.context_parallel or 1)
        of_stage = world // stages
        stage = rank // of_stage if stage is None and of_stage else stage
        return Process(
            host,
            pid,
            header.session_id,
            header.instrument,
            f"rank {rank}",
            rank,
            stage if stages > 1 else None,
            rank % of_stage // width if of_stage > width > 0 else None,
        )


class _Tracks:
    def __init__(self, session: Session) -> None:
        self.facts = RunFacts.of(session.header.facts)
        self._session_id = session.header.session_id
        self._of = _Ranks(session, self.facts)
        self.process = self._of.process
        self._scale = Scale.of(self.facts)
        self._phases = PhaseJoin(self.facts)
        self._recent: deque[tuple[int, _Stretch]] = deque(maxlen=REMEMBERED)
        self._worked: dict[
            int, _Stretch
        ] = {}  # of the last steps: from the start to the end of the train step
        self._slow: dict[tuple[int, ...], StragglerRecord] = {}
        self._cut_ns: dict[int, int] = {}  # end of the last step of each rank that was laid end to end
        self._host: HostRecord | None = None
        self._memory_bytes: int | None = None

    def node(self, record: NodeRecord) -> tuple[Drawn, ...]:
        self._of.add(record)
        return ()

    def hold(self, record: PhaseRecord) -> tuple[Drawn, ...]:
        self._phases.hold(record)
        return ()

    def rest(self) -> Iterator[Drawn]:
        for straggler in self._slow.values():
            yield from self._slow_stretch(straggler)

    def _row(self, rank: int, row: tuple[str, int]) -> Track:
        return Track(self.process(rank), *row)

    def _id(self, iteration: int, what: str = "", rank: int = 0) -> Id:
        return id_of(f"{self._session_id} {iteration}", f"{what} {rank}")

    def step(self, step: StepRecord) -> Iterator[Drawn]:
        whole = _Stretch(step.start_ns, end_mono_ns(step))
        worked = _Stretch(step.start_ns, min(step.start_ns + step.train_step_ns, whole.end_ns))
        self._recent.append((step.iteration, whole))
        self._worked[step.iteration] = worked
        if len(self._worked) > 2 * REMEMBERED:
            self._worked = dict(islice(self._worked.items(), REMEMBERED, None))
        pauses = (("evaluation", step.eval_ns), ("checkpoint", step.checkpoint_ns))
        parts = [] if step.outcome == Outcome.DATA_SKIPPED else [Part("train step", *worked)]
        parts += end_to_end(step.start_ns + step.iteration_ns, whole.end_ns, pauses)
        facts = {
            "outcome": OUTCOMES.get(step.outcome, str(step.outcome)),  # a damaged file may have any number
            "samples": step.samples,
            "tokens": known_tokens(step.tokens, step.samples),
        }
        own = self._id(step.iteration)
        track, name = self._row(0, STEPS), f"iteration {step.iteration}"
        yield Item(name, track, *whole, facts, own, parts=tuple(parts), step=step.iteration)
        if step.memory_bytes not in (None, self._memory_bytes):
            self._memory_bytes = step.memory_bytes
            yield Counter("memory bytes", self.process(0), worked.end_ns, step.memory_bytes)
        phases = self._phases.take(step)
        if phases is not None:
            named = dict(zip(PHASES, phases.record[1:], strict=True))
            until_ns = step.start_ns + step.iteration_ns
            row = self._row(0, PHASES_ROW)
            for place, laid in enumerate(end_to_end(step.start_ns, until_ns, named.items())):
                phase, begin_ns, end_ns = laid
                known = {"dur_ns": named[phase]} if named[phase] != end_ns - begin_ns else {}  # if cut off
                yield Item(phase, row, begin_ns, end_ns, known, id_within(own, place), own)

    def captured(self, step: CapturedRecord) -> Iterator[Item]:
        """A step of a rank, phase by phase, each when it was."""
        if not is_sound(step):
            return
        track, at_ns = self._row(step.rank, CAPTURED), step.start_ns
        end_ns = step.start_ns + step.train_step_ns
        own = self._id(step.iteration, "captured", step.rank)
        parent = self._id(step.iteration) if step.iteration in self._worked else None
        yield Item(f"train step {step.iteration}", track, at_ns, end_ns, {}, own, parent)
        for place, (phase, took_ns) in enumerate(spans(unpacked(step), at_ns, end_ns)):
            until_ns = min(at_ns + max(0, took_ns), end_ns)
            if until_ns > at_ns:
                yield Item(PHASES[phase], track, at_ns, until_ns, {}, id_within(own, place), own)
            at_ns += took_ns

    def cuts(self, cuts: CutsRecord) -> Iterator[Item]:
        """Steps of the other ranks, as far as they are recorded: each of them leaves a collective when rank 0
        does, and what it did in between is laid end to end.
        """
        worked = self._worked.get(cuts.iteration)
        if worked is None:
            return
        first, columns, waits = 0, len(cuts.columns), len(cuts.waits)
        for row, size in enumerate(cuts.sizes):
            ranks = cuts.ranks[first : first + size]
            first += size
            named = [*_in_time(cuts, row * columns, row * waits)]
            begin_ns = worked.end_ns - sum(took_ns for _, took_ns in named)
            for rank in ranks:
                if rank == 0:
                    continue  # of which there are its own phases
                track, parent = self._row(rank, CUTS), self._id(cuts.iteration)
                laid = self._id(cuts.iteration, "cuts", rank)
                for place, part in enumerate(end_to_end(begin_ns, worked.end_ns, named)):
                    name, at_ns, until_ns = part
                    at_ns = max(at_ns, self._cut_ns.get(rank, at_ns))  # the ranks' ends differ by some us
                    if at_ns < until_ns:
                        yield Item(name, track, at_ns, until_ns, {}, id_within(laid, place), parent)
                self._cut_ns[rank] = worked.end_ns

    def interval(self, interval: IntervalRecord) -> Iterator[Drawn]:
        span = self._stretch(interval.first_iteration, interval.iteration)
        elapsed_ns = interval.iteration_ns
        figures = {
            "tokens/s": per_second(known_tokens(interval.tokens, interval.samples), elapsed_ns),
            "TFLOPS/GPU": tflops_per_gpu(interval.model_flops, elapsed_ns, self._scale.world_size),
            "peak memory bytes": interval.memory_peak_bytes,
        }
        if span is not None:
            yield from self._counters(span.end_ns, figures)

    def reading(self, reading: HardwareRecord) -> Iterator[Drawn]:
        figures = {
            "power W": None if reading.power_mw is None else reading.power_mw / 1000,
            "SM clock MHz": reading.sm_clock_mhz,
            "temperature C": reading.temperature_c,
            "tensor cores active %": None if reading.tensor_ppm is None else reading.tensor_ppm / 10_000,
        }
        return self._counters(reading.at_ns, figures)

    def host(self, reading: HostRecord) -> Iterator[Drawn]:
        """What grew since the last reading, as a share of the time."""
        before, self._host = self._host, reading
        figures: dict[str, float | None] = {"memory available bytes": reading.memory_available_bytes}
        if before is not None and reading.at_ns > before.at_ns:
            for name, field in (
                ("CPU", "cpu_stall_ns"),
                ("memory", "memory_stall_ns"),
                ("IO", "io_stall_ns"),
            ):
                then, now = getattr(before, field), getattr(reading, field)
                if then is not None and now is not None and now >= then:
                    figures[f"{name} pressure %"] = 100 * (now - then) / (reading.at_ns - before.at_ns)
        return self._counters(reading.at_ns, figures)

    def _counters(self, at_ns: int, figures: Mapping[str, float | None]) -> Iterator[Drawn]:
        main = self.process(0)
        return (Counter(name, main, at_ns, value) for name, value in figures.items() if value is not None)

    def ranks(self, ranks: RanksRecord) -> Iterator[Item]:
        """Work and waiting of every entry in its stretch: a step's time, times the number of steps."""
        span = self._stretch(ranks.first_iteration, ranks.iteration)
        if span is None:
            return
        steps, each = ranks.iteration - ranks.first_iteration + 1, ranks.ranks_per_entry
        for entry, (work_ns, wait_ns) in enumerate(zip(ranks.work_ns, ranks.wait_ns, strict=False)):
            title, order = STRETCHES
            if each > 1:
                title = f"{numbered('rank', range(entry * each, (entry + 1) * each))}, the slowest: {title}"
            per_step = {"work": work_ns, "wait": wait_ns}
            parts = [(name, (ns or 0) * steps) for name, ns in per_step.items()]
            for name, begin_ns, end_ns in end_to_end(*span, parts):
                facts = {"ns_per_step": per_step[name]}
                yield Item(name, self._row(entry * each, (title, order)), begin_ns, end_ns, facts)

    def straggler(self, straggler: StragglerRecord) -> Iterator[Drawn]:
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
        facts = {
            "phase": straggler.phase,
            "excess_ns": straggler.excess_ns,
            "against": straggler.against,
            "cause": straggler.cause,
            "observed": straggler.observed,
        }
        yield Item(name, self._row(straggler.ranks[0], SLOW), *span, facts)

    def _stretch(self, first_iteration: int, iteration: int) -> _Stretch | None:
        """The stretch from the first to the last of these steps; None if none of them is remembered."""
        newest_first = takewhile(lambda step: step[0] >= first_iteration, reversed(self._recent))
        spans = [span for number, span in newest_first if number <= iteration]
        return _Stretch(spans[-1].start_ns, spans[0].end_ns) if spans else None


def _in_time(cuts: CutsRecord, own: int, wait: int) -> Iterator[tuple[str, int]]:
    """The phases of one row of a step, each with its wait behind it: `own` and `wait` are the places of the
    row's first values. What no timer names comes before what one does.
    """
    for cut, phase in enumerate(cuts.waits):
        found = {
            PHASES[column % PHASE_BASE]: cuts.own_ns[own + place]
            for place, column in enumerate(cuts.columns)
            if column // PHASE_BASE == cut and column % PHASE_BASE < len(PHASES)
        }
        for name in sorted(found, key=lambda name: (name not in _FIRST_OF_STEP, [*TABLE].index(name))):
            yield name, found[name]
        if phase < len(PHASES):
            yield PHASES[phase], cuts.wait_ns[wait + cut]
