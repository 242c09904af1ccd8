"""The phases of an iteration: the host's timers they are made of, their sums, and the pipeline bubble.

A phase's time is its own: what the phases inside it take is theirs. So all of them, `other` and
`between_steps` included, add up to the iteration. See docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rates import plus
from flagscale_perf.training.records import PhaseRecord, StepRecord

_SUFFIX = "_ns"
PHASES = tuple(name.removesuffix(_SUFFIX) for name in PhaseRecord._fields[1:])
OTHER = PHASES.index("other")

# Names of our own, for what no timer of a host names.
ZERO_GRAD, AGREEMENT = "zero-grad", "step-agreement"

# Phase -> the names under which Megatron's timers know it. A timer that is not here belongs to the phase it
# runs in.
_TIMERS: dict[str, tuple[str, ...]] = {
    "data_loading": ("batch-generator",),
    "forward": ("forward-compute",),
    "backward": ("backward-compute",),
    "pipeline_recv_wait": (
        *("forward-recv", "backward-recv", "forward-send-backward-recv", "backward-send-forward-recv"),
        *(
            "forward-send-forward-recv",
            "backward-send-backward-recv",
            "forward-backward-send-forward-backward-recv",
        ),
        "forward-send-slave-forward-recv",
    ),
    "pipeline_send": ("forward-send", "backward-send"),
    "exposed_grad_comm": (
        *("all-grads-sync", "embedding-grads-all-reduce", "conditional-embedder-grads-all-reduce"),
        *("non-tensor-parallel-grads-all-reduce", "layernorm-grads-all-reduce"),
    ),
    "exposed_param_comm": ("params-all-gather",),
    "exposed_stat_comm": (AGREEMENT,),
    "zero_grad": (ZERO_GRAD,),
    "optimizer": ("optimizer",),
    "optimizer_copy_grad": ("optimizer-copy-to-main-grad",),
    "optimizer_unscale_check": ("optimizer-unscale-and-check-inf",),
    "optimizer_clip": ("optimizer-clip-main-grad",),
    "optimizer_inner_step": ("optimizer-inner-step",),
    "optimizer_copy_param": ("optimizer-copy-main-to-model-params",),
    "optimizer_count_zeros": ("optimizer-count-zeros",),
    "forward_backward_other": ("forward-backward",),
}
PHASE_OF: dict[str, int] = {
    timer: PHASES.index(phase) for phase, timers in _TIMERS.items() for timer in timers
}

# A mark names the host's timer by its number: a phase's first timer has the phase's own, the others follow.
NUMBER_OF = dict(PHASE_OF)
_PHASES_OF_OTHERS: list[int] = []
for _timer, _phase in PHASE_OF.items():
    if _timer != _TIMERS[PHASES[_phase]][0]:
        NUMBER_OF[_timer] = len(PHASES) + len(_PHASES_OF_OTHERS)
        _PHASES_OF_OTHERS.append(_phase)
PHASE_OF_NUMBER = (*range(len(PHASES)), *_PHASES_OF_OTHERS)

# Where there is room for a few figures only; every phase is in exactly one group.
GROUPS: dict[str, tuple[str, ...]] = {
    "Data": ("data_loading",),
    "Forward": ("forward",),
    "Backward": ("backward",),
    "Pipe": ("pipeline_recv_wait", "pipeline_send"),
    "Comm": ("exposed_grad_comm", "exposed_param_comm", "exposed_stat_comm"),
    "Optim": ("zero_grad", *(phase for phase in PHASES if phase.startswith("optimizer"))),
    "Other": ("forward_backward_other", "other"),
    "Between": ("between_steps",),
}

ONE_F_ONE_B = "1f1b"


class StepPhases(NamedTuple):
    """A step's phases with what is derived from them; None where it is not known.

    Attributes:
        record: the phases.
        bubble_ns: waiting that the pipeline's schedule makes inevitable.
        imbalance_ns: the rest of the waiting for other stages.
    """

    record: PhaseRecord
    bubble_ns: int | None
    imbalance_ns: int | None


class PhaseJoin:
    """Brings the phases of a step, which are recorded first, together with the step."""

    def __init__(self, facts: RunFacts) -> None:
        """`facts` of the run."""
        self._stages = _stages_of(facts)
        self._held: PhaseRecord | None = None

    def hold(self, record: PhaseRecord) -> None:
        """Phases whose step comes next."""
        self._held = record

    def take(self, step: StepRecord) -> StepPhases | None:
        """The step's phases; None where they were not measured."""
        record, self._held = self._held, None
        if record is None or record.iteration != step.iteration or record.other_ns is None:
            return None
        return StepPhases(record, *split_wait(record, step.microbatches, self._stages))


