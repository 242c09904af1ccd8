"""Clock marks and the host's numbers in, one StepRecord per finished iteration out. No I/O, no rank logic.

An iteration runs from the start of its train step to the start of the next one (or to the end of training),
less the evaluation and the checkpoint saving in between. See docs/metrics.md.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from flagscale_perf.device.probe import DeviceProbe, EventPair
from flagscale_perf.device.timeline import Timeline
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import tuple_of
from flagscale_perf.training.marks import in_slots
from flagscale_perf.training.recording.budget import Budget, Overrun
from flagscale_perf.training.recording.doing import Whereabouts
from flagscale_perf.training.recording.loop import CountFlops, Flops, Pause, StepNumbers, WorkCounter
from flagscale_perf.training.records import NO_STEP, MarksRecord, Outcome, StepRecord
from flagscale_perf.training.work import NOT_COUNTED, RankWork

# Iterations whose device time is not known yet; beyond this many the oldest is emitted without it.
MAX_PENDING = 8
# What can be switched off, in this order: attributes of a `StepMeter`, and what they are then.
PARTS = {
    "phases": ("timeline", None),
    "device memory": ("_memory_interval", 0),
    "device events": ("_has_events", False),
}

Emit = Callable[[StepRecord | MarksRecord], None]

# A step's record without its device time, the events of that, what took its marks, and what `Timeline.end`
# gave for it.
_Owed = tuple[StepRecord, EventPair | None, Timeline | None, Any]

_NO_MEMORY = (None, None, None, None)
_NO_FLOPS = (None, None)
_TRAINED, _UPDATE_SKIPPED = int(Outcome.TRAINED), int(Outcome.UPDATE_SKIPPED)


class Notes:
    """Notes of the monitor's caller between two events, for the monitor to read: attributes instead of
    methods, as each is set in every step.

    Attributes:
        spent_ns: what the monitor has taken of the training thread since the last record, marks aside; the
            caller adds to it, a record takes it.
        cpu_ns: the same in processor time, where `StepMeter.weighs`; 0 elsewhere.
        loop_top_ns: mark of the loop's last new pass; where the loop then skips data without a step, the last
            iteration ends here.
        logged_ns: mark of the host's logging of the iteration.
        counter: counts the rank's work; None where that follows from the step's size.
        work: what it has counted, the last three fields of the step's record.
    """

    __slots__ = ("counter", "cpu_ns", "logged_ns", "loop_top_ns", "spent_ns", "work")

    def __init__(self) -> None:
        self.spent_ns = self.cpu_ns = 0
        self.loop_top_ns: int | None = None
        self.logged_ns: int | None = None
        self.counter: WorkCounter | None = None
        self.work: RankWork = NOT_COUNTED


class StepMeter:
    """State machine over the marks of one training loop. Every mark is a `spine.clock.monotonic_ns` value.

    `step_start` and what it calls run in every step, when the caches hold the model's data and nothing of
    ours: every function and every object more costs a microsecond or two there (docs/operations.md). Hence
    few and long functions, and values that seldom change kept where they are used.

    Args:
        emit: takes each finished record, in order.
        flops: samples, and their documents where they are packed -> (model, hardware) FLOPs of one step
            over all GPUs.
        device: probe of this rank's device.
        memory_interval: read the memory every so many iterations; 0 for never.
        iteration: iterations finished before this session (the resume point).

    Attributes:
        notes: what the caller notes.
        timeline: marks the phases; None where they are not asked for or no longer.
        budget: what the monitor may take of the training's time; None for any amount.
        verdict: by how much it has taken more, or a part that had to go for it and is on again; until `shed`
            is called.
        weighs: whether the caller is to note processor time, too.
    """

    def __init__(
        self, emit: Emit, flops: CountFlops, device: DeviceProbe, memory_interval: int, iteration: int
    ) -> None:
        self.notes = Notes()
        self.timeline: Timeline | None = None
        self.budget: Budget | None = None
        self.verdict: Overrun | str | None = None
        self.weighs = False
        self._off: dict[str, Any] = {}  # by part, its value while it is on
        self._emit = emit
        self._count_flops = flops
        self._known_flops: dict[int, Flops] = {0: (0, 0)}  # by samples, for unpacked ones
        self._last_packed: tuple[int, Packed | None, Flops] = (0, None, _NO_FLOPS)  # samples, their documents
        self._device = device
        self._memory_interval = memory_interval if device.is_present else 0
        self._warmup = 1
        self._last = iteration
        self._consumed: int | None = None
        self._has_events = device.is_present
        self._pending: deque[_Owed] = deque()
        self._judged: list[tuple[int, int]] = []
        self._left_ns: int | None = None
        self._pause_starts_ns: dict[Pause, list[int]] = {}
        self._start_ns, self._begun_ns = 0, monotonic_ns()
        self._numbers: StepNumbers | None = None
        self._packed_flops: Flops | None = None
        self._pair: EventPair | None = None
        self._taken: Any = None
        self._marks_ns = 0
        self._train_step_ns = 0
        self._memory: tuple[int | None, int | None, int | None, int | None] = _NO_MEMORY
        self._paused_ns: dict[Pause, int] = {}

    @property
    def iteration(self) -> int:
        """The last iteration the monitor knows to be finished."""
        return self._last

    def loop_left(self, now_ns: int) -> None:
        """The loop is over: the last iteration ends here, less the pauses in it. What the host tidies up
        afterwards is no part of it.
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
        if gap > 0:
            self._skip_before(now_ns, gap, consumed)
        else:
            self._close(now_ns)
        self._last = finished
        self._consumed = consumed
        self._start_ns = now_ns
        if self.budget is not None and len(self._judged) >= self.budget.steps:
            self._judge(self.budget)
        if self._has_events:
            self._device.start()
        if self.timeline is not None:
            self.timeline.begin(now_ns)

    def _judge(self, budget: Budget) -> None:
        overrun = budget.judge(self._judged, self.timeline is not None)
        self.verdict = budget.rested() or overrun
        self.weighs, self._judged = budget.weighs, []
        if isinstance(self.verdict, str):
            setattr(self, PARTS[self.verdict][0], self._off.pop(self.verdict))

    def step_end(self, now_ns: int, numbers: StepNumbers) -> None:
        """The train step returned; `numbers` are the host's for it."""
        if self._has_events:
            self._pair = self._device.stop()
        if self.timeline is not None:
            self._taken = self.timeline.end(now_ns)
            self._marks_ns = self.timeline.cost_ns
        self._train_step_ns = now_ns - self._start_ns
        self._numbers = numbers
        packed = numbers.packed
        if packed is not None:
            if packed is self._last_packed[1] and numbers.updated:
                self._packed_flops = self._last_packed[2]
            else:
                self.packed(packed)
        if self._consumed is not None:
            self._consumed += numbers.samples
        if self._memory_interval and numbers.iteration % self._memory_interval == 0:
            self._memory = self._device.memory() or _NO_MEMORY

    def packed(self, packed: Packed | None) -> None:
        """Takes what the host says of the documents packed into the step that has ended; None: nothing."""
        numbers = self._numbers
        if numbers is None or not numbers.updated:
            return
        samples, last, flops = self._last_packed
        if packed is None:
            flops = _NO_FLOPS
        elif packed != last or numbers.samples != samples:  # else as many as in the step before
            flops = self._count_flops(numbers.samples, packed)
            self._last_packed = numbers.samples, packed, flops
        self._packed_flops = flops
        if packed is not None and packed.tokens not in (None, numbers.tokens):
            self._numbers = numbers._replace(tokens=packed.tokens)

    def pause(self, kind: Pause, now_ns: int) -> None:
        """Evaluation or checkpoint saving begins; inside one of the same kind it does not count again."""
        self._pause_starts_ns.setdefault(kind, []).append(now_ns)

    def resume(self, kind: Pause, now_ns: int) -> None:
        """Evaluation or checkpoint saving ends."""
        starts_ns = self._pause_starts_ns.get(kind)
        started_ns = starts_ns.pop() if starts_ns else None
        if started_ns is not None and not starts_ns and self._numbers is not None:
            self._paused_ns[kind] = self._paused_ns.get(kind, 0) + now_ns - started_ns

    def data_skipped(self, start_ns: int, end_ns: int, samples: int) -> None:
        """The host passed over one iteration's data in a call of its own."""
        self._close(start_ns)
        self._skip(start_ns, end_ns, 1, samples)
        if self._consumed is not None:
            self._consumed += samples

    def whereabouts(self) -> Whereabouts:
        """Where the loop is now; asked on a side thread, while the loop may go on."""
        begun = [(starts_ns[0], kind) for kind, starts_ns in self._pause_starts_ns.items() if starts_ns]
        if begun:
            since_ns, kind = min(begun)
            return Whereabouts(kind, self._last, since_ns)
        if self._numbers is not None:
            return Whereabouts("between_steps", self._last + 1, self._start_ns + self._train_step_ns)
        if not self._start_ns:
            return Whereabouts("start", self._last, self._begun_ns)
        return Whereabouts("step", self._last, self._start_ns, self.timeline)

    def keep_within(self) -> str:
        """Takes the verdict, see `shed`; says what is off now or on again, "" where that is nothing."""
        verdict, part = self.verdict, self.shed()
        return self.budget.said(verdict, part) if self.budget is not None else ""

    def shed(self) -> str | None:
        """Takes the verdict: where it is an overrun, switches the first of `PARTS` off that is on.

        Returns which; None if nothing but the step record itself is left, or nothing is to be switched off.
        """
        verdict, self.verdict = self.verdict, None
        for part, (name, off) in PARTS.items() if isinstance(verdict, Overrun) else ():
            if (value := getattr(self, name)) != off:
                self._off[part] = value
                setattr(self, name, off)
                return part
        return None

    def finish(self, now_ns: int) -> None:
        """Training ends, however it does: a step that has ended is emitted, one that has not is not."""
        if self._numbers is not None and self._memory_interval and self._memory is _NO_MEMORY:
            self._memory = self._device.memory() or _NO_MEMORY
        self._close(now_ns if self._left_ns is None else self._left_ns + sum(self._paused_ns.values()))
        self._emit_pending(leave=0)

    def _close(self, end_ns: int) -> None:
        if self._numbers is not None:
            marks_ns = self._marks_ns
            record = self._record(self._numbers, end_ns)
            pair, timeline, taken = self._pair, self.timeline, self._taken
            if not self._warmup:
                taken_ns = record.self_ns or 0
                if self.weighs:
                    taken_ns, self.notes.cpu_ns = self.notes.cpu_ns + marks_ns, 0
                self._judged.append((taken_ns, record.iteration_ns))
            self._warmup = 0
            self._last = record.iteration
            self._numbers = self._pair = self._taken = None
            owed = record, pair, timeline, taken
            if pair is None and timeline is None and not self._pending:
                self._emit(record)
            elif self._pending or not self._emit_owed(owed, is_forced=False):
                self._pending.append(owed)
        if self._pending:
            self._emit_pending(leave=MAX_PENDING)

    def _record(self, numbers: StepNumbers, end_ns: int) -> StepRecord:
        """The step's record, its fields in their order: naming 22 fields takes a microsecond more.

        `tests/unit/test_perf_metrics.py` compares the record by the names of its fields.
        """
        iteration, trained, samples, tokens, microbatches, work, _ = numbers
        outcome, skipped_samples = _TRAINED, 0
        if not trained:
            outcome, samples, tokens, skipped_samples = _UPDATE_SKIPPED, 0, 0, samples
        flops = self._packed_flops or self._known_flops.get(samples)
        if flops is None:
            flops = self._known_flops[samples] = self._count_flops(samples, None)
        model_flops, hardware_flops = flops
        memory, peak, reserved, retries = self._memory
        notes, start_ns, eval_ns, checkpoint_ns = self.notes, self._start_ns, 0, 0
        rank_tokens, squared_lengths, expert_tokens = notes.work if work is NOT_COUNTED else work
        if self._paused_ns:
            eval_ns, checkpoint_ns = self._paused_ns.get("eval", 0), self._paused_ns.get("checkpoint", 0)
            self._paused_ns = {}
        iteration_ns, logged_ns = end_ns - start_ns - eval_ns - checkpoint_ns, notes.logged_ns
        record = tuple_of(
            StepRecord,
            (
                iteration,
                1,  # iterations
                outcome,
                self._warmup,
                start_ns,
                iteration_ns if iteration_ns > 0 else 0,
                self._train_step_ns,
                None,  # device_ns: put in where the record is emitted, once the device has been there
                eval_ns,
                checkpoint_ns,
                None if logged_ns is None else logged_ns - start_ns,
                samples,
                tokens,
                skipped_samples,
                microbatches,
                model_flops,
                hardware_flops,
                memory,
                peak,
                reserved,
                retries,
                notes.spent_ns + self._marks_ns,  # self_ns
                rank_tokens,
                squared_lengths,
                expert_tokens,
            ),
        )
        notes.logged_ns, notes.spent_ns, self._marks_ns = None, 0, 0
        self._packed_flops, self._memory = None, _NO_MEMORY
        return record

    def _skip_before(self, now_ns: int, iterations: int, consumed: int) -> None:
        loop_top_ns = self.notes.loop_top_ns
        start_ns = now_ns if loop_top_ns is None else loop_top_ns
        self._close(start_ns)
        skipped = consumed - self._consumed if self._consumed is not None else 0
        self._skip(start_ns, now_ns, iterations, skipped)

    def _skip(self, start_ns: int, end_ns: int, iterations: int, samples: int) -> None:
        self._last += iterations
        record = NO_STEP._replace(
            iteration=self._last,
            iterations=iterations,
            outcome=Outcome.DATA_SKIPPED,
            start_ns=start_ns,
            iteration_ns=end_ns - start_ns,
            skipped_samples=samples,
            model_flops=0,
            hardware_flops=0,
            self_ns=0,
        )
        self._pending.append((record, None, None, None))
        self._emit_pending(leave=MAX_PENDING)

    def _emit_pending(self, leave: int) -> None:
        """Emits, in order, what is complete; all but `leave` of them even if the device owes something."""
        while self._pending and self._emit_owed(self._pending[0], is_forced=len(self._pending) > leave):
            self._pending.popleft()

    def _emit_owed(self, owed: _Owed, is_forced: bool) -> bool:
        """Emits the step's marks and its record unless the device still owes something; False if it does."""
        step, pair, timeline, taken = owed
        marks = None
        if timeline is not None and taken is not None:
            marks = timeline.read(taken)
            if marks is None and not is_forced:
                return False
            is_forced = True  # marks can be read only once
        if pair is not None:
            device_ns = self._device.elapsed_ns(pair)
            if device_ns is not None:
                step = step._replace(device_ns=device_ns)
            elif not is_forced:
                return False
        if timeline is not None:
            for record in in_slots(step.iteration, marks):
                self._emit(record)
        self._emit(step)
        return True
