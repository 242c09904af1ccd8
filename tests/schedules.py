"""Steps of ranks that wait for one another at cuts, made so that the truth is known to the nanosecond."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from flagscale_perf.spine.averages import median
from flagscale_perf.training.ledger.cuts import Cut, StepCuts
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import CutsRecord
from flagscale_perf.training.ranks.rows import Member, machine_cuts, records_of
from flagscale_perf.training.work import UNKNOWN

MS = 1_000_000
DATA, FORWARD, BACKWARD, OPTIMIZER = map(
    PHASES.index, ("data_loading", "forward", "backward", "optimizer_inner_step")
)
GRADS, AGREE = map(PHASES.index, ("exposed_grad_comm", "exposed_stat_comm"))
# What an even rank does on its way to each cut, and what the exchange takes there.
EVEN: tuple[tuple[int, int, dict[int, int]], ...] = (
    (GRADS, 5 * MS, {OPTIMIZER: 6 * MS, DATA: 2 * MS, FORWARD: 30 * MS, BACKWARD: 60 * MS}),
    (AGREE, 1 * MS, {PHASES.index("other"): 3 * MS}),
)
STEP_NS = sum(exchange + sum(own.values()) for _, exchange, own in EVEN)

Extra = Callable[[int, int, int], int]  # rank, iteration, phase -> what it takes longer


def steps_of(ranks: int, iterations: Sequence[int], extra: Extra) -> list[list[StepCuts]]:
    """Of each rank: everybody waits at each cut for the last."""
    found: list[list[StepCuts]] = [[] for _ in range(ranks)]
    for iteration in iterations:
        cuts: list[list[Cut]] = [[] for _ in range(ranks)]
        for wait, exchange_ns, even in EVEN:
            own = [
                {phase: ns + extra(rank, iteration, phase) for phase, ns in even.items()}
                for rank in range(ranks)
            ]
            last_ns = max(sum(each.values()) for each in own)
            for rank, each in enumerate(own):
                cuts[rank].append(Cut(wait, last_ns - sum(each.values()) + exchange_ns, each))
        for rank in range(ranks):
            found[rank].append(StepCuts(iteration, tuple(cuts[rank])))
    return found


def recorded(ranks: int, iterations: Sequence[int], extra: Extra, tensor: int = 1) -> list[CutsRecord]:
    """Of one stage, as the run file has them."""
    members = [
        Member(rank, rank // tensor, steps) for rank, steps in enumerate(steps_of(ranks, iterations, extra))
    ]
    return side_by_side(members)


def side_by_side(
    members: Sequence[Member], suspects: AbstractSet[int] = frozenset(), machine: int = 1000
) -> list[CutsRecord]:
    """Of machines of so many ranks."""
    units: dict[int, tuple[int, ...]] = {}
    for member in members:
        units[member.lockstep] = (*units.get(member.lockstep, ()), member.rank)
    cuts = [
        each
        for first in range(0, len(members), machine)
        for each in machine_cuts(0, members[first : first + machine], machine == 1000)
    ]
    return records_of(0, cuts, units, suspects)


def noise(share: float, seed: int) -> Extra:
    """Each rank's own in every step and phase, normally distributed, as a share of the phase's usual time."""
    draw = random.Random(seed)
    usual = {phase: ns for _, _, own in EVEN for phase, ns in own.items()}
    return lambda rank, iteration, phase: round(usual[phase] * max(-0.5, draw.gauss(0, share)))


Work = Callable[[int, int], tuple[int, int]]  # rank, iteration -> tokens of the step, micro-batches


def with_work(records: Sequence[CutsRecord], work: Work) -> list[CutsRecord]:
    """The same with what each rank has to do, of a model whose FLOPs are its tokens'; the row of all others
    has medians.
    """
    made = []
    for record in records:
        each = [work(rank, record.iteration) for rank in range(record.units)]
        usual = tuple(int(median(column)) for column in zip(*each, strict=True))
        firsts = [sum(record.sizes[:row]) for row in range(len(record.sizes))]
        of_rows = [
            each[record.ranks[first]] if size else usual
            for first, size in zip(firsts, record.sizes, strict=True)
        ]
        flat = [value for tokens, batches in of_rows for value in (tokens, UNKNOWN, UNKNOWN, batches)]
        made.append(replace(record, work=flat))
    return made


def takes(work: Work, usual: int, constant: float) -> Extra:
    """What its work takes a rank longer than the usual tokens would, `constant`: the share of the computing
    that does not grow with the tokens of a micro-batch.
    """
    even = {FORWARD: 30 * MS, BACKWARD: 60 * MS}

    def extra(rank: int, iteration: int, phase: int) -> int:
        tokens, batches = work(rank, iteration)
        return round(even.get(phase, 0) * (constant * batches + (1 - constant) * tokens / usual - 1))

    return extra
