"""The training loop's events, and the wall between the monitor and the training.

A host adapter calls one method per event and hands itself in as a `Loop`; whatever goes wrong behind these
methods stays behind them: it is counted, said once, and switches the monitor off. This module knows no host.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import sys
import weakref
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVarTuple

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device.peak_option import PeakOption
from flagscale_perf.device.peaks import mean_peak, peak_in_force
from flagscale_perf.device.probe import DeviceProbe, current_device
from flagscale_perf.flops_calculator import ModelShape, Packed, step_flops
from flagscale_perf.perf_logger import PerfLogger
from flagscale_perf.perf_metrics import Budget, CountFlops, Flops, Pause, PerfMonitor, StepNumbers
from flagscale_perf.spine.clock import monotonic_ns, process_start_ns
from flagscale_perf.spine.errors import PerfError, raised_by_signal, traceback_lines
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import ONE_F_ONE_B
from flagscale_perf.training.ranks.blocks import RankIdentity
from flagscale_perf.training.ranks.logger import RankLogger
from flagscale_perf.training.ranks.place import Place
from flagscale_perf.training.records import MarksRecord, StepRecord

__all__ = ["Loop", "Pause", "StepNumbers", "TrainingHooks"]

Params = ParamSpec("Params")
Given = TypeVarTuple("Given")
_live: weakref.WeakSet[TrainingHooks] = weakref.WeakSet()
JUDGED_STEPS = (10, 100)  # at least and at most so many make a judgement of the monitor's cost


class Loop(Protocol):
    """What a host adapter can be asked. Every answer is read from the host at the time of the call.

    Attributes:
        rehearsing: torch.cuda calls land on the CPU.
    """

    rehearsing: bool

    def rank(self) -> int:
        """This process's number in the job; 0 is the one that writes."""

    def stage(self) -> int:
        """Its place in the pipeline, from 0."""

    def lockstep(self) -> int:
        """See `RankIdentity`."""

    def config(self) -> PerfConfig:
        """The options in force. Raises PerfError."""

    def facts(self, device: str) -> RunFacts:
        """What the host knows about the run; `device` is the device's name. Peak and model are filled in
        here.
        """

    def device_types(self) -> Mapping[str, int]:
        """Type of device -> how many ranks have one, where a job knows that its devices differ; else
        empty.
        """

    def model_args(self) -> Any:
        """The host's arguments that describe the model (read only)."""

    def position(self) -> tuple[int, int]:
        """Iterations finished or skipped and samples consumed before the step that begins now."""

    def numbers(self, result: Any) -> StepNumbers | None:
        """Of the step that has just returned `result`; None when the host does not count it as an
        iteration.
        """

    def skipped_samples(self) -> int:
        """Samples the host is passing over without a step."""

    def names_phases(self) -> bool:
        """Whether `TrainingHooks.mark` will be told the phases."""

    def say(self, line: str) -> None:
        """Prints through the host's rank-0 printing."""


def _guarded(
    event: Callable[Concatenate[TrainingHooks, Params], None],
) -> Callable[Concatenate[TrainingHooks, Params], None]:
    """The wall: an `event` that raises switches the monitor off and training goes on."""

    def guarded(self: TrainingHooks, /, *args: Params.args, **kwargs: Params.kwargs) -> None:
        try:
            event(self, *args, **kwargs)
        except Exception as error:
            self._failed(event.__name__, error)

    functools.update_wrapper(guarded, event)
    return guarded


def _measured(event: Callable[[TrainingHooks, int, *Given], None]) -> Callable[[TrainingHooks, *Given], None]:
    """The same wall around an `event` of each step, with a meter: what the event takes is the monitor's own
    cost.

    The event gets the meter's first reading as the time at which it happened.
    """

    def measured(self: TrainingHooks, /, *given: *Given) -> None:
        now_ns = monotonic_ns()
        try:
            event(self, now_ns, *given)
            self._monitor.self_ns += monotonic_ns() - now_ns
        except Exception as error:
            self._failed(event.__name__, error)

    functools.update_wrapper(measured, event)
    return measured


