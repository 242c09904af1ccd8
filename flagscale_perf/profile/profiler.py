"""Profiles steps of models in this process; the host only says where a step begins and ends."""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from torch import nn

from flagscale_perf.profile import kineto
from flagscale_perf.profile.calls import CallFiles
from flagscale_perf.profile.causal import Experiment
from flagscale_perf.profile.compiled import attention_paths
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.options import ProfileOptions
from flagscale_perf.profile.ranges import STEP, Ranges, unwrapped
from flagscale_perf.profile.rank import Rank
from flagscale_perf.profile.schedule import Kind, Schedule
from flagscale_perf.profile.store import Store
from flagscale_perf.profile.task import job_of
from flagscale_perf.profile.window import Reduction, Step, Window
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
COMPILED = "the model is compiled: what runs is not the modules' own Python, so that they have no ranges"
TRAIN = "train"
NOT_TRAINING = "delays are planted in training steps alone: {phase} steps are left as they are"
UNSEEN = (
    "no operator ran in any module of the model: is the profiled model the one that runs, in this process?"
)


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

        Raises PerfError for options that cannot be meant.
        """
        self._schedule = Schedule.of(options)
        self._options = options
        self._models = [models] if isinstance(models, nn.Module) else list(models)
        self._rank = rank or Rank()
        self._put = put
        self._roofs = roofs or {}
        self._membership: Membership | None = None
        self._ranges: Ranges | None = None
        self._reduction: Reduction | None = None
        self._experiment: Experiment | None = None  # that has not yet ended
        if options.causal is not None:
            self._experiment = Experiment(self._models, options.causal, self._rank.number)
        self._windows: dict[str, Window] = {}  # by phase: each has steps of its own
        self._step: Step | None = None
        self._open_range: Any = None
        self._session: Session | None = None  # that runs
        self._counts: Counter[str] = Counter()
        self._done: set[str] = set()  # phases that have had their only window
        self._begun: set[str] = set()  # phases that have had any
        self._over: SimpleQueue[Window | Experiment | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_on = self._schedule is not None
        self._said: set[str] = set()

    @property
    def is_on(self) -> bool:
        """Whether another step may still be profiled."""
        return self._is_on

    def begin_step(self, iteration: int | None = None, phase: str = "train") -> None:
        """Begins a step. `iteration`: as the host counts the steps of this phase; None: counted here, from
        1.
        """
        if not self._is_on:
            return
        self._counts[phase] += 1
        number = self._counts[phase] if iteration is None else iteration
        try:
            self._begin(number, iteration, phase)
        except Exception as error:
            self._fail(error)

    def end_step(
        self, samples: int | None = None, tokens: int | None = None, attended: int | None = None
    ) -> None:
        """Ends the step; without it, a step ends where the next one begins. `attended`: pairs of a query and
        a key, if the shapes of attention do not show them.
        """
        if self._step is None and self._experiment is None:
            return
        try:
            if self._step is not None:
                self._step.attended = attended
                self._end(samples, tokens)
            elif self._experiment is not None:
                self._experiment.end_step()
                if self._experiment.is_over:
                    self._end_experiment()
        except Exception as error:
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
            for phase in list(self._windows):
                self._end_window(phase)
            self._end_experiment()
        except Exception as error:
            self._fail(error)
        self._is_on = False
        self._end_thread()
        if self._membership is not None:
            self._membership.end("completed")
            self._membership = None

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
        if self._experiment is not None:
            self._begin_experiments_step(self._experiment, number, phase)
        position = None if phase in self._done else self._schedule.position(number)
        if position is None:
            return
        if position >= self._schedule.length:
            self._end_window(phase)
            if self._schedule.steps.every is None:
                self._done.add(phase)
                self._say_late(number, phase)
            return
        window = self._windows.get(phase)
        if window is not None and position < window.position:  # steps were left out, and it is the next one
            self._end_window(phase)
        if phase not in self._windows:
            self._begin_window(phase)
        self._windows[phase].position = position
        kind = self._schedule.kind(position)
        if kind is Kind.CLEAN:
            self._step = Step(kind, iteration, phase, monotonic_ns())
        elif kind is not Kind.IGNORED:
            self._begin_profiled(Step(kind, iteration, phase))

    def _begin_window(self, phase: str) -> None:
        if self._reduction is None:
            self._reduction = self._joined()
            self._thread = threading.Thread(target=self._reduce, name="flagscale_perf profile", daemon=True)
            self._thread.start()
        self._windows[phase] = Window()
        self._begun.add(phase)

    def _begin_experiments_step(self, experiment: Experiment, number: int, phase: str) -> None:
        """Begins a step that may be delayed, if enough steps have passed since the window."""
        assert self._schedule is not None and self._options.causal is not None
        experiment.end_step()
        position = number - self._schedule.causal_first
        if phase != TRAIN:
            self._complain(NOT_TRAINING.format(phase=phase), NOT_TRAINING)
        elif position >= self._options.causal.length or (position >= 0 and phase not in self._begun):
            self._end_experiment()
        elif position >= 0:
            experiment.begin_step(position, number)

    def _end_experiment(self) -> None:
        experiment, self._experiment = self._experiment, None
        if experiment is not None:
            experiment.end_step()
            experiment.close()
            if experiment.taken:
                self._over.put(experiment)

    def _say_late(self, number: int, phase: str) -> None:
        """Reports that the only window was over before the first step, as in a training that resumes from a
        checkpoint.
        """
        if phase not in self._begun:
            assert self._schedule is not None
            every = max(100, self._schedule.length)
            text = LATE.format(phase=phase, number=number, steps=self._schedule.steps, every=every)
            self._complain(text)

    def _joined(self) -> Reduction:
        """At the first window: inspects the modules and joins the job's writer."""
        self._ranges = Ranges(self._models)
        model = type(unwrapped(self._models[0])).__name__ if self._models else ""
        is_compiled = bool(self._ranges.compiled)
        rank = self._rank.completed(model, is_compiled)
        if self._put is None:
            self._membership = Membership.join(job_of(self._options), f"rank {rank.rank}")
        store = Store(self._put_all)
        store.add_rank(rank, len(self._ranges.paths))
        store.add_roofs(self._roofs)
        return Reduction(
            store,
            self._options,
            COMPILED if is_compiled else UNSEEN,
            attention_paths(self._models) if is_compiled else (),
            CallFiles(self._options.directory) if self._put is None else None,
            self._complain,
        )

    def _put_all(self, records: Sequence[Record]) -> None:
        """Runs on the side thread: if the ring is full, it waits for the writer."""
        if self._put is not None:
            for record in records:
                self._put(record)
        elif self._membership is not None:
            lost = self._membership.put_all(records)
            if lost:
                self._complain(f"{lost} records are lost: the writer took none for a long time", "lost")

    def _begin_profiled(self, step: Step) -> None:
        assert self._ranges is not None
        window = self._windows[step.phase]
        newest = max((step.events for step in window.steps), default=0)
        if window.recorded + newest > self._options.max_events:
            self._complain(FULL.format(recorded=window.recorded, most=self._options.max_events), FULL)
            return
        if kineto.is_running():
            window.reason = BUSY
            self._complain(BUSY)
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
        window = self._windows[step.phase]
        self._leave()
        end_ns = monotonic_ns()
        step.total_ns = end_ns - step.start_ns
        step.samples, step.tokens = samples, tokens
        step.most = self._options.max_events
        if step.session is not None:
            step.events = self._stop()
        if step.kind is Kind.PROFILED:
            step.most -= window.recorded
            window.recorded += step.events
        window.add(step)
        if step.session is not None:
            window.end_ns += monotonic_ns() - end_ns
        if window.position == self._schedule.length - 1:
            self._end_window(step.phase)

    def _leave(self) -> None:
        """Closes the range of the step."""
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

    def _end_window(self, phase: str) -> None:
        window = self._windows.pop(phase, None)
        if window is not None:
            self._over.put(window)

    def _reduce(self) -> None:
        """Makes the records of windows one after another, on a thread of its own."""
        try:
            while (done := self._over.get()) is not None:
                assert self._reduction is not None
                if isinstance(done, Window):
                    self._reduction.reduce(done)
                else:
                    self._reduction.store.add_delays(done.taken)
                    self._reduction.store.flush()
        except Exception as error:
            self._is_on = False
            self._say(error)

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._over.put(None)
            thread.join()

    def _fail(self, error: Exception) -> None:
        """Reports the failure once; the program goes on as if it had never been profiled."""
        self._is_on = False
        self._step = None
        experiment, self._experiment = self._experiment, None
        with contextlib.suppress(Exception):
            if experiment is not None:
                experiment.close()
        with contextlib.suppress(Exception):
            self._stop()
        for window in self._windows.values():
            window.reason = f"profiling ended: {type(error).__name__}: {error}"
        if raised_by_signal(error):
            raise error
        self._say(error)

    def _say(self, error: Exception) -> None:
        self._complain(f"profiling ends: {type(error).__name__}: {error}")

    def _complain(self, text: str, about: str = "") -> None:
        """Reports a text once. `about`: what texts with different numbers have in common."""
        if (about or text) not in self._said:
            self._said.add(about or text)
            complain(f"flagscale_perf profile: {text}")
