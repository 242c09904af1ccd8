"""Clock marks and the host's numbers in, one StepRecord per finished iteration out. No I/O, no rank logic.

An iteration runs from the start of its train step to the start of the next one (or to the end of training), less the
evaluation and the checkpoint saving in between. See docs/metrics.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from flagscale_perf.core.records import Outcome, PhaseRecord, StepRecord
from flagscale_perf.device.probe import DeviceProbe, EventPair, Memory
from flagscale_perf.device.timeline import Timeline
from flagscale_perf.flops_calculator import Packed

# Iterations whose device time is not known yet; beyond this many the oldest is given out without it.
MAX_PENDING = 8

Pause = Literal["eval", "checkpoint"]
Flops = tuple[int | None, int | None]  # model, hardware
CountFlops = Callable[[int, Packed | None], Flops]
Emit = Callable[[StepRecord | PhaseRecord], None]

_UNMEASURED: tuple[None, ...] = (None,) * (len(PhaseRecord._fields) - 1)
_NO_MEMORY = (None, None, None, None)


class StepNumbers(NamedTuple):
    """What the host counts for one finished train step.

    Attributes:
        iteration: its number, from 1.
        updated: False when the optimizer skipped the update.
        samples: sequences consumed by all data-parallel ranks.
        tokens: tokens in them.
        microbatches: of one data-parallel rank.
    """

    iteration: int
    updated: bool
    samples: int
    tokens: int
    microbatches: int


class _Pending(NamedTuple):
    """A record on its way out, and what the device still owes to it.

    Attributes:
        step: the record, without its device time.
        pair: events of its device time; None if it has none, or has been given it.
        timeline: what marked its phases; None if nothing did.
        taken: what the timeline gave for the step.
    """

    step: StepRecord
    pair: EventPair | None = None
    timeline: Timeline | None = None
    taken: Any = None


class PerfMonitor:
    """State machine over the marks of one training loop. Every mark is a `core.clock.monotonic_ns` value.

    Args:
        emit: takes each finished record, in order.
        flops: samples, and their documents where the host tells them -> (model, hardware) FLOPs of one step over all GPUs.
        device: probe of this rank's device.
        memory_interval: read the memory every so many iterations; 0 for never.
        iteration: iterations finished before this session (the resume point).

    Attributes:
        timeline: marks the phases; None where they are not asked for or no longer.
        self_ns: what the monitor has taken of the training thread since the last record; its caller counts.
    """

    def __init__(self, emit: Emit, flops: CountFlops, device: DeviceProbe, memory_interval: int, iteration: int) -> None:
        self.timeline: Timeline | None = None
        self.self_ns = 0
        self._emit = emit
        self._flops = flops
        self._device = device
        self._memory_interval = memory_interval if device.is_present else 0
        self._warmup = 1
        self._last = iteration
        self._consumed: int | None = None
        self._has_events = device.is_present
        self._pending: deque[_Pending] = deque()
        self._loop_top_ns: int | None = None
        self._left_ns: int | None = None
        self._pause_start_ns: dict[str, int] = {}
        self._start_ns = 0
        self._numbers: StepNumbers | None = None
        self._packed: Packed | None = None
        self._pair: EventPair | None = None
        self._taken: Any = None
        self._train_step_ns = 0
        self._log_ns: int | None = None
        self._memory: Memory | None = None
        self._paused_ns = {"eval": 0, "checkpoint": 0}

    @property
    def iteration(self) -> int:
        """The last iteration the monitor knows to be finished."""
        return self._last

    def loop_top(self, now_ns: int) -> None:
        """The loop begins a new pass; where it then skips data without a step, the last iteration ends here."""
        self._loop_top_ns = now_ns

    def loop_left(self, now_ns: int) -> None:
        """The loop is over: the last iteration ends here, less the pauses in it, and what the host tidies up is no part of it."""
        self._left_ns = now_ns - sum(self._paused_ns.values())

    def step_start(self, now_ns: int, finished: int, consumed: int) -> None:
        """A train step begins.

        Args:
            now_ns: mark.
            finished: iterations the host has finished or skipped before this step.
            consumed: samples the host has consumed before this step.
        """
        gap = finished - self._last - (1 if self._numbers else 0)
        skipping = gap > 0 and self._loop_top_ns is not None
        end_ns = self._loop_top_ns if skipping and self._loop_top_ns is not None else now_ns
        self._close(end_ns)
        if gap > 0:
            skipped = consumed - self._consumed if self._consumed is not None else 0
            self._skip(end_ns, now_ns, gap, skipped)
        self._last = finished
        self._consumed = consumed
        self._start_ns = now_ns
        if self._has_events:
            self._device.start()
        if self.timeline is not None:
            self.timeline.begin(now_ns)

    def step_end(self, now_ns: int, numbers: StepNumbers) -> None:
        """The train step returned; `numbers` are the host's for it."""
        if self._has_events:
            self._pair = self._device.stop()
        if self.timeline is not None:
            self._taken = self.timeline.end(now_ns)
            self.self_ns += self.timeline.cost_ns
        self._train_step_ns = now_ns - self._start_ns
        self._numbers = numbers
        if self._consumed is not None:
            self._consumed += numbers.samples
        if self._memory_interval and numbers.iteration % self._memory_interval == 0:
            self._memory = self._device.memory()

    def logged(self, now_ns: int, packed: Packed | None) -> None:
        """The host logs the iteration; `packed` is what it tells of packed documents."""
        if self._numbers is None:
            return
        self._log_ns = now_ns - self._start_ns
        self._packed = packed
        if packed is not None and packed.tokens is not None:
            self._numbers = self._numbers._replace(tokens=packed.tokens)

    def pause(self, kind: Pause, now_ns: int) -> None:
        """Evaluation or checkpoint saving begins; inside another one of the same kind it does not count again."""
        self._pause_start_ns.setdefault(kind, now_ns)

    def resume(self, kind: Pause, now_ns: int) -> None:
        """It ends."""
        started_ns = self._pause_start_ns.pop(kind, None)
        if started_ns is not None and self._numbers is not None:
            self._paused_ns[kind] += now_ns - started_ns

    def data_skipped(self, start_ns: int, end_ns: int, samples: int) -> None:
        """The host passed over one iteration's data in a call of its own."""
        self._close(start_ns)
        self._skip(start_ns, end_ns, 1, samples)
        if self._consumed is not None:
            self._consumed += samples

    def shed(self) -> str | None:
        """Switches one thing off, in a fixed order: phases, then device memory, then device events.

        Returns what it was; None if nothing but the step record itself is left.
        """
        if self.timeline is not None:
            self.timeline = None
            return "phases"
        if self._memory_interval:
            self._memory_interval = 0
            return "device memory"
        if self._has_events:
            self._has_events = False
            return "device events"
        return None

    def finish(self, now_ns: int) -> None:
        """Training ends, however: a step that has ended is given out, one that has not is not."""
        if self._numbers is not None and self._memory_interval and self._memory is None:
            self._memory = self._device.memory()
        self._close(now_ns if self._left_ns is None else self._left_ns + sum(self._paused_ns.values()))
        self._give_out(leave=0)

    def _reset(self) -> None:
        self._numbers = None
        self._packed = None
        self._pair = None
        self._taken = None
        self._log_ns = None
        self._memory = None
        self._paused_ns = {"eval": 0, "checkpoint": 0}

    def _close(self, end_ns: int) -> None:
        numbers = self._numbers
        if numbers is not None:
            self._pending.append(_Pending(self._record(numbers, end_ns), self._pair, self.timeline, self._taken))
            self._last = numbers.iteration
            self._warmup = 0
        self._reset()
        self._give_out(leave=MAX_PENDING)

    def _record(self, numbers: StepNumbers, end_ns: int) -> StepRecord:
        trained = numbers.updated
        model_flops, hardware_flops = self._flops(numbers.samples, self._packed) if trained else (0, 0)
        memory, peak, reserved, retries = self._memory or _NO_MEMORY
        self_ns, self.self_ns = self.self_ns, 0
        paused = self._paused_ns
        return StepRecord(
            iteration=numbers.iteration,
            iterations=1,
            outcome=Outcome.TRAINED if trained else Outcome.UPDATE_SKIPPED,
            warmup=self._warmup,
            start_ns=self._start_ns,
            iteration_ns=max(0, end_ns - self._start_ns - paused["eval"] - paused["checkpoint"]),
            train_step_ns=self._train_step_ns,
            device_ns=None,
            eval_ns=paused["eval"],
            checkpoint_ns=paused["checkpoint"],
            log_ns=self._log_ns,
            samples=numbers.samples if trained else 0,
            tokens=numbers.tokens if trained else 0,
            skipped_samples=0 if trained else numbers.samples,
            microbatches=numbers.microbatches,
            model_flops=model_flops,
            hardware_flops=hardware_flops,
            memory_bytes=memory,
            memory_peak_bytes=peak,
            memory_reserved_bytes=reserved,
            memory_retries=retries,
            self_ns=self_ns,
        )

    def _skip(self, start_ns: int, end_ns: int, iterations: int, samples: int) -> None:
        self._last += iterations
        record = StepRecord(
            iteration=self._last,
            iterations=iterations,
            outcome=Outcome.DATA_SKIPPED,
            warmup=0,
            start_ns=start_ns,
            iteration_ns=end_ns - start_ns,
            train_step_ns=0,
            device_ns=None,
            eval_ns=0,
            checkpoint_ns=0,
            log_ns=None,
            samples=0,
            tokens=0,
            skipped_samples=samples,
            microbatches=0,
            model_flops=0,
            hardware_flops=0,
            memory_bytes=None,
            memory_peak_bytes=None,
            memory_reserved_bytes=None,
            memory_retries=None,
            self_ns=0,
        )
        self._pending.append(_Pending(record))
        self._give_out(leave=MAX_PENDING)

    def _give_out(self, leave: int) -> None:
        """Emits, in order, what is complete; more than `leave` pending ones go out without what the device owes them."""
        while self._pending:
            pending, is_forced = self._pending[0], len(self._pending) > leave
            own_ns = pending.timeline.read(pending.taken) if pending.timeline is not None and pending.taken is not None else None
            is_late = pending.taken is not None and own_ns is None
            device_ns = None if is_late or pending.pair is None else self._device.elapsed_ns(pending.pair)
            is_late |= own_ns is None and pending.pair is not None and device_ns is None  # phases can be read only once
            if is_late and not is_forced:
                return
            self._pending.popleft()
            if pending.timeline is not None:
                self._emit(_phases_of(pending.step, own_ns))
            self._emit(pending.step if device_ns is None else pending.step._replace(device_ns=device_ns))