class TrainingHooks:
    """One per process.

    Attributes:
        active: False unless this process monitors; adapters test it before anything else.
        entered: whether a training loop has ever begun, monitored or not.
        mark: takes the marks (`training.marks`) of the train step that is under way; None outside of one and
            where they are not recorded. It is called for every phase, hence directly: an adapter gives what
            it raises to `phase_failed`.
        time_mark: measures how long an adapter's way to `mark` takes, in nanoseconds; set by the adapter that
            tells phases.
    """

    def __init__(self) -> None:
        self.active = self.entered = False
        self.mark: Callable[[int], None] | None = None
        self.time_mark: Callable[[], int] = lambda: 0
        self._budget: Budget
        self._max_overhead = 0.0
        self._noted: set[str] = set()
        self._loop: Loop
        self._monitor: PerfMonitor
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
        if not config.enable_perf_monitor or (rank and place is None):  # nobody would find what it stores
            return
        self._debug = config.perf_debug
        self._loop = loop
        device = current_device(loop.rehearsing)
        if place is not None and rank:
            facts, flops = self._begin_telling(config, place, device)
        else:
            facts, flops = self._begin_recording(config, place, device)
        memory_interval = config.perf_log_interval if config.perf_memory_tracking else 0
        self._monitor = PerfMonitor(self._emit, flops, device, memory_interval, facts.resume_iteration)
        if config.perf_breakdown and loop.names_phases():
            self._monitor.timeline = device.timeline(self.time_mark())
        self._max_overhead = config.perf_max_overhead
        self._budget = Budget(
            config.perf_max_overhead / 100,
            min(max(config.perf_log_interval, JUDGED_STEPS[0]), JUDGED_STEPS[1]),
        )
        self._noted = set()
        self.active = True

    def _begin_recording(
        self, config: PerfConfig, place: Place | None, device: DeviceProbe
    ) -> tuple[RunFacts, CountFlops]:
        """Rank 0 writes the run's files."""
        loop = self._loop
        facts, flops = _facts_and_flops(loop, config, device)
        if not self._has_trained:  # a later training of the same process does not begin with it
            self._has_trained, facts = True, replace(facts, process_start_ns=process_start_ns())
        self._has_others = place is not None and place.world_size > 1
        self._say = loop.say
        self._logger = PerfLogger.start(
            config, facts, loop.say, _identity(loop, device) if self._has_others else None
        )
        for reason in facts.missing:
            loop.say(f"flagscale_perf: not available: {reason}")
        if facts.resume_iteration:
            self._logger.event(
                "resume", facts.resume_iteration, f"resumed after iteration {facts.resume_iteration}"
            )
        return facts, flops

    def _begin_telling(
        self, config: PerfConfig, place: Place, device: DeviceProbe
    ) -> tuple[RunFacts, CountFlops]:
        """Any other rank only measures; rank 0 counts the work and says what there is to say."""
        self._say = _say_nothing
        self._logger = RankLogger.start(place, _identity(self._loop, device), config.perf_log_dir)
        return self._loop.facts(device.name), _unknown_flops

    def loop_top(self) -> None:
        """The loop begins a new pass."""
        self._monitor.loop_top_ns = monotonic_ns()

    @_measured
    def step_start(self, now_ns: int) -> None:
        """A train step begins."""
        finished, consumed = self._loop.position()
        monitor = self._monitor
        monitor.step_start(now_ns, finished, consumed)
        self.mark = None if monitor.timeline is None else monitor.timeline.mark

    @_measured
    def step_end(self, now_ns: int, result: Any) -> None:
        """A train step returned `result`."""
        self.mark = None
        numbers = self._loop.numbers(result)
        if numbers is None:
            return
        self._monitor.step_end(now_ns, numbers)
        timeline = self._monitor.timeline
        if timeline is not None and timeline.trouble:
            self._note(f"phases are not known for every iteration: {timeline.trouble}")

    def phase_failed(self, error: Exception, event: str = "a phase") -> None:
        """A mark on the timeline raised, or what else an adapter does for an `event` outside of the wall."""
        self._failed(event, error)

    def logged(self, real_tokens: int | None, squared_lengths: int | None) -> None:
        """The host logs the step; sums over its packed documents of their lengths and the squares of these,
        where it has them.
        """
        self._monitor.logged_ns = monotonic_ns()
        if real_tokens is not None or squared_lengths is not None:
            self._told_packed(Packed(real_tokens, squared_lengths))

    @_measured
    def _told_packed(self, now_ns: int, packed: Packed) -> None:
        self._monitor.packed(packed)

    @_measured
    def pause(self, now_ns: int, kind: Pause) -> None:
        """Evaluation or checkpoint saving begins."""
        self._monitor.pause(kind, now_ns)

    @_measured
    def resume(self, now_ns: int, kind: Pause) -> None:
        """It ends."""
        self._monitor.resume(kind, now_ns)

    @_measured
    def data_skipped(self, now_ns: int, start_ns: int) -> None:
        """The host has passed over one iteration's data, since `start_ns`."""
        self._monitor.data_skipped(start_ns, now_ns, self._loop.skipped_samples())

    @_measured
    def loop_left(self, now_ns: int) -> None:
        """The loop is over, the host tidies up."""
        self._monitor.loop_left(now_ns)

    def train_end(self, error: BaseException | None) -> None:
        """The host leaves its loop: normally (None), or by `error`, which stays the host's to raise."""
        self.active, self.mark = False, None
        if self._logger is not None:
            self._finish()
            self._end(_reason(error))
        vars(self).pop("_loop", None)  # the host's model may hang on it

    @_guarded
    def _finish(self) -> None:
        self._monitor.finish(monotonic_ns())

    @_guarded
    def _end(self, reason: str) -> None:
        """With other ranks the files are waited for when the process ends: here, the others would wait in the
        host's next collective.
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
            self._say(f"flagscale_perf: summary in {summary}")

    def _emit(self, record: StepRecord | MarksRecord) -> None:
        """Keeps the record, and the monitor's cost within its budget."""
        if self._logger is not None:
            self._logger.step(record)
        if type(record) is StepRecord:
            taken = self._budget.add(record)
            if taken is not None and self.active and (part := self._monitor.shed()):
                limit = f"more than --perf-max-overhead {self._max_overhead:g} allows"
                self._note(
                    f"{part} switched off: the monitor takes {taken * 100:.2g} % of the time, {limit}", "shed"
                )

    def _note(self, text: str, name: str = "note") -> None:
        """Records an event and says it, once a session."""
        if text not in self._noted and self._logger is not None:
            self._noted.add(text)
            self._logger.event(name, self._monitor.iteration, text)
            self._say(f"flagscale_perf: {text}")

    def _failed(self, event: str, error: Exception) -> None:
        """Switches the monitor off and says so, once. Raises what is the host's own."""
        if raised_by_signal(error):
            raise error
        self.active, self.mark = False, None
        if self._has_failed:
            return
        self._has_failed = True
        line = f"monitor switched off at {event}: {type(error).__name__}"
        with contextlib.suppress(Exception):  # an exception may have no text
            line += f": {error}"
        with contextlib.suppress(
            Exception
        ):  # the logger may be what failed; the line below says it all the same
            if self._logger is not None:
                self._logger.event("failure", self._monitor.iteration, line)
        with contextlib.suppress(
            Exception
        ):  # a closed stderr, or whatever the host has put there, is no reason to end a training
            said = [f"flagscale_perf: {line} (training goes on without it)", *traceback_lines(self._debug)]
            print("\n".join(said), file=sys.stderr, flush=True)


