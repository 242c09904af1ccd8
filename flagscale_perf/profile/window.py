"""A window's steps as they are taken, and how a separate thread makes records of them afterwards."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.calls import CallFiles, StepCalls
from flagscale_perf.profile.communication import Collective, collectives_of, filled, numbered
from flagscale_perf.profile.compiled import layered
from flagscale_perf.profile.costs import Cost, costs_of
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.flight import flown, groups
from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.memory import memory_of
from flagscale_perf.profile.options import Kind, ProfileOptions
from flagscale_perf.profile.pieces import Pieces, exposed
from flagscale_perf.profile.records import (
    NAMES,
    PARTS,
    BeginRecord,
    CollectiveRecord,
    MemoryRecord,
    RowRecord,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.profile.rows import Key, Row, StepRows, rows_of
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.peers.records import NAME_BYTES, NameRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.writer.console import complain


class Store:
    """Numbers names and records; not thread-safe."""

    def __init__(self, put_all: Callable[[Sequence[Record]], None]) -> None:
        self._put_all = put_all
        self._pending: list[Record] = []
        self._names: dict[str, int] = {"": 0}
        self._count = 0

    def name(self, text: str) -> int:
        """The text's number; records the text at its first use."""
        number = self._names.get(text)
        if number is None:
            number = self._names[text] = len(self._names)
            self._pending.append(NameRecord(0, number, _cut(text)))
        return number

    def next_number(self) -> int:
        """Reserves the number of a record that is added after those that refer to it."""
        self._count += 1
        return self._count

    def add(self, kind: type[Record], number: int | None = None, **fields: Any) -> int:
        """Adds a record, with its texts as numbers, and returns its number."""
        number = self.next_number() if number is None else number
        for name in NAMES[kind]:
            fields[name] = self.name(fields[name])
        self._pending.append(kind(process=0, number=number, **fields))
        return number

    def flush(self) -> None:
        """Passes on what was added since the last call; may wait for room in the ring."""
        pending, self._pending = self._pending, []
        self._put_all(pending)


def _cut(text: str) -> str:
    """Shortens a name from the left: modules differ at the end of their paths."""
    raw = text.encode()
    return text if len(raw) <= NAME_BYTES else raw[-NAME_BYTES:].decode(errors="ignore")


NO_CALLS = "single runs of operators are not kept any more, only their sums"
_UNKNOWN = Cost()
HELD = 100_000  # raw events, of 1.8 kB each, that a window keeps until it is over


@dataclass
class Step:
    """One step of a window.

    Attributes:
        attended: pairs of a query and a key; None where the host does not say.
        session: its profiler; None for a clean one.
        events: how many it had.
        most: how many of its events are kept.
    """

    kind: Kind
    iteration: int | None
    phase: str
    start_ns: int = 0
    total_ns: int = 0
    samples: int | None = None
    tokens: int | None = None
    attended: int | None = None
    session: Session | None = None
    events: int = 0
    most: int = 0


@dataclass
class Window:
    """A window, as the training thread keeps it.

    Attributes:
        steps: in their order.
        begin_ns, end_ns: time that starting and stopping the profiler took.
        recorded: events so far.
        position: the newest step's position.
        reason: why there will be no row; "" where nothing is known to be wrong.
    """

    steps: list[Step] = field(default_factory=list)
    begin_ns: int = 0
    end_ns: int = 0
    recorded: int = 0
    position: int = 0
    reason: str = ""

    def add(self, step: Step) -> None:
        """Adds a finished step. If the window holds too many raw events, they are read at once: on the
        training thread, but in a clean step, which this does not disturb.
        """
        self.steps.append(step)
        unread = [each for each in self.steps if each.session is not None and not each.session.is_read]
        if sum(each.events for each in unread) > HELD:
            for each in unread:
                assert each.session is not None
                each.session.read(each.most)


