"""A job of many ranks, simulated block by block: who works how long, and who waits for whom. Seeded, so that
every number comes again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy

from flagscale_perf.training.ledger.cuts import Cut, StepCuts
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block, RankIdentity, block_steps
from flagscale_perf.training.ranks.rows import KEPT_RANKS, Member, machine_cuts

MS = 1_000_000
# What an even rank does in a step, in milliseconds.
WORK_MS = {
    "data_loading": 2.0,
    "forward": 30.0,
    "backward": 60.0,
    "optimizer_inner_step": 6.0,
    "optimizer_copy_param": 2.0,
}
SYNC_MS = 5.0  # what a reduction takes when nobody is late
OTHER_MS = 1.0
PER_NODE = 8
_NOISY = tuple(WORK_MS)
_GRADS = PHASES.index("exposed_grad_comm")


@dataclass(frozen=True)
class Noise:
    """How steps differ, as shares of their work.

    Attributes:
        step: of every step by itself, normally distributed.
        heavy: the same with Student's t of 3 degrees of freedom.
        drift: of a rank, correlated over `memory` (a factor from step to step).
        common: the same of all ranks together.
        hiccup: probability of a step that takes up to 20 times as long.
        uneven: of a rank for good: devices are not all the same.
    """

    step: float = 0.0
    heavy: float = 0.0
    drift: float = 0.0
    common: float = 0.0
    hiccup: float = 0.0
    uneven: float = 0.0
    memory: float = 0.9


@dataclass(frozen=True)
class Job:
    """The layout: rank = (stage * data + place) * tensor + member, as with pipeline stages outermost.

    Attributes:
        tensor, data, stages: sizes.
        heavier: stage -> times the work of the others.
    """

    tensor: int = 1
    data: int = 1
    stages: int = 1
    heavier: dict[int, float] = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Ranks."""
        return self.tensor * self.data * self.stages

    def identities(self) -> list[RankIdentity]:
        """Eight ranks a node."""
        per_stage = self.tensor * self.data
        return [
            RankIdentity(
                rank,
                f"host-{rank // PER_NODE}",
                1000 + rank,
                "NVIDIA H200",
                f"uuid-{rank}",
                rank // per_stage,
                rank // self.tensor,
            )
            for rank in range(self.size)
        ]


@dataclass(frozen=True)
class Slow:
    """Ranks that take `share` of their work longer in `phase`, in the steps from `first` to `last`."""

    ranks: tuple[int, ...]
    share: float
    phase: str
    first: int
    last: int = 1 << 40
    clock_mhz: int | None = None
    throttle: str = ""


