"""A rank's step as ways to the end of a collective: its own time since the last one, then its wait.

All members of a collective leave it at one moment, so the ends of collectives cut the steps of all ranks at
the same moments, and no clocks need to be compared: of two ranks between two cuts, the one that waits less
came later, by that much. docs/formulas.md, "The ledger", has the derivation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from flagscale_perf.training.marks import spans, starts_of
from flagscale_perf.training.phases import GROUPS, PHASES, Kind, of_kind
from flagscale_perf.training.records import Outcome, StepRecord
from flagscale_perf.training.work import UNKNOWN, Microbatch

INTERRUPTION = 0.01  # of an iteration's time: a longer evaluation or checkpoint disturbs the step it is in
MAX_CUTS = 64  # of a step; a host with more of them has its ranks compared by nothing
MAX_NS = 1 << 53  # what JSON readers keep exactly; no measurement comes near it
CUTS = frozenset(map(PHASES.index, GROUPS["Comm"]))
WAITING = frozenset(map(PHASES.index, of_kind(Kind.WAITING)))
BETWEEN = PHASES.index("between_steps")
_KEPT_STEPS = 64  # whose cuts have not been asked for yet
_FORWARD = PHASES.index("forward")


class Cut(NamedTuple):
    """The way to the end of a collective.

    Attributes:
        phase: in which the wait at its end is, a place in `PHASES`.
        wait_ns: how long it is, the exchange itself included.
        own_ns: by phase, what came before it since the last cut.
    """

    phase: int
    wait_ns: int
    own_ns: dict[int, int]


class StepCuts(NamedTuple):
    """A step, from the last cut of the step before to its own last cut.

    Attributes:
        work: of the rank in it, by `work.WORK`; () where nothing is known.
    """

    iteration: int
    cuts: tuple[Cut, ...]
    work: tuple[int, ...] = ()


def cuts_of(found: Iterable[tuple[int, int]]) -> tuple[list[Cut], dict[int, int]]:
    """The cuts of a step, and the time by phase behind the last one. `found`: the step's spans in order, each
    a phase and nanoseconds.
    """
    cuts: list[Cut] = []
    own: dict[int, int] = {}
    wait: tuple[int, int] | None = None
    for phase, dur_ns in found:
        if wait is not None and phase != wait[0] and (dur_ns > 0 or phase in CUTS):
            cuts.append(Cut(*wait, own))
            own, wait = {}, None
        if phase in CUTS:
            wait = phase, dur_ns + (0 if wait is None else wait[1])
        elif dur_ns:
            own[phase] = own.get(phase, 0) + dur_ns
    if wait is not None:
        cuts.append(Cut(*wait, own))
        own = {}
    return cuts, own


def is_undisturbed(step: StepRecord) -> bool:
    """Whether no warm-up, passed-over data, evaluation or checkpoint is in it. Some hosts ask in every
    iteration whether a checkpoint has been written: microseconds, and no interruption.
    """
    is_interrupted = step.eval_ns + step.checkpoint_ns > INTERRUPTION * step.iteration_ns
    return not (step.warmup or step.outcome == Outcome.DATA_SKIPPED or is_interrupted)


def work_of(step: StepRecord, marks: Sequence[int], each: Microbatch) -> tuple[int, ...]:
    """The work of the step's rank, by `WORK`: what it has counted itself, else what follows from equal
    samples; UNKNOWN for what neither tells. How many micro-batches ran, their forward passes show.
    """
    passes = starts_of(_FORWARD, marks)
    is_marked = each.chunks > 0 and passes > 0 and passes % each.chunks == 0
    microbatches = passes // each.chunks if is_marked else step.microbatches
    tokens, squared_lengths = step.rank_tokens, step.rank_squared_lengths
    sample_tokens = each.sample_tokens or 0
    # Where the host says how many tokens the whole step had, equal samples make as many.
    if tokens is None and each.samples and sample_tokens and step.tokens == step.samples * sample_tokens:
        tokens = microbatches * each.samples * sample_tokens
        squared_lengths = tokens * sample_tokens
    found = tokens, squared_lengths, step.rank_expert_tokens, microbatches
    return tuple(UNKNOWN if value is None else value for value in found)


class CutKeeper:
    """Keeps the cuts of one rank's steps until they are asked for."""

    def __init__(self, microbatch: Microbatch) -> None:
        """`microbatch`: of the rank."""
        self._microbatch = microbatch
        self._kept: dict[int, StepCuts] = {}
        self._before: tuple[int, dict[int, int]] | None = None

    def add(self, step: StepRecord, marks: Sequence[int]) -> None:
        """A step and all its marks. One behind a disturbed step has no whole way to its first cut."""
        before, self._before = self._before, None
        if not is_undisturbed(step):
            return
        found = spans(marks, step.start_ns, step.start_ns + step.train_step_ns)
        cuts, rest = cuts_of(found)
        rest[BETWEEN] = step.iteration_ns - sum(dur_ns for _, dur_ns in found)
        self._before = step.iteration, rest
        if before is None or before[0] != step.iteration - 1 or not 0 < len(cuts) <= MAX_CUTS:
            return
        first = dict(before[1])
        for phase, dur_ns in cuts[0].own_ns.items():
            first[phase] = first.get(phase, 0) + dur_ns
        self._kept[step.iteration] = StepCuts(
            step.iteration,
            (cuts[0]._replace(own_ns=first), *cuts[1:]),
            work_of(step, marks, self._microbatch),
        )
        if len(self._kept) > _KEPT_STEPS:
            del self._kept[next(iter(self._kept))]

    def take(self, iteration: int) -> StepCuts | None:
        """Removes and returns that step; None if it is not there."""
        return self._kept.pop(iteration, None)
