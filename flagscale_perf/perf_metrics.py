"""Clock marks and the host's numbers in, one StepRecord per finished iteration out. No I/O, no rank logic.

An iteration runs from the start of its train step to the start of the next one (or to the end of training),
less the evaluation and the checkpoint saving in between. See docs/metrics.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from flagscale_perf.device.probe import DeviceProbe, EventPair, Memory
from flagscale_perf.device.timeline import Timeline
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.training.marks import in_slots
from flagscale_perf.training.records import MarksRecord, Outcome, StepRecord

# Iterations whose device time is not known yet; beyond this many the oldest is given out without it.
MAX_PENDING = 8

Pause = Literal["eval", "checkpoint"]
Flops = tuple[int | None, int | None]  # model, hardware
CountFlops = Callable[[int, Packed | None], Flops]
Emit = Callable[[StepRecord | MarksRecord], None]

# A step's record without its device time, the events of that, what took its marks, and what `Timeline.end`
# gave for it.
_Owed = tuple[StepRecord, EventPair | None, Timeline | None, Any]

_NO_MEMORY = (None, None, None, None)
_TRAINED, _UPDATE_SKIPPED = int(Outcome.TRAINED), int(Outcome.UPDATE_SKIPPED)


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


class PerfMonitor:
    """State machine over the marks of one training loop. Every mark is a `spine.clock.monotonic_ns` value.

    Args:
        emit: takes each finished record, in order.
        flops: samples, and their documents where the host tells them -> (model, hardware) FLOPs of one step
            over all GPUs.
        device: probe of this rank's device.
        memory_interval: read the memory every so many iterations; 0 for never.
        iteration: iterations finished before this session (the resume point).

    Attributes:
        timeline: marks the phases; None where they are not asked for or no longer.
        self_ns: what the monitor has taken of the training thread since the last record; its caller counts.
        loop_top_ns: mark of the loop's last new pass, set by the caller; where the loop then skips data
            without a step, the last iteration ends here.
        logged_ns: mark of the host's logging of the iteration, set by the caller.
    """

    def __init__(
        self, emit: Emit, flops: CountFlops, device: DeviceProbe, memory_interval: int, iteration: int
    ) -> None:
        self.timeline: Timeline | None = None
        self.self_ns = 0
        self.loop_top_ns: int | None = None
        self.logged_ns: int | None = None
        self._emit = emit
        self._flops = flops
        self._device = device
        self._memory_interval = memory_interval if device.is_present else 0
        self._warmup = 1
        self._last = iteration
        self._consumed: int | None = None
        self._has_events = device.is_present
        self._pending: deque[_Owed] = deque()
        self._left_ns: int | None = None
        self._pause_start_ns: dict[Pause, int] = {}
        self._start_ns = 0
        self._numbers: StepNumbers | None = None
        self._packed: Packed | None = None
        self._pair: EventPair | None = None
        self._taken: Any = None
        self._train_step_ns = 0
        self._memory: Memory | None = None
        self._paused_ns: dict[Pause, int] = {}

    @property
    def iteration(self) -> int:
        """The last iteration the monitor knows to be finished."""
        return self._last

    def loop_left(self, now_ns: int) -> None:
        """The loop is over: the last iteration ends here, less the pauses in it, and what the host tidies up
        is no part of it.
        """
        self._left_ns = now_ns - sum(self._paused_ns.values())

    def step_start(self, now_ns: int, finished: int, consumed: int) -> None:
        """A train step begins.

        Args:
            now_ns: mark.
            finished: iterations the host has finished or skipped before this step.
            consumed: samples the host has consumed before this step.
        """
        gap = finished - self._last - (1 if self._numbers else 0)
        end_ns = self.loop_top_ns if gap > 0 and self.loop_top_ns is not None else now_ns
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

    def packed(self, packed: Packed) -> None:
        """The host tells of the documents packed into the step that has ended."""
        if self._numbers is None:
            return
        self._packed = packed
        if packed.tokens is not None:
            self._numbers = self._numbers._replace(tokens=packed.tokens)

    def pause(self, kind: Pause, now_ns: int) -> None:
        """Evaluation or checkpoint saving begins; inside another one of the same kind it does not count
        again.
        """
        self._pause_start_ns.setdefault(kind, now_ns)

    def resume(self, kind: Pause, now_ns: int) -> None:
        """It ends."""
        started_ns = self._pause_start_ns.pop(kind, None)
        if started_ns is not None and self._numbers is not None:
            self._paused_ns[kind] = self._paused_ns.get(kind, 0) + now_ns - started_ns

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
        self._give_out_pending(leave=0)

    def _reset(self) -> None:
        self._numbers = None
        self._packed = None
        self._pair = None
        self._taken = None
        self.logged_ns = None
        self._memory = None
        self._paused_ns = {}

    def _close(self, end_ns: int) -> None:
        numbers = self._numbers
        if numbers is not None:
            owed = (self._record(numbers, end_ns), self._pair, self.timeline, self._taken)
            self._last = numbers.iteration
            self._warmup = 0
            self._reset()
            if self._pending or not self._give_out(owed, is_forced=False):
                self._pending.append(owed)
        if self._pending:
            self._give_out_pending(leave=MAX_PENDING)

    def _record(self, numbers: StepNumbers, end_ns: int) -> StepRecord:
        """The step's record, its fields in their order. (Naming 22 fields takes a microsecond more.)"""
        iteration, trained, samples, tokens, microbatches = numbers
        start_ns, eval_ns, checkpoint_ns = self._start_ns, 0, 0
        if self._paused_ns:
            eval_ns, checkpoint_ns = self._paused_ns.get("eval", 0), self._paused_ns.get("checkpoint", 0)
        iteration_ns = end_ns - start_ns - eval_ns - checkpoint_ns
        model_flops, hardware_flops = self._flops(samples, self._packed) if trained else (0, 0)
        memory, peak, reserved, retries = self._memory or _NO_MEMORY
        self_ns, self.self_ns = self.self_ns, 0
        return StepRecord._make(
            (
                iteration,
                1,
                _TRAINED if trained else _UPDATE_SKIPPED,
                self._warmup,
                start_ns,
                iteration_ns if iteration_ns > 0 else 0,
                self._train_step_ns,
                None,
                eval_ns,
                checkpoint_ns,
                None if self.logged_ns is None else self.logged_ns - start_ns,
                samples if trained else 0,
                tokens if trained else 0,
                0 if trained else samples,
                microbatches,
                model_flops,
                hardware_flops,
                memory,
                peak,
                reserved,
                retries,
                self_ns,
            )
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
        self._pending.append((record, None, None, None))
        self._give_out_pending(leave=MAX_PENDING)

    def _give_out_pending(self, leave: int) -> None:
        """Emits, in order, what is complete; more than `leave` pending ones go out without what the device
        owes them.
        """
        while self._pending and self._give_out(self._pending[0], is_forced=len(self._pending) > leave):
            self._pending.popleft()

    def _give_out(self, owed: _Owed, is_forced: bool) -> bool:
        """Emits the step's marks and its record unless the device still owes something; False if it does."""
        step, pair, timeline, taken = owed
        marks = device_ns = None
        if timeline is not None and taken is not None:
            marks = timeline.read(taken)
            if marks is None and not is_forced:
                return False
        if pair is not None:
            device_ns = self._device.elapsed_ns(pair)
            if device_ns is None and not is_forced and marks is None:  # marks can be read only once
                return False
        if timeline is not None:
            for record in in_slots(step.iteration, marks):
                self._emit(record)
        self._emit(step if device_ns is None else step._replace(device_ns=device_ns))
        return True


class Budget:
    """What the monitor may take of the training's time, judged over a fixed number of steps at a time.

    Judged is the median step: one in which the system runs somebody else, or Python collects garbage, tells
    nothing.
    """

    def __init__(self, max_share: float, steps: int) -> None:
        """`max_share` of 1."""
        self._max_share = max_share
        self._steps = steps
        self._judged: list[StepRecord] = []

    def add(self, step: StepRecord) -> float | None:
        """One more record; the share taken, if there were enough train steps and it is too much."""
        if step.warmup or not step.train_step_ns:
            return None
        judged = self._judged
        judged.append(step)
        if len(judged) < self._steps:
            return None
        self._judged = []
        taken_ns = sorted(each.self_ns or 0 for each in judged)[self._steps // 2] * self._steps
        iterations_ns = sum(each.iteration_ns for each in judged)
        return taken_ns / iterations_ns if taken_ns > self._max_share * iterations_ns else None
