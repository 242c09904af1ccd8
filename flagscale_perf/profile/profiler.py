"""Profiles steps of models in this process; the host only says where a step begins and ends."""

from __future__ import annotations

import contextlib
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from torch import nn

from flagscale_perf.profile import kineto
from flagscale_perf.profile.calls import CallFiles
from flagscale_perf.profile.compiled import attention_paths
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.options import Kind, ProfileOptions, Schedule
from flagscale_perf.profile.ranges import STEP, Ranges, unwrapped
from flagscale_perf.profile.rank import Rank
from flagscale_perf.profile.records import RankRecord, RoofRecord
from flagscale_perf.profile.task import job_of
from flagscale_perf.profile.window import Reduction, Step, Store, Window
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import raised_by_signal
from flagscale_perf.spine.records import Record
from flagscale_perf.writer.console import complain
from flagscale_perf.writer.membership import Membership

BUSY = (
    "another torch profiler was running, and a second one would take its events away: end that one first,"
    " or profile other steps"
)
FULL = "a window has {recorded} events already, and {most} at most: its other steps are not profiled"
LATE = (
    "{phase}: step {number} comes first, after the only window, {steps}: nothing is profiled;"
    " name later steps, or write {steps}/{every} for some of every {every}"
)
EARLY = "{phase}: step {number} was the last, before the first of {steps}: nothing is profiled"
CUT = (
    "{phase}: step {number} was the last, after {done} of the {length} steps of the window: the others are"
    " missing; the last of them has shapes and memory, where these are recorded"
)
COMPILED = "the model is compiled: what runs is not the modules' own Python, so that they have no ranges"
UNSEEN = (
    "no operator ran in any module of the model: is the profiled model the one that runs, in this process?"
)


@dataclass
class _Phase:
    """A kind of step, which has windows of its own.

    Attributes:
        count: how many steps it has had, where the host does not number them; number: of the last.
        window: the open window; None outside of one.
        has_begun: whether any window has begun; is_done: whether the only one is over.
    """

    count: int = 0
    number: int = 0
    window: Window | None = None
    has_begun: bool = False
    is_done: bool = False


class _Reducer:
    """Makes the records of windows one after another, on a thread of its own, until one of them fails."""

    def __init__(self, reduction: Reduction, fail: Callable[[Exception], None]) -> None:
        self._reduction, self._fail = reduction, fail
        self._due: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="flagscale_perf profile", daemon=True)
        self._thread.start()

    def begin(self, iteration: int | None) -> None:
        self._due.put(partial(self._reduction.begin, iteration, monotonic_ns()))

    def put(self, window: Window) -> None:
        self._due.put(partial(self._reduction.reduce, window))

    def close(self) -> None:
        self._due.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (make := self._due.get()) is not None:
                make()
        except Exception as error:  # unforeseen events: this thread's end must be said, and profiling ends
            self._fail(error)


class _Output:
    def __init__(
        self,
        models: Sequence[nn.Module],
        options: ProfileOptions,
        rank: Rank,
        put: Callable[[Record], None] | None,
        roofs: Mapping[str, int],
    ) -> None:
        self.models, self._options, self._rank, self._put, self._roofs = models, options, rank, put, roofs
        self._job = job_of(options)
        self._membership: Membership | None = None
        self._said: set[str] = set()

    def join(self, ranges: Ranges) -> Reduction:
        """Joins the job's writer; called at the first window."""
        model = type(unwrapped(self.models[0])).__name__ if self.models else ""
        is_compiled = bool(ranges.compiled)
        rank = self._rank.completed(model, is_compiled)
        if self._put is None:
            self._membership = Membership.join(self._job, f"rank {rank.rank}")
        store = Store(self._put_all)
        store.add(RankRecord, **vars(rank), modules=len(ranges.paths))
        for roof, per_second in self._roofs.items():
            store.add(RoofRecord, roof=roof, per_second=per_second)
        return Reduction(
            store,
            self._options,
            COMPILED if is_compiled else UNSEEN,
            attention_paths(self.models) if is_compiled else (),
            CallFiles(self._options.directory) if self._put is None else None,
            self.complain,
        )

    def _put_all(self, records: Sequence[Record]) -> None:
        """Runs on the side thread: if the ring is full, it waits for the writer."""
        if self._put is not None:
            for record in records:
                self._put(record)
        elif self._membership is not None:
            lost = self._membership.put_all(records)
            if lost:
                self.complain(f"{lost} records are lost: the writer took none for a long time", "lost")

    def end(self) -> None:
        if self._membership is not None:
            self._membership.end("completed")
            self._membership = None

    def complain(self, text: str, about: str = "") -> None:
        """Reports a text once. `about`: what texts with different numbers have in common."""
        if (about or text) not in self._said:
            self._said.add(about or text)
            complain(f"flagscale_perf profile: {text}")


