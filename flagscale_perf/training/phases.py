"""The phases of an iteration: the host's timers they are made of, their sums, and the pipeline bubble.

A phase's time is its own: what the phases inside it take is theirs. So all of them, `other` and
`between_steps` included, add up to the iteration. See docs/metrics.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.rates import plus
from flagscale_perf.training.records import PhaseRecord, StepRecord
from flagscale_perf.training.usual import UsualSteps

# Timers of our own, for what no timer of a host names.
ZERO_GRAD, AGREEMENT = "zero-grad", "step-agreement"


class Kind(Enum):
    """How time in a phase counts where ranks are compared."""

    WORK = "work"  # no collective inside but those of a lockstep group
    WAITING = "waiting"  # for other ranks, and nothing else
    BOTH = "both"  # ranks agree or log together inside, or a device idles for another reason


class Phase(NamedTuple):
    """A row of the table of phases.

    Attributes:
        group: where there is room for a few figures only.
        kind: see there.
        timers: the names under which Megatron's timers know it. A timer that no phase has belongs to the
            phase it runs in.
    """

    group: str
    kind: Kind
    timers: tuple[str, ...] = ()


# In the order of `PhaseRecord`'s fields. Everything that lists phases follows from this table.
TABLE: dict[str, Phase] = {
    "data_loading": Phase("Data", Kind.WORK, ("batch-generator",)),
    "forward": Phase("Forward", Kind.WORK, ("forward-compute",)),
    "backward": Phase("Backward", Kind.WORK, ("backward-compute",)),
    "pipeline_recv_wait": Phase(
        "Pipe",
        Kind.WAITING,
        (
            "forward-recv",
            "backward-recv",
            "forward-send-backward-recv",
            "backward-send-forward-recv",
            "forward-send-forward-recv",
            "backward-send-backward-recv",
            "forward-backward-send-forward-backward-recv",
            "forward-send-slave-forward-recv",
        ),
    ),
    "pipeline_send": Phase("Pipe", Kind.WAITING, ("forward-send", "backward-send")),
    "exposed_grad_comm": Phase(
        "Comm",
        Kind.WAITING,
        (
            "all-grads-sync",
            "embedding-grads-all-reduce",
            "conditional-embedder-grads-all-reduce",
            "non-tensor-parallel-grads-all-reduce",
            "layernorm-grads-all-reduce",
        ),
    ),
    "exposed_param_comm": Phase("Comm", Kind.WAITING, ("params-all-gather",)),
    "exposed_stat_comm": Phase("Comm", Kind.WAITING, (AGREEMENT,)),
    "zero_grad": Phase("Optim", Kind.WORK, (ZERO_GRAD,)),
    "optimizer": Phase("Optim", Kind.BOTH, ("optimizer",)),
    "optimizer_copy_grad": Phase("Optim", Kind.WORK, ("optimizer-copy-to-main-grad",)),
    "optimizer_unscale_check": Phase("Optim", Kind.BOTH, ("optimizer-unscale-and-check-inf",)),
    "optimizer_clip": Phase("Optim", Kind.BOTH, ("optimizer-clip-main-grad",)),
    "optimizer_inner_step": Phase("Optim", Kind.WORK, ("optimizer-inner-step",)),
    "optimizer_copy_param": Phase("Optim", Kind.WORK, ("optimizer-copy-main-to-model-params",)),
    "optimizer_count_zeros": Phase("Optim", Kind.BOTH, ("optimizer-count-zeros",)),
    "forward_backward_other": Phase("Other", Kind.BOTH, ("forward-backward",)),
    "other": Phase("Other", Kind.BOTH),
    "between_steps": Phase("Between", Kind.BOTH),
}

PHASES = tuple(TABLE)
OTHER = PHASES.index("other")
PHASE_OF: dict[str, int] = {
    timer: number for number, phase in enumerate(TABLE.values()) for timer in phase.timers
}

# A mark names the host's timer by its number: a phase's first timer has the phase's own, the others follow. A
# mark has room for 31 of them, so the phases without a timer, which are the last ones, have no number.
_FIRST = [phase.timers[0] for phase in TABLE.values() if phase.timers]
_OTHERS = [timer for phase in TABLE.values() for timer in phase.timers[1:]]
NUMBER_OF = {timer: number for number, timer in enumerate(_FIRST + _OTHERS)}
PHASE_OF_NUMBER = tuple(PHASE_OF[timer] for timer in NUMBER_OF)


def of_kind(kind: Kind) -> tuple[str, ...]:
    """The phases whose time is work, waiting, or may be both."""
    return tuple(name for name, phase in TABLE.items() if phase.kind is kind)


# Every phase is in exactly one group.
GROUPS: dict[str, tuple[str, ...]] = {
    group: tuple(name for name, phase in TABLE.items() if phase.group == group)
    for group in dict.fromkeys(phase.group for phase in TABLE.values())
}

GROUP_WORDS = {  # in the words of tables of phases, for people
    "Data": "data loading", "Forward": "forward", "Backward": "backward", "Pipe": "pipeline",
    "Comm": "exposed comm", "Optim": "whole optimizer", "Other": "all other", "Between": "between steps",
}  # fmt: skip

ONE_F_ONE_B = "1f1b"


Waits = tuple[int | None, int | None]  # bubble and imbalance


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
        """`facts` of the run: its stages and schedule, from which the bubble follows."""
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

    def waits(self, steps: UsualSteps) -> Waits:
        """Bubble and imbalance of many steps together; None unless every one has them."""
        if steps.phases is None or self._stages < 2:
            return None, None
        records = map(PhaseRecord, *steps.phases.values())
        both = [
            split_wait(record, count, self._stages)
            for record, count in zip(records, steps.columns["microbatches"], strict=True)
        ]
        bubbles, rests = zip(*both, strict=True)
        return None if None in bubbles else sum(bubbles), None if None in rests else sum(rests)


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
        """Adds a step with its phases; waits are known as long as every step has them."""
        first = self.steps == 0
        self.steps += 1
        self.iteration_ns += step.iteration_ns
        for phase, value in enumerate(phases.record[1:]):
            if value is not None:
                self._sums[phase] = (self._sums[phase] or 0) + value
        self.bubble_ns = phases.bubble_ns if first else plus(self.bubble_ns, phases.bubble_ns)
        self.imbalance_ns = phases.imbalance_ns if first else plus(self.imbalance_ns, phases.imbalance_ns)

    def add_usual(self, steps: UsualSteps, waits: Waits) -> None:
        """Adds the phases of many steps, where they were measured."""
        if steps.phases is None:
            return
        first = self.steps == 0
        self.steps += len(steps)
        self.iteration_ns += steps.sum("iteration_ns")
        for phase, known_ns in enumerate(steps.phase_totals):
            if known_ns is not None:
                self._sums[phase] = (self._sums[phase] or 0) + known_ns
        self.bubble_ns = waits[0] if first else plus(self.bubble_ns, waits[0])
        self.imbalance_ns = waits[1] if first else plus(self.imbalance_ns, waits[1])

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