@dataclass(frozen=True)
class Reduction:
    """Makes a window's records.

    Attributes:
        store: where they go.
        options: what is recorded, and how many events of a window at most.
        why_empty: what to say where no event lies in any module.
        attention: paths of attention modules, where the model is compiled and layers are told by them.
        files: where each run of each operator goes; None: nowhere.
        say: a sentence to the user, once.
    """

    store: Store
    options: ProfileOptions
    why_empty: str
    attention: Sequence[str] = ()
    files: CallFiles | None = None
    say: Callable[[str], None] = complain

    def begin(self, iteration: int | None, start_ns: int) -> None:
        """Adds the record of a window's beginning."""
        self.store.add(BeginRecord, start_ns=start_ns, iteration=iteration)
        self.store.flush()

    def reduce(self, window: Window) -> None:
        """Adds all records of the window; its own comes last."""
        begin_ns = monotonic_ns()
        number = self.store.next_number()
        sums: dict[str, dict[Key, Row]] = {}
        costs: dict[Key, Cost] = {}
        shaped: list[Collective] = []
        calls: list[_Calls] = []
        runs: list[tuple[int, StepCalls]] = []
        dropped, recorded = 0, flown()
        for step in window.steps:
            if step.session is None:
                self._add_step(number, step, None)
                continue
            events = step.session.events(step.most)
            step.session = None  # its events may be many
            events = layered(events, self.attention)
            places = Attribution(events)
            collectives = collectives_of(events, places.nesting, recorded, groups())
            pieces = Pieces.of(events, places, collectives)
            found = rows_of(events, places, pieces)
            if step.kind is Kind.DETAILED:
                costs, shaped = self._detail(number, step, events, places, found), collectives
                continue
            collectives = exposed(collectives, events, places, pieces)
            _add(found.rows, sums.setdefault(step.phase, {}))
            own = self._add_step(number, step, found)
            if found.calls is not None:
                runs.append((own, found.calls))
            calls.append(_Calls.of(own, collectives, places))
            dropped += events.dropped
        for phase, rows in sums.items():
            self._add_rows(number, phase, rows, costs, _attended(window))
        self._add_collectives(number, calls, shaped)
        name = self._write(runs)
        self._add_window(number, window, sums, (dropped, monotonic_ns() - begin_ns, name))
        self.store.flush()
        if sum(step.events for step in window.steps) > HELD:
            _give_back()

    def _detail(
        self, window: int, step: Step, events: Events, places: Attribution, found: StepRows
    ) -> dict[Key, Cost]:
        if self.options.memory:
            for what, memory in memory_of(events, places).items():
                fields = what._asdict() | vars(memory)
                self.store.add(MemoryRecord, window=window, step_phase=step.phase, **fields)
        if not self.options.shapes:
            return {}
        costs = costs_of(events, places)
        for key, cost in costs.items():
            cost.runs = found.rows[key].runs if key in found.rows else 0
        return costs

    def _add_collectives(self, window: int, steps: Sequence[_Calls], shaped: Sequence[Collective]) -> None:
        """Adds the collectives of all steps, with their ordinals and the bytes that shapes show."""
        lists = [filled(step.collectives, shaped) for step in steps]
        everything = iter(numbered(each for collectives in lists for each in collectives))
        for step in steps:
            for place in step.places:
                each = vars(next(everything))
                fields = {name: value for name, value in each.items() if name not in ("event", "executed")}
                phase, module = place
                fields |= {"window": window, "step": step.step, "phase": phase, "module": module}
                self.store.add(CollectiveRecord, **fields)

    def _add_step(self, window: int, step: Step, found: StepRows | None) -> int:
        parts: dict[str, int | None] = dict.fromkeys(PARTS)
        if found is not None:
            parts |= {**found.parts_ns, "residual": step.total_ns - found.booked_ns}
        return self.store.add(
            StepRecord,
            window=window,
            iteration=step.iteration,
            phase=step.phase,
            is_profiled=int(found is not None),
            start_ns=step.start_ns,
            total_ns=step.total_ns,
            **{f"{part}_ns": value for part, value in parts.items()},
            device_busy_ns=None if found is None else found.device_busy_ns,
            samples=step.samples,
            tokens=step.tokens,
            events=None if found is None else found.events,
        )

    def _add_rows(
        self, window: int, step_phase: str, rows: dict[Key, Row], costs: dict[Key, Cost], attended: int | None
    ) -> None:
        for key, row in rows.items():
            cost = costs.get(key, _UNKNOWN)
            is_same = cost.runs * row.steps == row.runs  # else the steps were not alike
            self.store.add(
                RowRecord,
                window=window,
                step_phase=step_phase,
                **key._asdict(),
                **vars(row),
                flops=_flops(cost, row.steps, attended) if is_same else None,
                moved_bytes=_times(cost.moved_bytes if is_same else None, row.steps),
            )

    def _add_window(
        self, number: int, window: Window, sums: dict[str, dict[Key, Row]], made: tuple[int, int, str]
    ) -> None:
        dropped, reduce_ns, calls = made
        steps = [step for step in window.steps if step.kind is not Kind.DETAILED]
        has_modules = any(key.module for rows in sums.values() for key in rows)
        self.store.add(
            WindowRecord,
            number,
            start_ns=steps[0].start_ns if steps else 0,
            total_ns=steps[-1].start_ns + steps[-1].total_ns - steps[0].start_ns if steps else 0,
            steps=sum(step.kind is Kind.PROFILED for step in steps),
            clean_steps=sum(step.kind is Kind.CLEAN for step in steps),
            events=window.recorded,
            dropped_events=dropped,
            begin_ns=window.begin_ns,
            end_ns=window.end_ns,
            reduce_ns=reduce_ns,
            reason="" if has_modules else window.reason or self.why_empty,
            calls=calls,
        )

    def _write(self, runs: Sequence[tuple[int, StepCalls]]) -> str:
        """Writes the calls and returns the file's name; "" if there is none, which is reported."""
        if self.files is None:
            return ""
        try:
            name = self.files.write(runs)
        except OSError as error:
            self.say(f"{NO_CALLS}: {error.strerror or error}")
            return ""
        if not name and any(len(calls) for _, calls in runs):
            self.say(f"{NO_CALLS}: files of them would be more than {self.files.most_bytes >> 20} MiB")
        return name