def _phases_of(step: StepRecord, own_ns: list[int] | None) -> PhaseRecord:
    """`own_ns` as `Timeline.read` gives it; None if not measured."""
    if own_ns is None:
        return PhaseRecord._make((step.iteration, *_UNMEASURED))
    *named, other_ns, _ = own_ns
    return PhaseRecord._make((step.iteration, *[value or None for value in named], other_ns, step.iteration_ns - sum(own_ns)))


class Budget:
    """What the monitor may take of the training's time, judged over a fixed number of steps at a time.

    Judged is the median step: one in which the system runs somebody else, or Python collects garbage, tells nothing.
    """

    def __init__(self, max_share: float, steps: int) -> None:
        """`max_share` of 1."""
        self._max_share = max_share
        self._steps = steps
        self._costs_ns: list[int] = []
        self._iterations_ns = 0

    def add(self, self_ns: int, iteration_ns: int) -> float | None:
        """One more step; the share taken, if these were enough steps and it is too much."""
        self._costs_ns.append(self_ns)
        self._iterations_ns += iteration_ns
        if len(self._costs_ns) < self._steps:
            return None
        taken_ns = sorted(self._costs_ns)[self._steps // 2] * self._steps
        iterations_ns, self._costs_ns, self._iterations_ns = self._iterations_ns, [], 0
        return taken_ns / iterations_ns if taken_ns > self._max_share * iterations_ns else None