def _leave_child() -> None:
    for hooks in list(_live):  # what a forked child does is no part of its parent's training
        hooks.active, hooks.mark, hooks._logger = False, None, None


os.register_at_fork(after_in_child=_leave_child)


def _identity(loop: Loop, device: DeviceProbe) -> RankIdentity:
    return RankIdentity(
        loop.rank(), os.uname().nodename, os.getpid(), device.name, device.uuid, loop.stage(), loop.lockstep()
    )


def _say_nothing(line: str) -> None:
    """Of ranks other than 0; what they have to tell, rank 0 says."""


def _facts_and_flops(loop: Loop, config: PerfConfig, device: DeviceProbe) -> tuple[RunFacts, CountFlops]:
    facts = replace(loop.facts(device.name), device_uuid=device.uuid, device_memory_bytes=device.memory_bytes)
    if device.uuid is None:
        facts = replace(
            facts, missing=[*facts.missing, f"hardware counters ({device.name} has no id to find them by)"]
        )
    if facts.world_size > 1 and Place.of(os.environ) is None:
        facts = replace(
            facts,
            missing=[*facts.missing, "other ranks (the environment has no RANK, WORLD_SIZE and LOCAL_RANK)"],
        )
    facts = _with_peak(loop, config, facts)
    if config.perf_breakdown:
        facts = replace(facts, missing=[*facts.missing, *_missing_phases(loop, facts)])
    try:
        shape = ModelShape.from_args(loop.model_args())
    except PerfError as error:
        return replace(facts, missing=[*facts.missing, f"TFLOPS, MFU and HFU ({error})"]), _unknown_flops
    if not shape.recompute.known:
        facts = replace(
            facts, missing=[*facts.missing, "HFU (recomputation varies by pipeline stage and micro-batch)"]
        )
    facts = replace(facts, model_family=shape.family, model=shape.as_dict())
    return facts, _flops_of(shape, facts.seq_length or 0)


def _with_peak(loop: Loop, config: PerfConfig, facts: RunFacts) -> RunFacts:
    given = None if config.perf_peak_tflops is None else PeakOption.parse(config.perf_peak_tflops)
    ranks = loop.device_types()
    peak = (
        mean_peak(given, ranks, facts.world_size)
        if len(ranks) > 1
        else peak_in_force(given, facts.device, facts.dtype or "")
    )
    return replace(facts, peak_flop_per_s=peak.flop_per_s, peak_source=peak.source)


def _missing_phases(loop: Loop, facts: RunFacts) -> list[str]:
    if not loop.names_phases():
        return ["phases (the host has no timers to tell them)"]
    if facts.pipeline_schedule not in (None, ONE_F_ONE_B):
        return [
            f"pipeline bubble (it is known for the {ONE_F_ONE_B} schedule only, this one is {facts.pipeline_schedule})"
        ]
    return []


def _unknown_flops(samples: int, packed: Packed | None) -> Flops:
    return None, None


def _flops_of(shape: ModelShape, seq_length: int) -> CountFlops:
    known: dict[int, Flops] = {0: (0, 0)}

    def flops(samples: int, packed: Packed | None) -> Flops:
        if packed is not None:
            return step_flops(shape, samples, seq_length, packed)
        if samples not in known:
            known[samples] = step_flops(shape, samples, seq_length)
        return known[samples]

    return flops


def _reason(error: BaseException | None) -> str:
    if error is None:
        return "completed"
    if isinstance(error, SystemExit):
        return "completed" if error.code in (None, 0) else f"exit {error.code}"
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    return f"exception {type(error).__name__}"
