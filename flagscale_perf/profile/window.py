"""A window's steps as they are taken, and how records are made of them afterwards, on a thread of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.kineto import Session
from flagscale_perf.profile.records import RowRecord, StepRecord, WindowRecord
from flagscale_perf.profile.rows import Key, Row, StepRows, rows_of
from flagscale_perf.profile.schedule import Kind
from flagscale_perf.profile.store import Store
from flagscale_perf.spine.clock import monotonic_ns

_CALLS = ("c10d::", "_c10d_functional::", "gloo:", "nccl:", "mpi:")


@dataclass
class Step:
    """One step of a window.

    Attributes:
        session: its profiler; None for a clean one.
    """

    kind: Kind
    iteration: int | None
    phase: str
    start_ns: int = 0
    total_ns: int = 0
    samples: int | None = None
    tokens: int | None = None
    session: Session | None = None


@dataclass
class Window:
    """What the training thread keeps of one.

    Attributes:
        steps: in their order.
        begin_ns, end_ns: which starting and stopping the profiler took.
        recorded: events so far.
        position: of the newest step.
        reason: why there will be no row; "" where nothing is known to be wrong.
    """

    steps: list[Step] = field(default_factory=list)
    begin_ns: int = 0
    end_ns: int = 0
    recorded: int = 0
    position: int = 0
    reason: str = ""


@dataclass(frozen=True)
class Reduction:
    """Makes a window's records.

    Attributes:
        store: where they go.
        max_events: of the window; what is more is dropped.
        why_empty: what to say where no event lies in any module.
    """

    store: Store
    max_events: int
    why_empty: str

    def reduce(self, window: Window) -> None:
        """All records of the window; its own comes last."""
        begin_ns = monotonic_ns()
        number = self.store.next_number()
        sums: dict[str, dict[Key, Row]] = {}
        left, dropped = self.max_events, 0
        for step in window.steps:
            found = None
            if step.kind is Kind.PROFILED and step.session is not None:
                events = step.session.events(left)
                step.session = None  # its events may be many
                found = self._rows(events, sums.setdefault(step.phase, {}))
                left -= len(events)
                dropped += events.dropped
            if step.kind is not Kind.DETAILED:
                self._add_step(number, step, found)
        for phase, rows in sums.items():
            self._add_rows(number, phase, rows)
        self._add_window(number, window, sums, dropped, monotonic_ns() - begin_ns)
        self.store.flush()

    def _rows(self, events: Events, sums: dict[Key, Row]) -> StepRows:
        found = rows_of(events, Attribution.of(events), lambda name: name.startswith(_CALLS))
        for key, row in found.rows.items():
            if key in sums:
                sums[key].add(row)
            else:
                sums[key] = row
        return found

    def _add_step(self, window: int, step: Step, found: StepRows | None) -> None:
        self.store.add(
            StepRecord,
            window=window,
            iteration=step.iteration,
            phase=step.phase,
            is_profiled=int(found is not None),
            start_ns=step.start_ns,
            total_ns=step.total_ns,
            operators_ns=None if found is None else found.operators_ns,
            outside_ns=None if found is None else found.outside_ns,
            host_ns=None if found is None else found.host_ns,
            engine_ns=None if found is None else found.engine_ns,
            communication_ns=None if found is None else found.communication_ns,
            residual_ns=None if found is None else step.total_ns - found.booked_ns,
            device_busy_ns=None if found is None else found.device_busy_ns,
            samples=step.samples,
            tokens=step.tokens,
            events=None if found is None else found.events,
        )

    def _add_rows(self, window: int, step_phase: str, rows: dict[Key, Row]) -> None:
        for key, row in rows.items():
            self.store.add(
                RowRecord,
                window=window,
                step_phase=step_phase,
                phase=key.part,
                module=key.module,
                sort=key.sort,
                op=key.op,
                steps=row.steps,
                runs=row.runs,
                self_ns=row.self_ns,
                total_ns=row.total_ns,
                device_ns=row.device_ns,
                flops=None,
                moved_bytes=None,
            )

    def _add_window(
        self, number: int, window: Window, sums: dict[str, dict[Key, Row]], dropped: int, reduce_ns: int
    ) -> None:
        steps = [step for step in window.steps if step.kind is not Kind.DETAILED]
        has_modules = any(key.module for rows in sums.values() for key in rows)
        self.store.add(
            WindowRecord,
            number,
            start_ns=steps[0].start_ns if steps else 0,
            total_ns=_span(steps),
            steps=sum(step.kind is Kind.PROFILED for step in steps),
            clean_steps=sum(step.kind is Kind.CLEAN for step in steps),
            events=window.recorded,
            dropped_events=dropped,
            begin_ns=window.begin_ns,
            end_ns=window.end_ns,
            reduce_ns=reduce_ns,
            reason="" if has_modules else window.reason or self.why_empty,
        )


def _span(steps: Sequence[Step]) -> int:
    return steps[-1].start_ns + steps[-1].total_ns - steps[0].start_ns if steps else 0
