"""Sums over a job's collectives: who waits, for which rank, how fast links are, the pipeline's bubble."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.profile.analysis.communication import Operation, RankCollectives, Side, operations_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.operations import POINT_TO_POINT, bus_factor


@dataclass(frozen=True)
class Waits:
    """Operations of one sort in one group, on one rank. Times are only of those that are split, where all
    ranks' parts are known: `total_ns` is wait, transfer and tail.

    Attributes:
        runs, split: operations, and those of them that are split.
        size_bytes: bytes of those that are split; None where that is not known of all.
        exposed_ns, exposed_wait_ns: None where it is not known of all.
        lasts: how often this rank came last, and late_ns: how much later than the one before it, together.
        naive_gb_per_s: bytes by the whole time, which is what one rank alone sees.
        algbw_gb_per_s, busbw_gb_per_s: of the transfers.
    """

    rank: int
    label: str
    group: str
    operation: str
    op: str
    runs: int
    split: int
    size_bytes: int | None
    total_ns: int
    wait_ns: int
    transfer_ns: int
    tail_ns: int
    exposed_ns: int | None
    exposed_wait_ns: int | None
    lasts: int
    late_ns: int
    naive_gb_per_s: float | None
    algbw_gb_per_s: float | None
    busbw_gb_per_s: float | None

    @property
    def exposed_waiting_ns(self) -> int:
        """Waiting of the rank while it did nothing else; all waiting where it is not known what hides it."""
        return self.wait_ns if self.exposed_wait_ns is None else self.exposed_wait_ns

    @property
    def exposed_transfer_ns(self) -> int:
        """The rest of the exposed time; the tail is part of it."""
        if self.exposed_ns is None:
            return self.transfer_ns + self.tail_ns
        return self.exposed_ns - self.exposed_waiting_ns

    @property
    def hidden_ns(self) -> int:
        """Time in which the rank did something else meanwhile."""
        return 0 if self.exposed_ns is None else max(0, self.total_ns - self.exposed_ns)


class Late(NamedTuple):
    """A rank that others wait for.

    Attributes:
        phase, module: where it is when it comes, most often.
        lasts: how often it came last, of `operations`.
        late_ns: how much later than the one before it, together.
        waits_ns: how long the others waited in these operations and did nothing else, together.
        alone_ns: by step, what the one that waited longest for it did, less what any rank waited for another
            rank: ranks that are late in turns, as on a busy machine, have as much below 0 as above.
        most_ns: by step, the same without that.
    """

    rank: int
    phase: str
    module: str
    lasts: int
    operations: int
    late_ns: int
    waits_ns: int
    alone_ns: Sequence[int]
    most_ns: Sequence[int]


class Bubble(NamedTuple):
    """How long a pipeline stage waits for messages, over its profiled steps.

    Attributes:
        stage, stages: which one of how many.
        steps, step_ns: profiled ones with messages, and their time.
        bubble_ns: time in which the rank waited for a message that its sender had not sent.
        back_pressure_ns: time in which it waited for a receiver.
        transfer_ns: transfer time of all its messages.
        microbatches: microbatches in a step; None where its messages do not tell.
        share: of the steps' time that is bubble; ideal_share: (p - 1) / (m + p - 1), of a schedule without
            interleaving whose stages take equally long.
    """

    rank: int
    stage: int | None
    stages: int | None
    steps: int
    step_ns: int
    bubble_ns: int
    back_pressure_ns: int
    transfer_ns: int
    microbatches: float | None
    share: float | None
    ideal_share: float | None

    @property
    def waiting_share(self) -> float | None:
        """Share of the steps' time in the bubble and waiting for receivers; a stage that sends and receives
        at once waits for its neighbour in both.
        """
        return (self.bubble_ns + self.back_pressure_ns) / self.step_ns if self.step_ns else None


class Communication:
    """The communication of a profile's job.

    Attributes:
        operations: all that several ranks share.
        exposed_ns: exposed time of all operations, groups of one rank included, by operation; over all ranks.
        waits: by rank, group and sort; lates: the ranks that others wait for, the worst first.
        bubbles: the waits of each pipeline stage.
        unsplit: operations of which not all ranks were recorded.
        clocks: how many the ranks have: with more than one, waits are clock-free, and no rank is late.
    """

    def __init__(self, profile: Profile) -> None:
        ranks = RankCollectives.of(profile)
        # a group of one rank has no other to send to, or to wait for
        everything = operations_of(ranks)
        self.operations = operations = [operation for operation in everything if operation.size != 1]
        stages = {rank.rank: rank.place.get("pipeline") for rank in ranks}
        steps = {rank.rank: [int(total) for total in rank.profiled["total_ns"]] for rank in profile.ranks}
        self.exposed_ns = _exposed(everything)
        self.waits, self.lates = waits_of(operations), lates_of(operations, stages)
        self.bubbles = bubbles_of(operations, ranks, steps)
        self.unsplit = sum(operation.transfer_ns is None for operation in operations)
        self.clocks = len({rank.clock for rank in ranks})


def _exposed(operations: Iterable[Operation]) -> Mapping[str, int]:
    found: Counter[str] = Counter()
    for operation in operations:
        for side in operation.sides:
            found[operation.operation] += side.total_ns if side.exposed_ns is None else side.exposed_ns
    return found


def waits_of(operations: Iterable[Operation]) -> list[Waits]:
    """One entry for each rank, group, operation and what executes it; the most time first."""
    found: dict[tuple[int, str, str, str], list[tuple[Operation, Side]]] = defaultdict(list)
    for operation in operations:
        for side in operation.sides:
            op = _own_op(operation, side)
            found[side.rank, operation.group, operation.operation, op].append((operation, side))
    made = [_waits(rank, op, each) for (rank, _, _, op), each in found.items()]
    return sorted(made, key=lambda waits: (-waits.total_ns, waits.rank))


def _own_op(operation: Operation, side: Side) -> str:
    """The operation on this side: in a message, one side sends and the other receives."""
    backend, colon, name = operation.op.rpartition(":")
    if side.is_send is None or name not in ("send", "recv"):
        return operation.op
    return f"{backend}{colon}{'send' if side.is_send else 'recv'}"


def _waits(rank: int, op: str, parts: Sequence[tuple[Operation, Side]]) -> Waits:
    """What adds up is of the operations that are split."""
    first, split = parts[0][0], [part for part in parts if part[0].transfer_ns is not None]
    operations, sides = [operation for operation, _ in split], [side for _, side in split]
    lates = [operation.late_ns or 0 for operation, side in split if side.is_last]
    size, total_ns = _sum(operations, "size_bytes"), sum(side.total_ns for side in sides)
    transfer_ns = _sum(operations, "transfer_ns") or 0
    algbw, factor = _ratio(size, transfer_ns), bus_factor(first.operation, first.size)
    return Waits(
        rank=rank,
        label=first.label,
        group=first.group,
        operation=first.operation,
        op=op,
        runs=len(parts),
        split=len(split),
        size_bytes=size,
        total_ns=total_ns,
        wait_ns=_sum(sides, "wait_ns") or 0,
        transfer_ns=transfer_ns,
        tail_ns=_sum(sides, "tail_ns") or 0,
        exposed_ns=_sum(sides, "exposed_ns"),
        exposed_wait_ns=_sum(sides, "exposed_wait_ns"),
        lasts=len(lates),
        late_ns=sum(lates),
        naive_gb_per_s=_ratio(size, total_ns),
        algbw_gb_per_s=algbw,
        busbw_gb_per_s=None if algbw is None or factor is None else algbw * factor,
    )


def _sum(parts: Sequence[Operation | Side], field: str) -> int | None:
    """None if there are no parts or the field is not known of all."""
    values = [getattr(part, field) for part in parts]
    return sum(values) if values and None not in values else None


def _ratio(value: int | None, by: int) -> float | None:
    return value / by if value and by else None


def lates_of(operations: Sequence[Operation], stages: Mapping[int, int | None]) -> list[Late]:
    """The ranks that arrive last in collectives, those first whose lateness costs the others most. Messages
    are left out, as are collectives over several pipeline stages: they wait for each other by design.
    `stages`: each rank's place in the pipeline.
    """
    found: dict[int, list[Operation]] = defaultdict(list)
    for operation in operations:
        is_in_one_stage = len({stages.get(side.rank) for side in operation.sides}) == 1
        is_message = operation.operation in POINT_TO_POINT
        if operation.late_ns is not None and is_in_one_stage and not is_message:
            found[next(side.rank for side in operation.sides if side.is_last)].append(operation)
    count, steps = sum(map(len, found.values())), _scores(found, _waited_by(operations))
    made = [_late(rank, each, count, steps) for rank, each in found.items()]
    return sorted(made, key=lambda late: -late.waits_ns)


_Step = tuple[int, int]  # window, and step of it


def _waited_by(operations: Iterable[Operation]) -> Mapping[_Step, Counter[int]]:
    """How long each rank waited for any other in each step, messages included."""
    found: dict[_Step, Counter[int]] = defaultdict(Counter)
    for operation in operations:
        for side in operation.sides:
            found[side.window, side.step][side.rank] += side.waited_ns
    return found


def _scores(
    lasts: Mapping[int, Sequence[Operation]], waited: Mapping[_Step, Counter[int]]
) -> Mapping[_Step, Mapping[int, int]]:
    """The longest wait for each rank in each step, less what that rank waited itself beyond the waiting one's
    other waits: a rank that is late because another one was is not to blame.
    """
    pairs: dict[_Step, Counter[tuple[int, int]]] = defaultdict(Counter)
    for last, operations in lasts.items():
        for operation in operations:
            for side in operation.sides:
                pairs[side.window, side.step][last, side.rank] += side.waited_ns
    found: dict[_Step, dict[int, int]] = {step: defaultdict(int) for step in pairs}
    for step, waits in pairs.items():
        for (last, other), ns in waits.items():
            excuse = waited[step][last] - (waited[step][other] - ns)
            found[step][last] = max(found[step][last], ns - max(0, excuse))
    return found


def _late(rank: int, last: Sequence[Operation], count: int, steps: Mapping[_Step, Mapping[int, int]]) -> Late:
    weights: Counter[tuple[str, str]] = Counter()
    for operation in last:
        side = next(side for side in operation.sides if side.is_last)
        weights[side.phase, side.module] += operation.late_ns or 0
    (phase, module), _ = weights.most_common(1)[0]
    return Late(
        rank=rank,
        phase=phase,
        module=module,
        lasts=len(last),
        operations=count,
        late_ns=weights.total(),
        waits_ns=sum(side.waited_ns for operation in last for side in operation.sides),
        alone_ns=[_alone_ns(rank, waits) for waits in steps.values()],
        most_ns=[waits.get(rank, 0) for waits in steps.values()],
    )


def _alone_ns(rank: int, waits: Mapping[int, int]) -> int:
    others = (ns for other, ns in waits.items() if other != rank)
    return waits.get(rank, 0) - max(others, default=0)


def bubbles_of(
    operations: Iterable[Operation], ranks: Sequence[RankCollectives], steps_ns: Mapping[int, Sequence[int]]
) -> list[Bubble]:
    """One entry for each rank that exchanges messages.

    Args:
        operations: of the job.
        ranks: for their places in the pipeline.
        steps_ns: of each rank's profiled steps.
    """
    found: dict[int, list[tuple[Operation, Side]]] = defaultdict(list)
    for operation in operations:
        if operation.operation in POINT_TO_POINT and operation.transfer_ns is not None:
            for side in operation.sides:
                found[side.rank].append((operation, side))
    return [
        _bubble(rank, found[rank.rank], steps_ns.get(rank.rank, ())) for rank in ranks if rank.rank in found
    ]


def _bubble(
    rank: RankCollectives, parts: Sequence[tuple[Operation, Side]], steps_ns: Sequence[int]
) -> Bubble:
    stage, stages = rank.place.get("pipeline"), rank.place.get("pipeline_size")
    steps = len({(side.window, side.step) for _, side in parts})
    sent, received = ([side for _, side in parts if bool(side.is_send) is way] for way in (True, False))
    bubble_ns, step_ns = sum(side.waited_ns for side in received), sum(steps_ns)
    microbatches = ideal_share = None
    if stages is not None:
        neighbours = 1 if stage in (0, stages - 1) else 2
        microbatches = len(received) / steps / neighbours
        ideal_share = (stages - 1) / (microbatches + stages - 1)
    return Bubble(
        rank=rank.rank,
        stage=stage,
        stages=stages,
        steps=steps,
        step_ns=step_ns,
        bubble_ns=bubble_ns,
        back_pressure_ns=sum(side.waited_ns for side in sent),
        transfer_ns=sum(operation.transfer_ns or 0 for operation, _ in parts),
        microbatches=microbatches,
        share=bubble_ns / step_ns if step_ns else None,
        ideal_share=ideal_share,
    )
