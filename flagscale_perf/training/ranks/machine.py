"""The cuts of the ranks of one machine, put side by side before they are sent."""

from __future__ import annotations

from collections import defaultdict

from flagscale_perf.training.host import MachineReader
from flagscale_perf.training.ledger.cuts import StepCuts
from flagscale_perf.training.ranks.blocks import Block, RankIdentity, block_steps
from flagscale_perf.training.ranks.rows import KEPT_RANKS, MachineCuts, Member, machine_cuts

# What one process has not read yet: ranks of a training are within a step of one another, but their rings are
# read one after the other, and on a busy machine late. A rank whose ring is out of order is not waited for
# longer than this.
WAITED_BLOCKS = 16


class Machine:
    """The ranks that one process gathers: their cuts side by side, in the last of their blocks.

    Attributes:
        steps: of a block.
        reader: of what the ranks have in common.
    """

    def __init__(self, size: int | None) -> None:
        """`size` of the job in ranks; None where it is not known."""
        self.steps = block_steps(size or 1)
        self.reader = MachineReader()
        self._keeps_all = (size or 1) <= KEPT_RANKS
        self._ranks: dict[int, RankIdentity] = {}
        self._open: set[int] = set()
        self._cuts: dict[int, dict[int, list[StepCuts]]] = defaultdict(lambda: defaultdict(list))
        self._done: dict[int, set[int]] = defaultdict(set)
        self._last: Block | None = None  # as it was sent

    def join(self, who: RankIdentity) -> None:
        """A rank that was found."""
        self._ranks[who.rank] = who
        self._open.add(who.rank)

    def step(self, rank: int, cuts: StepCuts | None) -> None:
        """The next step of a rank, before the block that it is in."""
        if cuts is not None:
            self._cuts[cuts.iteration // self.steps][rank].append(cuts)

    def block(self, block: Block) -> Block:
        """The block, with what is complete with it: a number that every rank has passed, or that another
        is `WAITED_BLOCKS` beyond.
        """
        number = block.iteration // self.steps
        self._done[number].add(block.rank)
        self._last = block._replace(cuts=tuple(self._complete(number + 1 - WAITED_BLOCKS)))
        return self._last

    def leave(self, rank: int) -> list[Block]:
        """A rank has ended: no block of it is waited for. What is complete by that goes with the last block
        of any rank, which is sent again; an error of a device is not said twice.
        """
        self._open.discard(rank)
        cuts = self._complete(0)
        if not cuts or self._last is None:
            return []
        self._last = self._last._replace(cuts=(*self._last.cuts, *cuts), xid=None)
        return [self._last]

    def _complete(self, waited_for: int) -> list[MachineCuts]:
        """The cuts of blocks that every rank has passed, and of those before number `waited_for`."""
        complete = [
            number for number, ranks in self._done.items() if ranks >= self._open or number < waited_for
        ]
        return [each for number in sorted(complete) for each in self._taken(number)]

    def _taken(self, number: int) -> list[MachineCuts]:
        self._done.pop(number)
        stages: dict[int, list[Member]] = defaultdict(list)
        for rank, steps in self._cuts.pop(number, {}).items():
            who = self._ranks[rank]
            stages[who.stage].append(Member(rank, who.lockstep, steps))
        return [
            each for stage, ranks in stages.items() for each in machine_cuts(stage, ranks, self._keeps_all)
        ]
