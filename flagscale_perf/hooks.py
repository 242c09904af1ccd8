"""The events of a training loop, and the wall between the monitor and the training.

A host adapter calls a method for each event and passes itself as a `Loop`. An error in one of these methods
never reaches the host: it is counted, reported once, and switches the monitor off. This module knows no host.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import thread_time_ns
from typing import Any, Concatenate, ParamSpec

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device.probe import DeviceProbe, current_device
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.perf_logger import PerfLogger
from flagscale_perf.perf_metrics import StepMeter
from flagscale_perf.spine.clock import monotonic_ns, process_start_ns
from flagscale_perf.spine.errors import raised_by_signal, traceback_lines
from flagscale_perf.spine.language import learn, live
from flagscale_perf.spine.units import put_lines
from flagscale_perf.training.curves import logged_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.ranks.logger import RankLogger
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.recording.budget import Budget
from flagscale_perf.training.recording.doing import MakeProfile, Whereabouts, answer
from flagscale_perf.training.recording.ended import end_reason, lost_connection
from flagscale_perf.training.recording.loop import (
    CountFlops,
    Loop,
    Pause,
    StepNumbers,
    StepProfile,
    WorkCounter,
)
from flagscale_perf.training.recording.session import facts_and_flops, identity_of, unknown_flops

__all__ = ["Loop", "Pause", "StepNumbers", "StepProfile", "TrainingHooks"]

Params = ParamSpec("Params")
_live: weakref.WeakSet[TrainingHooks] = weakref.WeakSet()
JUDGED_STEPS = (10, 100)  # the monitor's cost is judged over at least and at most so many steps


def _guarded(
    event: Callable[Concatenate[TrainingHooks, Params], None],
) -> Callable[Concatenate[TrainingHooks, Params], None]:
    """The wall: an `event` that raises switches the monitor off, and training continues."""

    def guarded(self: TrainingHooks, /, *args: Params.args, **kwargs: Params.kwargs) -> None:
        try:
            event(self, *args, **kwargs)
        except Exception as error:  # whatever it is: no failure of the monitor may end a training
            self._failed(event.__name__, error)

    functools.update_wrapper(guarded, event)
    return guarded


def _metered(
    event: Callable[Concatenate[TrainingHooks, int, Params], None],
) -> Callable[Concatenate[TrainingHooks, Params], None]:
    """The same wall, with the time that the event takes as the monitor's own cost.

    The event gets the meter's first reading as the time at which it happened.
    """

    def metered(self: TrainingHooks, /, *args: Params.args, **kwargs: Params.kwargs) -> None:
        now_ns = monotonic_ns()
        try:
            begun_ns = thread_time_ns() if self._monitor.weighs else 0
            event(self, now_ns, *args, **kwargs)
            notes = self._monitor.notes
            if begun_ns:
                notes.cpu_ns += thread_time_ns() - begun_ns
            notes.spent_ns += monotonic_ns() - now_ns
        except Exception as error:  # whatever it is: no failure of the monitor may end a training
            self._failed(event.__name__, error)

    functools.update_wrapper(metered, event)
    return metered


class TrainingHooks:
    """One per process.

    Attributes:
        active: False unless this process monitors; adapters test it before anything else.
        entered: whether a training loop has ever begun, monitored or not.
        mark: takes the marks (`training.marks`) of the train step that is under way; None outside of one and
            where they are not recorded. It is called for every phase, hence directly: an adapter gives what
            it raises to `phase_failed`.
        time_mark: measures how long an adapter takes to reach `mark`, in nanoseconds; set by adapters that
            record phases.
        profile: takes steps apart, where an adapter has been asked for that; None otherwise.
        job: what all ranks of this start of the training have in common, and no other training.
    """

    def __init__(self) -> None:
        self.active = self.entered = False
        self.profile: StepProfile | None = None
        self.job = ""
        self.mark: Callable[[int], None] | None = None
        self.time_mark: Callable[[], int] = lambda: 0
        self._noted: set[str] = set()
        self._loop: Loop
        self._monitor: StepMeter
        self._logger: PerfLogger | RankLogger | None = None
        self._say: Callable[[str], None]
        self._debug = False
        self._has_failed = False
        self._has_trained = False
        self._has_others = False
        _live.add(self)

    @property
    def takes_marks(self) -> bool:
        """Whether the training that has begun records phases."""
        return self._monitor.timeline is not None

    @_guarded
    def attach(self, action: Callable[[], None]) -> None:
        """An adapter's own preparation, behind the wall."""
        action()

    @_guarded
    def train_start(self, loop: Loop) -> None:
        """The host is about to enter its loop; everything is set up."""
        self.entered, self._has_failed = True, False  # a failure of a later training is said, too
        config = loop.config()
        rank, place = loop.rank(), Place.of(os.environ)
        if not config.enable_perf_monitor or (rank and place is None):  # rank 0 could not find what it stores
            return
        self._debug = config.perf_debug
        self._loop = loop
        self.job = f"process {os.getpid()}" if place is None else place.key
        device = current_device(loop.rehearsing)
        logger: PerfLogger | RankLogger
        if place is not None and rank:
            logger, facts, flops = self._begin_storing(config, place, device)
        else:
            logger, facts, flops = self._begin_recording(config, place, device)
        memory_interval = config.perf_log_interval if config.perf_memory_tracking else 0
        monitor = StepMeter(logger.step, flops, device, memory_interval, facts.resume_iteration)
        if config.perf_breakdown and loop.names_phases():
            monitor.timeline = device.timeline(self.time_mark())
        judged_steps = min(max(config.perf_log_interval, JUDGED_STEPS[0]), JUDGED_STEPS[1])
        monitor.budget = Budget(config.perf_max_overhead / 100, judged_steps)
        self._monitor, self._noted = monitor, set()
        self.active = True
        self.profile_on_request(None)

    def _begin_recording(
        self, config: PerfConfig, place: Place | None, device: DeviceProbe
    ) -> tuple[PerfLogger, RunFacts, CountFlops]:
        """Begins on rank 0, which writes the files of the run."""
        loop = self._loop
        facts, flops = facts_and_flops(loop, config, device)
        if not self._has_trained:  # a later training of the same process does not begin with it
            self._has_trained, facts = True, replace(facts, process_start_ns=process_start_ns())
        self._has_others = place is not None and place.world_size > 1
        learn()
        self._say = loop.say
        identity = identity_of(loop, device) if self._has_others else None
        self._logger = logger = PerfLogger.start(config, facts, loop.say, identity)
        for reason in facts.missing:
            loop.say(live(f"flagscale_perf: not available: {reason}"))
        if facts.resume_iteration:
            text = f"resumed after iteration {facts.resume_iteration}"
            logger.event("resume", facts.resume_iteration, text)
        return logger, facts, flops

    def _begin_storing(
        self, config: PerfConfig, place: Place, device: DeviceProbe
    ) -> tuple[RankLogger, RunFacts, CountFlops]:
        """Begins on any other rank, which only measures: rank 0 counts the work and prints the messages."""
        self._say = lambda _: None  # rank 0 reports what is stored here
        self._logger = logger = RankLogger.start(place, identity_of(self._loop, device), config.perf_log_dir)
        return logger, self._loop.facts(device.name), unknown_flops

    def profile_on_request(self, make: MakeProfile | None) -> None:
        """Called on the thread that trains. `make`: a profile of some iterations; None without a model."""
        if self._logger is not None:
            self._logger.answer_by(functools.partial(answer, self, threading.get_ident(), make))

    def whereabouts(self) -> Whereabouts:
        """Where the training is, for a side thread."""
        return self._monitor.whereabouts()

    def loop_top(self) -> None:
        """The loop begins a new pass."""
        self._monitor.notes.loop_top_ns = monotonic_ns()

    # The next two are the wall and the meter again, in place of a decorator: it would double their calls, and
    # in a real training each call here costs microseconds (docs/operations.md).

    def step_start(self) -> None:
        """A train step begins."""
        if self.profile is not None:
            self._begin_profile(self.profile)
        now_ns = monotonic_ns()
        try:
            monitor = self._monitor
            begun_ns = thread_time_ns() if monitor.weighs else 0
            finished, consumed = self._loop.position()
            monitor.step_start(now_ns, finished, consumed)
            if monitor.verdict is not None:
                self._note(monitor.keep_within(), "shed")
            timeline = monitor.timeline
            self.mark = None if timeline is None else timeline.mark
            counter = monitor.notes.counter
            if counter is not None:
                counter.begin()
            if begun_ns:
                monitor.notes.cpu_ns += thread_time_ns() - begun_ns
            monitor.notes.spent_ns += monotonic_ns() - now_ns
        except Exception as error:  # whatever it is: no failure of the monitor may end a training
            self._failed("step_start", error)

    def step_end(self, result: Any) -> None:
        """A train step returned `result`."""
        now_ns = monotonic_ns()
        self.mark = None
        try:
            monitor = self._monitor
            begun_ns = thread_time_ns() if monitor.weighs else 0
            numbers = self._loop.numbers(result)
            if numbers is not None:
                monitor.step_end(now_ns, numbers)
                counter = monitor.notes.counter
                if counter is not None:
                    self._take_work(counter)
                timeline = monitor.timeline
                if timeline is not None and timeline.trouble:
                    self._note(f"phases are not known for every iteration: {timeline.trouble}")
            if begun_ns:
                monitor.notes.cpu_ns += thread_time_ns() - begun_ns
            monitor.notes.spent_ns += monotonic_ns() - now_ns
            if self.profile is not None:
                self.profile.end(numbers)
        except Exception as error:  # whatever it is: no failure of the monitor may end a training
            self._failed("step_end", error)

    @_metered
    def count(
        self, now_ns: int, add: Callable[[Sequence[Any], bool], None], batches: Sequence[Any], begins: bool
    ) -> None:
        """An adapter's loop counts micro-batches of a step, which `begins` with them or has had others."""
        add(batches, begins)

    def count_by(self, counter: WorkCounter) -> None:
        """Has this rank's work counted, in the training that has begun."""
        self._monitor.notes.counter = counter

    def _take_work(self, counter: WorkCounter) -> None:
        notes = self._monitor.notes
        tokens, squared_lengths, _ = notes.work = counter.take()
        notes.spent_ns += counter.spent_ns
        if counter.ranks and tokens is not None and squared_lengths is not None:
            self._monitor.packed(Packed(tokens * counter.ranks, squared_lengths * counter.ranks))

    @_guarded
    def _begin_profile(self, profile: StepProfile) -> None:
        """Starts the profiler; called before the monitor's own clock starts, as it takes time."""
        profile.begin(self._loop.position()[0] + 1)

    def _end_profile(self) -> None:
        profile, self.profile = self.profile, None
        if profile is not None:
            profile.close()

    def phase_failed(self, error: Exception, event: str = "a phase") -> None:
        """A mark, or other work of an adapter for an `event` outside the wall, raised `error`."""
        self._failed(event, error)

    def logged(self, real_tokens: int | None, squared_lengths: int | None) -> None:
        """The host logs the step, with the sums over its packed documents of their lengths and squared
        lengths where it has them.
        """
        self._monitor.notes.logged_ns = monotonic_ns()
        if real_tokens is not None or squared_lengths is not None:
            self.packed(Packed(real_tokens, squared_lengths))

    @_metered
    def printed(self, now_ns: int, line: Any) -> None:
        """The host prints a line by its last rank's function; rank 0 keeps the figures of those on steps."""
        if isinstance(self._logger, PerfLogger) and (logged := logged_of(line, now_ns)) is not None:
            self._logger.put(logged)

    @_metered
    def packed(self, now_ns: int, packed: Packed | None) -> None:
        """The documents packed into the step that has ended; None: their lengths are not known."""
        self._monitor.packed(packed)

    @_metered
    def pause(self, now_ns: int, kind: Pause) -> None:
        """Evaluation or checkpoint saving begins."""
        self._monitor.pause(kind, now_ns)

    @_metered
    def resume(self, now_ns: int, kind: Pause) -> None:
        """Evaluation or checkpoint saving ends."""
        self._monitor.resume(kind, now_ns)

    @_metered
    def data_skipped(self, now_ns: int, start_ns: int) -> None:
        """The host has skipped one iteration's data, since `start_ns`."""
        self._monitor.data_skipped(start_ns, now_ns, self._loop.skipped_samples())

    @_metered
    def loop_left(self, now_ns: int) -> None:
        """The loop has ended; the host cleans up."""
        self._monitor.loop_left(now_ns)

    def train_end(self, error: BaseException | None) -> None:
        """The host leaves its loop: normally (None), or by `error`, which the host raises."""
        self.active, self.mark = False, None
        self._end_profile()
        if self._logger is not None:
            self._finish(lost_connection(error))
            self._end(end_reason(error))
        vars(self).pop("_loop", None)  # the host's model may hang on it

    @_guarded
    def _finish(self, lost: str) -> None:
        self.profile_on_request(None)  # what it is made by knows the host's model
        self._monitor.finish(monotonic_ns())
        if lost and isinstance(self._logger, PerfLogger):
            self._logger.event("rank", self._monitor.iteration, lost)

    @_guarded
    def _end(self, reason: str) -> None:
        """Ends the recording. With other ranks the files are waited for only at the process's end, as those
        ranks would wait for rank 0 in the host's next collective.
        """
        logger, self._logger = self._logger, None
        if logger is None:
            return
        logger.end(reason)
        if not isinstance(logger, RankLogger):
            if self._has_others:
                atexit.register(self._farewell, logger, reason)
            else:
                self._farewell(logger, reason)

    @_guarded
    def _farewell(self, logger: PerfLogger, reason: str) -> None:
        if summary := logger.close(reason):
            self._say(live(f"flagscale_perf: summary in {summary}"))

    @_guarded
    def note(self, text: str) -> None:
        """A remark of an adapter: recorded as an event, and printed once a session."""
        self._note(text)

    def _note(self, text: str, name: str = "note") -> None:
        if text and text not in self._noted and self._logger is not None:
            self._noted.add(text)
            self._logger.event(name, self._monitor.iteration, text)
            self._say(live(f"flagscale_perf: {text}"))

    def _failed(self, event: str, error: Exception) -> None:
        """Switches the monitor off and reports it once. Raises what is the host's own."""
        if raised_by_signal(error):
            raise error
        self.active, self.mark = False, None
        self._end_profile()
        if self._has_failed:
            return
        self._has_failed = True
        line = f"monitor switched off at {event}: {type(error).__name__}"
        # An exception may have no text; the logger may be what failed; stderr may be closed, or anything that
        # the host has put there: none of them is a reason to end a training.
        with contextlib.suppress(Exception):
            line += f": {error}"
        with contextlib.suppress(Exception):
            if self._logger is not None:
                self._logger.event("failure", self._monitor.iteration, line)
        with contextlib.suppress(Exception):
            line = live(f"flagscale_perf: {line} (training goes on without it)")
            put_lines(sys.stderr, line, *traceback_lines(self._debug))


def _leave_child() -> None:
    for hooks in list(_live):  # what a forked child does is no part of its parent's training
        hooks.active, hooks.mark, hooks._logger, hooks.profile = False, None, None, None


os.register_at_fork(after_in_child=_leave_child)