@dataclass(frozen=True)
class _Calls:
    """A step's collectives.

    Attributes:
        step: number of its record.
        places: of each collective, the part of the step and the module's path.
    """

    step: int
    collectives: list[Collective]
    places: list[tuple[str, str]]

    @classmethod
    def of(cls, step: int, collectives: list[Collective], places: Attribution) -> _Calls:
        """The calls with texts in place of indexes, so that the events can be released."""
        where = [
            ("other", "")
            if each.event < 0
            else (places.label(each.event), places.paths[places.module[each.event]])
            for each in collectives
        ]
        return cls(step, collectives, where)


def _add(rows: dict[Key, Row], sums: dict[Key, Row]) -> None:
    for key, row in rows.items():
        if key in sums:
            sums[key].add(row)
        else:
            sums[key] = row


def _give_back() -> None:
    """Returns freed memory to the system, which the C library would keep."""
    with contextlib.suppress(AttributeError, OSError):  # another C library than GNU's
        ctypes.CDLL(None).malloc_trim(0)


def _attended(window: Window) -> int | None:
    found = [step.attended for step in window.steps if step.kind is Kind.PROFILED]
    return None if None in found else sum(filter(None, found))


def _flops(cost: Cost, steps: int, attended: int | None) -> int | None:
    if cost.pair_flops is not None:
        return _times(cost.pair_flops, attended) if attended is not None else None
    return _times(cost.flops, steps)


def _times(value: int | None, steps: int) -> int | None:
    return None if value is None else value * steps