class Profiler:
    """A step lies between `begin_step` and `end_step`. Nothing here raises, except for a user's mistake at
    construction; an internal failure is reported once and ends profiling.
    """

    def __init__(
        self,
        models: nn.Module | Sequence[nn.Module],
        options: ProfileOptions,
        *,
        rank: Rank | None = None,
        put: Callable[[Record], None] | None = None,
        roofs: Mapping[str, int] | None = None,
    ) -> None:
        """Starts nothing yet.

        Args:
            models: the model, or the chunks of it that this rank has.
            options: which steps, and what of them.
            rank: what the host knows of this rank; None: what torch.distributed says.
            put: where records go; None: to the writer of the job on this machine.
            roofs: what this rank's device does at best, as `device.roofs.roofs` measures it; None: not known.

        Raises PerfError for options that cannot be meant, the directory included.
        """
        self._schedule = Schedule.of(options)
        self._most_events = options.max_events
        chunks = [models] if isinstance(models, nn.Module) else list(models)
        self._output = _Output(chunks, options, rank or Rank(), put, roofs or {})
        self._ranges: Ranges | None = None
        self._reducer: _Reducer | None = None
        self._phases: dict[str, _Phase] = defaultdict(_Phase)
        self._step: Step | None = None
        self._open_range: Any = None
        self._session: Session | None = None  # that runs
        self._is_on = self._schedule is not None

    @property
    def is_on(self) -> bool:
        """Whether another step may still be profiled."""
        return self._is_on

    def begin_step(self, iteration: int | None = None, phase: str = "train") -> None:
        """Begins a step. `iteration`: as the host counts steps of this phase; None: counted from 1."""
        if not self._is_on:
            return
        self._phases[phase].count += 1
        number = self._phases[phase].count if iteration is None else iteration
        self._phases[phase].number = number
        try:
            self._begin(number, iteration, phase)
        except Exception as error:  # of torch's profiler or a hook, on the training thread: training goes on
            self._fail(error)

    def end_step(
        self, samples: int | None = None, tokens: int | None = None, attended: int | None = None
    ) -> None:
        """Ends the step; without it, a step ends where the next one begins. `attended`: pairs of a query and
        a key, if the shapes of attention do not show them.
        """
        if self._step is None:
            return
        try:
            self._step.attended = attended
            self._end(samples, tokens)
        except Exception as error:  # as in begin_step
            self._fail(error)

    @contextlib.contextmanager
    def step(
        self,
        iteration: int | None = None,
        phase: str = "train",
        samples: int | None = None,
        tokens: int | None = None,
    ) -> Iterator[None]:
        """Makes a block one step."""
        self.begin_step(iteration, phase)
        try:
            yield
        finally:
            self.end_step(samples, tokens)

    def close(self) -> None:
        """Ends any open step and window, and waits until all records are written."""
        try:
            if self._step is not None:
                self._end(None, None)
            for name, phase in self._phases.items():
                self._say_unreached(name, phase)
                self._end_window(phase)
        except Exception as error:  # as in begin_step
            self._fail(error)
        self._is_on = False
        reducer, self._reducer = self._reducer, None
        if reducer is not None:
            reducer.close()
        self._output.end()

    def finish(self) -> None:
        """The same where no more steps are wanted: none is missing."""
        self._is_on = False
        self.close()

    def _say_unreached(self, name: str, phase: _Phase) -> None:
        """What the program ended too early for."""
        if self._schedule is None or not self._is_on or phase.is_done:
            return
        steps, length = self._schedule.steps, self._schedule.length
        if not phase.has_begun:
            self._output.complain(EARLY.format(phase=name, number=phase.number, steps=steps))
        elif steps.every is None and phase.window is not None and phase.window.position < length - 1:
            self._output.complain(
                CUT.format(phase=name, number=phase.number, done=phase.window.position + 1, length=length)
            )

    def __enter__(self) -> Profiler:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _begin(self, number: int, iteration: int | None, phase: str) -> None:
        if self._step is not None:
            self._end(None, None)
        assert self._schedule is not None
        own = self._phases[phase]
        position = None if own.is_done else self._schedule.position(number)
        if position is None:
            return
        if position >= self._schedule.length:
            self._end_window(own)
            if self._schedule.steps.every is None:
                own.is_done = True
                if not own.has_begun:  # as in a training that resumes from a checkpoint
                    every = max(100, self._schedule.length)
                    text = LATE.format(phase=phase, number=number, steps=self._schedule.steps, every=every)
                    self._output.complain(text)
            return
        self._enter_window(own, position, iteration)
        kind = self._schedule.kind(position)
        if kind is Kind.CLEAN:
            self._step = Step(kind, iteration, phase, monotonic_ns())
        elif kind is not Kind.IGNORED:
            self._begin_profiled(Step(kind, iteration, phase))

    def _enter_window(self, phase: _Phase, position: int, iteration: int | None) -> None:
        if phase.window is not None and position < phase.window.position:
            self._end_window(phase)  # steps were left out: this one is of the next window
        if phase.window is None:
            if self._reducer is None:
                self._ranges = Ranges(self._output.models)
                self._reducer = _Reducer(self._output.join(self._ranges), self._end_with)
            self._reducer.begin(iteration)
            phase.window, phase.has_begun = Window(), True
        phase.window.position = position

    def _begin_profiled(self, step: Step) -> None:
        window = self._phases[step.phase].window
        assert self._ranges is not None and window is not None
        newest = max((step.events for step in window.steps), default=0)
        if window.recorded + newest > self._most_events:
            self._output.complain(FULL.format(recorded=window.recorded, most=self._most_events), FULL)
            return
        if kineto.is_running():
            window.reason = BUSY
            self._output.complain(BUSY)
            return
        begin_ns = monotonic_ns()
        detail = step.kind is Kind.DETAILED
        self._session = step.session = Session(shapes=detail, memory=detail)
        self._ranges.attach()
        self._session.start()
        self._step = step
        self._open_range = Range(STEP)
        step.start_ns = monotonic_ns()
        window.begin_ns += step.start_ns - begin_ns
        self._open_range.__enter__()

    def _end(self, samples: int | None, tokens: int | None) -> None:
        step, self._step = self._step, None
        assert step is not None and self._schedule is not None
        window = self._phases[step.phase].window
        assert window is not None
        self._leave()
        end_ns = monotonic_ns()
        step.total_ns = end_ns - step.start_ns
        step.samples, step.tokens = samples, tokens
        step.most = self._most_events
        if step.session is not None:
            step.events = self._stop()
        if step.kind is Kind.PROFILED:
            step.most -= window.recorded
            window.recorded += step.events
        window.add(step)
        if step.session is not None:
            window.end_ns += monotonic_ns() - end_ns
        if window.position == self._schedule.length - 1:
            self._end_window(self._phases[step.phase])

    def _leave(self) -> None:
        entered, self._open_range = self._open_range, None
        if entered is not None:
            entered.__exit__(None, None, None)

    def _stop(self) -> int:
        """Ends profiling of a step, leaving nothing behind, and returns the number of its events."""
        self._leave()
        if self._ranges is not None:
            self._ranges.detach()
        session, self._session = self._session, None
        return 0 if session is None else session.stop()

    def _end_window(self, phase: _Phase) -> None:
        window, phase.window = phase.window, None
        if window is not None and self._reducer is not None:
            self._reducer.put(window)

    def _end_with(self, error: Exception) -> None:
        self._is_on = False
        self._output.complain(f"profiling ends: {type(error).__name__}: {error}")

    def _fail(self, error: Exception) -> None:
        """Reports the failure once; the program goes on as if it had never been profiled."""
        self._is_on = False
        self._step = None
        with contextlib.suppress(Exception):
            self._stop()
        for window in filter(None, (phase.window for phase in self._phases.values())):
            window.reason = f"profiling ended: {type(error).__name__}: {error}"
        if raised_by_signal(error):
            raise error
        self._end_with(error)