class Simulation:
    """Blocks of a job, round by round."""

    def __init__(
        self, job: Job, noise: Noise | None = None, slow: tuple[Slow, ...] = (), seed: int = 1
    ) -> None:
        self._job, self._noise, self._slow = job, noise or Noise(), slow
        self._who = job.identities()
        self._random = numpy.random.default_rng(seed)
        self._drift, self._common = numpy.zeros(job.size), 0.0
        self._uneven = 1 + self._noise.uneven * self._random.standard_normal(job.size)
        per_stage = job.tensor * job.data
        self._weight = self._uneven * numpy.array(
            [job.heavier.get(rank // per_stage, 1.0) for rank in range(job.size)]
        )

    def rounds(self, count: int, first: int = 1) -> Iterator[list[Block]]:
        """The blocks with the numbers from `first` on, each round's by rank."""
        for number in range(first, first + count):
            length = block_steps(self._job.size)
            steps = [self._step(number * length + step) for step in range(length)]
            medians = {
                phase: numpy.median([step[phase] for step in steps], axis=0).astype(int).tolist()
                for phase in steps[0]
            }
            cuts = _cuts(number * length, steps)
            blocks = [self._block(rank, number, medians) for rank in range(self._job.size)]
            yield [self._with_cuts(block, cuts) for block in blocks]

    def _with_cuts(self, block: Block, cuts: dict[int, list[StepCuts]]) -> Block:
        """The last rank of a node has those of all of its ranks."""
        rank = block.rank
        if cuts and (rank % PER_NODE == PER_NODE - 1 or rank == self._job.size - 1):
            who = self._who[rank - rank % PER_NODE : rank + 1]
            members = [Member(each.rank, each.lockstep, cuts[each.rank]) for each in who]
            keeps_all = self._job.size <= KEPT_RANKS
            return block._replace(cuts=tuple(machine_cuts(who[0].stage, members, keeps_all)))
        return block

    def _factors(self) -> numpy.ndarray:
        noise, draw, size = self._noise, self._random, self._job.size
        fresh = (1 - noise.memory**2) ** 0.5
        self._drift = noise.memory * self._drift + fresh * draw.standard_normal(size)
        self._common = noise.memory * self._common + fresh * draw.standard_normal()
        factors = (
            1
            + noise.step * draw.standard_normal(size)
            + noise.drift * self._drift
            + noise.common * self._common
        )
        if noise.heavy:
            factors = factors + noise.heavy * draw.standard_t(3, size)
        if noise.hiccup:
            factors = factors * numpy.where(draw.random(size) < noise.hiccup, draw.uniform(1, 20, size), 1.0)
        return numpy.maximum(factors, 0.2)

    def _step(self, iteration: int) -> dict[str, numpy.ndarray]:
        factors = self._weight * self._factors()
        phases = {phase: WORK_MS[phase] * MS * factors for phase in _NOISY}
        for slow in self._slow:
            if slow.first <= iteration <= slow.last:
                # In place: a phase nobody else has begins at nothing.
                phase = phases.setdefault(slow.phase, numpy.zeros(self._job.size))
                phase[list(slow.ranks)] += slow.share * sum(WORK_MS.values()) * MS
        # Inside forward and backward the members of a lockstep group wait for their slowest.
        for name in ("forward", "backward"):
            phases[name] = phases[name].reshape(-1, self._job.tensor).max(axis=1).repeat(self._job.tensor)
        work = sum(phases.values())
        phases["other"] = phases.get("other", 0.0) + numpy.full(self._job.size, OTHER_MS * MS)
        wait = "pipeline_recv_wait" if self._job.stages > 1 else "exposed_grad_comm"
        phases[wait] = work.max() + SYNC_MS * MS - work
        phases["iteration"] = sum(phases.values())
        return phases

    def _block(self, rank: int, number: int, medians: dict[str, list[int]]) -> Block:
        length = block_steps(self._job.size)
        first, last = number * length, number * length + length - 1
        clock_mhz, throttle = 1980, ""
        for slow in self._slow:
            if rank in slow.ranks and slow.first <= last and first <= slow.last and slow.clock_mhz:
                clock_mhz, throttle = slow.clock_mhz, slow.throttle
        waits = {"pipeline_recv_wait", "exposed_grad_comm"}
        work_ns = sum(of_all[rank] for name, of_all in medians.items() if name not in {*waits, "iteration"})
        return Block(
            rank=rank,
            first_iteration=first,
            iteration=last,
            steps=length,
            iteration_ns=medians["iteration"][rank],
            work_ns=work_ns,
            wait_ns=sum(medians[name][rank] for name in waits & medians.keys()),
            data_ns=medians["data_loading"][rank],
            memory_peak_bytes=(50 + rank % 7) * 10**9,
            sm_clock_mhz=clock_mhz,
            throttle=throttle,
            xid=0,
            ecc_uncorrected=0,
        )


def _cuts(first: int, steps: list[dict[str, numpy.ndarray]]) -> dict[int, list[StepCuts]]:
    """By rank: each step up to the end of its reduction; none where stages wait for one another."""
    found: dict[int, list[StepCuts]] = defaultdict(list)
    for iteration, step in enumerate(steps, first):
        if "exposed_grad_comm" not in step:
            continue
        columns = {PHASES.index(name): ns.tolist() for name, ns in step.items() if name in PHASES}
        waits = columns.pop(_GRADS)
        for rank, wait_ns in enumerate(waits):
            own = {phase: int(values[rank]) for phase, values in columns.items()}
            found[rank].append(StepCuts(iteration, (Cut(_GRADS, int(wait_ns), own),)))
    return found
