"""Steps of pipelines whose passes last as long as a test says, on clocks that are apart: what the engine
that replays steps is held against.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from flagscale_perf.analysis.replays import Kind, Layout, Part, RankStep
from flagscale_perf.whatif.schedules import Exchange, Message, Pass, Shape, operations_of

BETWEEN, OTHER, FORWARD, BACKWARD, PIPE, SYNC, AGREE, OPTIMIZER = range(8)  # phases
BETWEEN_NS, BEFORE_NS, CALL_NS = 1_000, 100, 10
SYNC_NS, AGREE_NS, OPTIMIZER_NS = 2_000_000, 500_000, 3_000_000
TAIL_NS = SYNC_NS + AGREE_NS + OPTIMIZER_NS


@dataclass
class Rank:
    """What one rank has done.

    Attributes:
        posted: messages that it has asked for without waiting.
    """

    number: int
    stage: int
    replica: int
    todo: list[Pass | Exchange]
    at_ns: int = 0
    parts: list[Part] = field(default_factory=list)
    durs_ns: list[int] = field(default_factory=list)
    posted: set[Message] = field(default_factory=set)

    def take(self, part: Part, until_ns: int) -> None:
        """The next part, until then."""
        self.parts.append(part)
        self.durs_ns.append(until_ns - self.at_ns)
        self.at_ns = until_ns


@dataclass
class Pipeline:
    """One step of all ranks, which are numbered replica by replica within a stage.

    Attributes:
        pass_ns: how long a pass of a stage and a replica lasts; changed where a test plants something.
        message_ns: what an exchange takes once both sides are there.
        overlaps: messages pass beside computing, where interleaved.
        clocks_ns: by how much the clock of each machine is ahead.
        machine_of: of a rank.
    """

    shape: Shape
    replicas: int
    pass_ns: Callable[[int, int, Pass], int]
    message_ns: int = 0
    overlaps: bool = False
    clocks_ns: Sequence[int] = (0,)
    machine_of: Callable[[int], int] = lambda _: 0
    _parts: dict[tuple[Part, ...], tuple[Part, ...]] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        """As the engine is told."""
        ranks = range(self.shape.stages * self.replicas)
        alone = "1f1b" if self.shape.stages > 1 else None
        return Layout(
            stages={rank: rank // self.replicas for rank in ranks},
            clocks={rank: f"machine{self.machine_of(rank)}" for rank in ranks},
            schedule="interleaved" if self.shape.chunks > 1 else alone,
            chunks=self.shape.chunks,
            group=self.shape.group,
            overlaps=self.overlaps,
            agreement="agree",
            embeddings="embeddings",
            strict=frozenset({"sync"}),
        )

    def run(self, iteration: int = 7) -> tuple[list[RankStep], int]:
        """The steps of all ranks, and how long the step takes."""
        ranks = [
            Rank(stage * self.replicas + replica, stage, replica, self._operations(stage))
            for stage in range(self.shape.stages)
            for replica in range(self.replicas)
        ]
        for replica in range(self.replicas):
            self._pipeline([rank for rank in ranks if rank.replica == replica])
        for stage in range(self.shape.stages):
            meet([rank for rank in ranks if rank.stage == stage], Part(Kind.MEETING, SYNC, "sync"), SYNC_NS)
        meet(ranks, Part(Kind.MEETING, AGREE, "agree"), AGREE_NS)
        for rank in ranks:
            rank.take(Part(Kind.WORK, OPTIMIZER), rank.at_ns + OPTIMIZER_NS)
        steps = [self._step(rank, iteration) for rank in ranks]
        return steps, max(rank.at_ns for rank in ranks)

    def _operations(self, stage: int) -> list[Pass | Exchange]:
        return operations_of(self.shape, stage, self.overlaps)

    def _step(self, rank: Rank, iteration: int) -> RankStep:
        parts = tuple(rank.parts)
        parts = self._parts.setdefault(parts, parts)
        begin_ns = 10**12 + self.clocks_ns[self.machine_of(rank.number)]
        return RankStep(rank.number, iteration, parts, rank.durs_ns, begin_ns)

    def _pipeline(self, ranks: Sequence[Rank]) -> None:
        """Each stage does its operations, as far as it is known when what it waits for comes."""
        sent: dict[Message, int] = {}  # when the sender, and when the receiver has come to it
        received: dict[Message, int] = {}
        for rank in ranks:
            rank.take(Part(Kind.WORK, BETWEEN), BETWEEN_NS)
        while any(rank.todo for rank in ranks):
            for rank in ranks:
                while rank.todo and self._does(rank, rank.todo[0], sent, received):
                    rank.todo.pop(0)

    def _does(
        self, rank: Rank, each: Pass | Exchange, sent: dict[Message, int], received: dict[Message, int]
    ) -> bool:
        if isinstance(each, Exchange):
            for message in each.sends:
                sent.setdefault(message, rank.at_ns)
            for message in each.receives:
                received.setdefault(message, rank.at_ns)
            others = [*(received.get(one) for one in each.sends), *(sent.get(one) for one in each.receives)]
            if not each.waits:
                rank.posted |= {*each.receives}
                others = []
            known = [other for other in others if other is not None]
            if len(known) < len(others):
                return False
            takes_ns = self.message_ns if others else CALL_NS
            rank.take(Part(Kind.MESSAGE, PIPE, each.name), max([rank.at_ns, *known]) + takes_ns)
            return True
        needed = self.shape.needed(rank.stage, each)
        come_ns = sent.get(needed, -1) if needed in rank.posted else 0
        if come_ns < 0:
            return False
        rank.take(Part(Kind.BEFORE, OTHER), max(rank.at_ns, come_ns) + BEFORE_NS)
        kind, phase = (Kind.FORWARD, FORWARD) if each.is_forward else (Kind.BACKWARD, BACKWARD)
        rank.take(Part(kind, phase), rank.at_ns + self.pass_ns(rank.stage, rank.replica, each))
        return True


def meet(ranks: Iterable[Rank], part: Part, takes_ns: int) -> None:
    """A collective: all leave it so long after the last one has come."""
    ranks = [*ranks]
    end_ns = max(rank.at_ns for rank in ranks) + takes_ns
    for rank in ranks:
        rank.take(part, end_ns)
