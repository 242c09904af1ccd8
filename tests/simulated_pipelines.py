"""Pipelines whose every delay is known, simulated from what Megatron-Core does: what the engine that replays
steps is held against. Nothing of it is used here but the types of what is recorded.

A rank is a list of things it does, one after another; whoever waits goes on `message_ns` after the last one
has come whom it exchanges messages with. A change is another job, simulated anew.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from flagscale_perf.analysis.replays import Kind, Layout, Part, RankStep

BETWEEN, OTHER, DATA, FORWARD, BACKWARD, PIPE, SYNC, EMBEDDINGS, AGREE, OPTIMIZER = range(10)
NAMES = {
    "between_steps": (BETWEEN,),
    "other": (OTHER,),
    "data_loading": (DATA,),
    "forward": (FORWARD,),
    "backward": (BACKWARD,),
    "p2p": (PIPE,),
    "grad_comm": (SYNC,),
    "optimizer": (OPTIMIZER,),
}
BEFORE_NS = 1_000  # in front of each pass
Tag = tuple[
    bool, int, int
]  # of a message: whether it goes forward, the place of the chunk that made it, batch
Delay = Callable[[int, int, int, int], int]  # of a pass: stage, replica, chunk, batch -> nanoseconds


@dataclass(frozen=True)
class Does:
    """One thing that a rank does.

    Attributes:
        kind, phase, name: as its `Part`.
        ns: how long it works, or takes once all have come.
        sends, receives: messages.
    """

    kind: Kind
    phase: int
    name: str = ""
    ns: int = 0
    sends: tuple[Tag, ...] = ()
    receives: tuple[Tag, ...] = ()


@dataclass(frozen=True)
class Job:
    """One step of all ranks; a stage's replicas are numbered one after another.

    Attributes:
        group: micro-batches of a chunk that follow one another, where there are several chunks.
        forward_ns, backward_ns: of a pass.
        data_ns: of a rank and micro-batch, within the forward pass of the first and the last chunk.
        optimizer_ns, between_ns, begins_ns: of a rank; between steps, and when it left the step before.
        sync_ns, embeddings_ns, agree_ns: once all have come.
        ties: whether the first and the last stage share embeddings.
        losses_ns: what the last stage takes to average its losses over replicas once it has left the step's
            last agreement, which then each replica has alone; None where all agree, and nothing follows.
        layers: of each chunk, in the model's order; () where that is not known.
    """

    stages: int
    batches: int
    forward_ns: Delay
    backward_ns: Delay
    chunks: int = 1
    replicas: int = 1
    group: int = 0
    message_ns: int = 0
    data_ns: Callable[[int, int], int] = lambda rank, batch: 0
    optimizer_ns: Callable[[int], int] = lambda rank: 0
    between_ns: Callable[[int], int] = lambda rank: 0
    begins_ns: Callable[[int], int] = lambda rank: 0
    sync_ns: int = 0
    embeddings_ns: int = 0
    agree_ns: int = 0
    ties: bool = False
    losses_ns: int | None = None
    layers: tuple[int, ...] = ()

    @property
    def ranks(self) -> int:
        return self.stages * self.replicas

    @property
    def layout(self) -> Layout:
        """As the engine is told."""
        alone = "1f1b" if self.stages > 1 else None
        return Layout(
            stages={rank: rank // self.replicas for rank in range(self.ranks)},
            clocks=dict.fromkeys(range(self.ranks), "one"),
            schedule="interleaved" if self.chunks > 1 else alone,
            chunks=self.chunks,
            group=self.group or self.stages,
            agreement="agree",
            embeddings="embeddings",
            strict=frozenset({"sync"}),
            phases=NAMES,
            layers=[self.layers[stage :: self.stages] for stage in range(self.stages)] if self.layers else (),
        )


@dataclass
class _Rank:
    number: int
    at_ns: int
    todo: list[Does]
    came: dict[int, int] = field(default_factory=dict)
    done: int = 0
    parts: list[Part] = field(default_factory=list)
    durs_ns: list[int] = field(default_factory=list)

    def take(self, each: Does, until_ns: int) -> None:
        self.parts.append(Part(each.kind, each.phase, each.name))
        self.durs_ns.append(until_ns - self.at_ns)
        self.at_ns = until_ns
        self.done += 1


_KNOWN: dict[tuple[Part, ...], tuple[Part, ...]] = {}


def steps_of(job: Job, iteration: int = 1) -> list[RankStep]:
    """What is recorded of each rank."""
    ranks = [_Rank(rank, job.begins_ns(rank), [*_program(job, rank)]) for rank in range(job.ranks)]
    posted: dict[tuple[int, bool, Tag], int] = {}  # by replica, whether it is sent, message: when
    meetings: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
    members: dict[tuple[str, int], set[int]] = defaultdict(set)
    for rank in ranks:
        for each in rank.todo:
            if each.kind is Kind.MEETING:
                members[_meeting(job, rank.number, each)].add(rank.number)
    waiting = True
    while waiting:
        waiting = False
        for rank in ranks:
            while rank.done < len(rank.todo):
                until_ns = _until(job, rank, (posted, meetings, members))
                if until_ns is None:
                    break
                rank.take(rank.todo[rank.done], until_ns)
                waiting = True
    assert all(rank.done == len(rank.todo) for rank in ranks), "ranks wait for one another"
    return [
        RankStep(
            rank.number,
            iteration,
            _KNOWN.setdefault(tuple(rank.parts), tuple(rank.parts)),
            rank.durs_ns,
            job.begins_ns(rank.number),
        )
        for rank in ranks
    ]


def step_ns(job: Job) -> int:
    """From when the last rank has left the step before until the last one leaves it."""
    steps = steps_of(job)
    return max(step.begin_ns + sum(step.durs_ns) for step in steps) - max(step.begin_ns for step in steps)


def _meeting(job: Job, rank: int, each: Does) -> tuple[str, int]:
    is_of_replica = each.name == "embeddings" or job.losses_ns is not None
    if each.name in ("agree", "embeddings"):
        return each.name, rank % job.replicas if is_of_replica else 0
    return each.name, rank // job.replicas


def _until(
    job: Job,
    rank: _Rank,
    known: tuple[
        dict[tuple[int, bool, Tag], int],
        Mapping[tuple[str, int], dict[int, int]],
        Mapping[tuple[str, int], set[int]],
    ],
) -> int | None:
    """When it is through with what it does; None as long as that is not known."""
    each, replica = rank.todo[rank.done], rank.number % job.replicas
    posted, meetings, members = known
    if each.kind is Kind.MEETING:
        key = _meeting(job, rank.number, each)
        meetings[key][rank.number] = rank.at_ns
        averages = (
            each.name == "agree"
            and job.losses_ns is not None
            and rank.number // job.replicas == job.stages - 1
        )
        keys = [other for other in members if other[0] == "agree"] if averages else [key]
        if any(meetings[other].keys() != members[other] for other in keys):
            return None
        last_ns = max(ns for other in keys for ns in meetings[other].values())
        return last_ns + each.ns + (job.losses_ns or 0) * averages
    if each.kind is not Kind.MESSAGE:
        return rank.at_ns + each.ns
    for is_sent, tags in ((True, each.sends), (False, each.receives)):
        for tag in tags:
            posted.setdefault((replica, is_sent, tag), rank.at_ns)
    others = [(replica, False, tag) for tag in each.sends] + [(replica, True, tag) for tag in each.receives]
    if not posted.keys() >= {*others}:
        return None
    return max([rank.at_ns, *(posted[other] for other in others)]) + job.message_ns


def _program(job: Job, rank: int) -> Iterator[Does]:
    stage = rank // job.replicas
    yield Does(Kind.WORK, BETWEEN, ns=job.between_ns(rank))
    yield from (_interleaved if job.chunks > 1 else _one_f_one_b)(job, rank)
    yield Does(Kind.MEETING, SYNC, "sync", job.sync_ns)
    if job.ties and stage in (0, job.stages - 1):
        yield Does(Kind.MEETING, EMBEDDINGS, "embeddings", job.embeddings_ns)
    yield Does(Kind.WORK, OPTIMIZER, ns=job.optimizer_ns(rank))
    yield Does(Kind.MEETING, AGREE, "agree", job.agree_ns)


def _pass(job: Job, rank: int, is_forward: bool, chunk: int, batch: int) -> Iterator[Does]:
    stage, replica = divmod(rank, job.replicas)
    yield Does(Kind.BEFORE, OTHER, ns=BEFORE_NS)
    place = chunk * job.stages + stage
    if not is_forward:
        yield Does(Kind.BACKWARD, BACKWARD, ns=job.backward_ns(stage, replica, chunk, batch))
        return
    takes_ns, data_ns = job.forward_ns(stage, replica, chunk, batch), job.data_ns(rank, batch)
    if data_ns and place in (0, job.stages * job.chunks - 1):
        yield Does(Kind.WORK, FORWARD, ns=takes_ns // 4)
        yield Does(Kind.WORK, DATA, ns=data_ns)
        takes_ns -= takes_ns // 4
    yield Does(Kind.FORWARD, FORWARD, ns=takes_ns)


_Way = tuple[bool, int]  # of a message: whether it goes forward, and of which micro-batch


def _exchange(
    job: Job, rank: int, name: str, sends: Sequence[_Way] = (), receives: Sequence[_Way] = ()
) -> Iterator[Does]:
    """With the stages beside; nothing where there is none."""
    stage, last = rank // job.replicas, job.stages - 1
    sent = tuple((forward, stage, batch) for forward, batch in sends if stage != (last if forward else 0))
    received = tuple(
        (forward, stage - 1 if forward else stage + 1, batch)
        for forward, batch in receives
        if stage != (0 if forward else last)
    )
    if sent or received:
        yield Does(Kind.MESSAGE, PIPE, name, 0, sent, received)


def _one_f_one_b(job: Job, rank: int) -> Iterator[Does]:
    count = job.batches
    ahead = min(job.stages - 1 - rank // job.replicas, count)
    for batch in range(ahead):
        yield from _exchange(job, rank, "forward-recv", receives=[(True, batch)])
        yield from _pass(job, rank, True, 0, batch)
        yield from _exchange(job, rank, "forward-send", [(True, batch)])
    if ahead < count:
        yield from _exchange(job, rank, "forward-recv", receives=[(True, ahead)])
    for batch in range(count - ahead):
        yield from _pass(job, rank, True, 0, ahead + batch)
        ways = [(True, ahead + batch)], [(False, batch)]
        yield from _exchange(job, rank, "forward-send-backward-recv", *ways)
        yield from _pass(job, rank, False, 0, batch)
        if batch == count - ahead - 1:
            yield from _exchange(job, rank, "backward-send", [(False, batch)])
        else:
            ways = [(False, batch)], [(True, ahead + batch + 1)]
            yield from _exchange(job, rank, "backward-send-forward-recv", *ways)
    for batch in range(count - ahead, count):
        yield from _exchange(job, rank, "backward-recv", receives=[(False, batch)])
        yield from _pass(job, rank, False, 0, batch)
        yield from _exchange(job, rank, "backward-send", [(False, batch)])


class _Chunks:
    """The passes of a stage that has several chunks, and what is sent and received behind each.

    Attributes:
        tables: of backward and of forward passes, each one's chunk and micro-batch: in groups, each group
            through all chunks.
    """

    def __init__(self, job: Job, stage: int) -> None:
        group = job.group or job.stages
        forth = [
            (chunk, batch)
            for first in range(0, job.batches, group)
            for chunk in range(job.chunks)
            for batch in range(first, min(first + group, job.batches))
        ]
        self.tables = [(job.chunks - 1 - chunk, batch) for chunk, batch in forth], forth
        self._job, self._stage = job, stage

    def made(self, is_forward: bool, number: int, stage: int | None = None) -> tuple[Tag, ...]:
        """By that pass of a stage, this one where none is said: nothing by the last chunk of a direction."""
        job = self._job
        chunk, batch = self.tables[is_forward][number]
        place = chunk * job.stages + (self._stage if stage is None else stage)
        is_last = place == (job.stages * job.chunks - 1 if is_forward else 0)
        return () if is_last else ((is_forward, place, batch),)

    def received(self, is_forward: bool, number: int) -> tuple[Tag, ...]:
        """Behind the pass of that number, -1 before the first. At a turn of the pipeline the stage that sends
        is as many passes behind as there are stages between.
        """
        last, count = self._job.stages - 1, len(self.tables[is_forward])
        if self._stage != (0 if is_forward else last):
            sender, which = self._stage + (-1 if is_forward else 1), number + 1
        else:
            sender, which = last if is_forward else 0, number - last
        is_none = number == count - 1 or not 0 <= which < count
        return () if is_none else self.made(is_forward, which, sender)

    def exchange(self, name: str, **numbers: int) -> Does:
        """Behind these passes, by direction."""
        sends: tuple[Tag, ...] = ()
        receives: tuple[Tag, ...] = ()
        for direction, number in numbers.items():
            is_forward = direction == "forward"
            sends += self.made(is_forward, number) if number >= 0 else ()
            receives += self.received(is_forward, number)
        return Does(Kind.MESSAGE, PIPE, name, 0, sends, receives)


BOTH = "forward-backward-send-forward-backward-recv"


def _interleaved(job: Job, rank: int) -> Iterator[Does]:
    stage = rank // job.replicas
    chunks = _Chunks(job, stage)
    back, forth = chunks.tables
    count = len(forth)
    ahead = min(2 * (job.stages - 1 - stage) + (job.chunks - 1) * (job.group or job.stages), count)
    if stage:
        yield chunks.exchange("forward-recv", forward=-1)
    for number in range(ahead):
        yield from _pass(job, rank, True, *forth[number])
        if number == ahead - 1 and ahead < count:
            yield chunks.exchange(BOTH, forward=number, backward=-1)
        else:
            yield chunks.exchange("forward-send-forward-recv", forward=number)
    for number in range(count - ahead):
        yield from _pass(job, rank, True, *forth[ahead + number])
        yield from _pass(job, rank, False, *back[number])
        yield chunks.exchange(BOTH, forward=ahead + number, backward=number)
    if ahead == count and stage < job.stages - 1:
        yield chunks.exchange("backward-recv", backward=-1)
    for number in range(count - ahead, count):
        yield from _pass(job, rank, False, *back[number])
        yield chunks.exchange("backward-send-backward-recv", backward=number)


def model_of(
    layers: Sequence[int], edges_ns: tuple[int, int], stages: int, layer_ns: int
) -> tuple[Delay, Delay]:
    """Forward and backward passes of chunks of so many layers, all alike; a backward pass takes twice as
    long. `edges_ns`: what the embedding and the head take.
    """

    def forward_ns(stage: int, replica: int, chunk: int, batch: int) -> int:
        place = chunk * stages + stage
        first, last = place == 0, place == len(layers) - 1
        return layers[place] * layer_ns + edges_ns[0] * first + edges_ns[1] * last

    return forward_ns, lambda *key: 2 * forward_ns(*key)


def layered(layers: Sequence[int], stages: int, batches: int, **other: int) -> Job:
    """A model in a pipeline: the same in each step and micro-batch."""
    forward_ns, backward_ns = model_of(layers, (6_400_000, 12_800_000), stages, 10_240_000)
    return Job(
        stages, batches, forward_ns, backward_ns, chunks=len(layers) // stages, layers=tuple(layers),
        message_ns=640_000, optimizer_ns=lambda rank: 5_000_000, between_ns=lambda rank: 1_000_000,
        sync_ns=2_000_000, agree_ns=500_000, **other,
    )  # fmt: skip


def drawn(draw: random.Random, large: bool = False) -> Job:
    """Any pipeline whose delays are all different."""
    chunks = draw.choice((1, 1, 2, 3, 4))
    stages = draw.choice((2, 3, 4, 8, 16) if large else (2, 3, 4)) if chunks > 1 or draw.random() < 0.9 else 1
    group = draw.choice((stages, stages + 1, 2 * stages)) if chunks > 1 else 0
    rounds = draw.randrange(1, 4)
    batches = group * rounds if chunks > 1 else draw.randrange(1, 3 * stages + 2)
    seed = draw.randrange(1 << 30)

    def ns(least: int, most: int, *key: object) -> int:
        return 64 * random.Random(f"{seed} {key}").randrange(least // 64, most // 64)  # halves are whole

    return Job(
        stages, batches,
        lambda *key: ns(10_000_000, 40_000_000, "f", key),
        lambda *key: ns(20_000_000, 80_000_000, "b", key),
        chunks=chunks, replicas=draw.choice((1, 1, 2, 3, 64 if large else 4)), group=group,
        message_ns=ns(0, 2_000_000, "m"),
        data_ns=lambda *key: ns(1_000_000, 9_000_000, "d", key),
        optimizer_ns=lambda rank: ns(5_000_000, 9_000_000, "o", rank),
        between_ns=lambda rank: ns(1_000_000, 3_000_000, "x", rank),
        begins_ns=lambda rank: 10**12 + ns(0, 2_000_000, "s", rank),
        sync_ns=ns(0, 5_000_000, "g"), embeddings_ns=ns(0, 5_000_000, "e"), agree_ns=ns(0, 500_000, "a"),
        ties=draw.random() < 0.5,
    )  # fmt: skip