def split_wait(record: PhaseRecord, microbatches: int, stages: int) -> tuple[int | None, int | None]:
    """Bubble and imbalance of one step on this stage; None where there is no pipeline with this schedule.

    A schedule of one forward, one backward leaves every stage idle for (stages - 1) micro-batches' forward
    and backward.
    """
    wait_ns = record.pipeline_recv_wait_ns
    if stages < 2 or microbatches < 1 or wait_ns is None:
        return None, None
    compute_ns = (record.data_loading_ns or 0) + (record.forward_ns or 0) + (record.backward_ns or 0)
    bubble_ns = min(wait_ns, (stages - 1) * compute_ns // microbatches)
    return bubble_ns, wait_ns - bubble_ns


def _stages_of(facts: RunFacts) -> int:
    """Pipeline stages; 0 where the schedule is not one whose bubble is known."""
    return (facts.pipeline_parallel or 0) if facts.pipeline_schedule == ONE_F_ONE_B else 0


class PhaseTotals(NamedTuple):
    """Sums over a stretch of training; None where they are not known for all of it."""

    phases_ns: dict[str, int | None] | None
    bubble_ns: int | None
    imbalance_ns: int | None


class PhaseSums:
    """Running sums over the steps whose phases were measured.

    Attributes:
        steps: how many.
        iteration_ns: their time.
        bubble_ns, imbalance_ns: None unless every one of them has it.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.iteration_ns = 0
        self.bubble_ns: int | None = None
        self.imbalance_ns: int | None = None
        self._sums: list[int | None] = [None] * len(PHASES)

    def add(self, step: StepRecord, phases: StepPhases) -> None:
        """Adds a step's phases."""
        first = self.steps == 0
        self.steps += 1
        self.iteration_ns += step.iteration_ns
        for phase, value in enumerate(phases.record[1:]):
            if value is not None:
                self._sums[phase] = (self._sums[phase] or 0) + value
        self.bubble_ns = phases.bubble_ns if first else plus(self.bubble_ns, phases.bubble_ns)
        self.imbalance_ns = phases.imbalance_ns if first else plus(self.imbalance_ns, phases.imbalance_ns)

    def over(self, steps: int) -> PhaseTotals:
        """The sums if they are over all of so many steps."""
        is_whole = 0 < self.steps == steps
        return (
            PhaseTotals(self.by_name(), self.bubble_ns, self.imbalance_ns)
            if is_whole
            else PhaseTotals(None, None, None)
        )

    def by_name(self) -> dict[str, int | None]:
        """Nanoseconds of each phase; None for one that the host did not name in any step."""
        return dict(zip(PHASES, self._sums, strict=True))


def share(part_ns: int | None, whole_ns: int) -> float | None:
    """A part of a time: 0.5 is half; None where one of them is not known."""
    return None if part_ns is None or whole_ns <= 0 else part_ns / whole_ns


def total_of(phases_ns: Mapping[str, int | None], names: Sequence[str]) -> int | None:
    """Sum of the phases so called; None where none of them is known."""
    known = [value for name in names if (value := phases_ns.get(name)) is not None]
    return sum(known) if known else None
