"""Which part of a rank's step follows what: of a pipeline's messages and of meetings, from the order alone.

Replicas whose ranks do the same parts share one graph, in which a value is an array over replicas and steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import NamedTuple

from flagscale_perf.analysis.replays import Kind, Layout, NotKnownError, Part
from flagscale_perf.whatif.schedules import (
    INTERLEAVED,
    ONE_F_ONE_B,
    Exchange,
    Message,
    Pass,
    Shape,
    operations_of,
)

Parts = tuple[Part, ...]
Column = tuple[Parts, ...]  # the parts of a replica's ranks, by stage
PASSES = (Kind.FORWARD, Kind.BACKWARD)


class Lane(NamedTuple):
    """The ranks of a stage whose steps have the same parts.

    Attributes:
        column: number of the replicas that these are of.
    """

    column: int
    stage: int


class Node(NamedTuple):
    """A part of a step, of all ranks of a lane."""

    lane: Lane
    at: int


class Edge(NamedTuple):
    """A part ends after another one of the same replica.

    Attributes:
        after: the one that ends first.
        is_room: it is the receiver that a sender waits for, where there is no room for what it sends.
    """

    after: Node
    is_room: bool


class Meeting(NamedTuple):
    """A collective, or several of the same name and turn, whose ranks come to it with the part before.

    Attributes:
        places: of each lane that has it, which part it is.
    """

    name: str
    places: Mapping[Lane, int]


class Graph(NamedTuple):
    """All parts of a step of all ranks.

    Attributes:
        parts: by lane.
        edges: of each part that waits for a message, or for one who receives it.
        meetings: collectives.
        order: parts that wait for others, and meetings, each behind what it waits for. A part that is none of
            these follows the one before it.
    """

    parts: Mapping[Lane, Parts]
    edges: Mapping[Node, Sequence[Edge]]
    meetings: Sequence[Meeting]
    order: Sequence[Node | int]


def graph_of(layout: Layout, columns: Sequence[Column]) -> Graph:
    """The graph of replicas with these parts. Raises NotKnownError where their passes do not come in the
    order of the schedule, or wait for one another.
    """
    parts = {
        Lane(number, stage): own for number, column in enumerate(columns) for stage, own in enumerate(column)
    }
    edges: dict[Node, list[Edge]] = defaultdict(list)
    for number, column in enumerate(columns):
        for node, edge in _edges(layout, number, column):
            edges[node].append(edge)
    meetings = [*_meetings(layout, parts)]
    return Graph(parts, edges, meetings, _order(parts, edges, meetings))


def shape_of(layout: Layout, column: Column) -> Shape:
    """Of the pipeline, with as many micro-batches as the first rank has."""
    count = sum(part.kind is Kind.FORWARD for part in column[0])
    batches, rest = divmod(count, layout.chunks)
    known = {None: len(column) == 1, ONE_F_ONE_B: layout.chunks == 1, INTERLEAVED: layout.chunks > 1}
    if not known.get(layout.schedule):
        raise NotKnownError(f"the schedule {layout.schedule or 'without a pipeline'!r} is not known")
    if rest or not batches:
        raise NotKnownError(
            f"{count} forward passes are not the same number for each of {layout.chunks} chunks"
        )
    return Shape(len(column), batches, layout.chunks, min(layout.group, batches))


def _edges(layout: Layout, number: int, column: Column) -> Iterator[tuple[Node, Edge]]:
    """Of the messages of one replica. To an exchange both sides come with the part before it."""
    shape = shape_of(layout, column)
    sent: dict[Message, tuple[Lane, _Side]] = {}
    received: dict[Message, tuple[Lane, _Side]] = {}
    for stage, parts in enumerate(column):
        planned = operations_of(shape, stage, layout.overlaps)
        told = [at for at, part in enumerate(parts) if part.kind in (*PASSES, Kind.MESSAGE)]
        if [_told(parts[at]) for at in told] != [_planned(each) for each in planned]:
            raise NotKnownError(
                f"stage {stage} does not compute and exchange messages in the order of its schedule"
            )
        own_sent, own_received = _sides(shape, stage, parts, [*zip(told, planned, strict=True)])
        sent |= {message: (Lane(number, stage), side) for message, side in own_sent.items()}
        received |= {message: (Lane(number, stage), side) for message, side in own_received.items()}
    if not received.keys() >= sent.keys():
        raise NotKnownError("a stage sends what no other receives")
    for message, (lane, sender) in sent.items():
        other, receiver = received[message]
        yield Node(other, receiver.waits_at), Edge(Node(lane, sender.at - 1), is_room=False)
        if sender.waits_at:
            yield Node(lane, sender.waits_at), Edge(Node(other, receiver.at - 1), is_room=True)


class _Side(NamedTuple):
    """One side of a message.

    Attributes:
        at: the part in which it is sent or received.
        waits_at: at whose end it has been; 0 where nothing waits for that.
    """

    at: int
    waits_at: int


def _sides(
    shape: Shape, stage: int, parts: Parts, planned: Sequence[tuple[int, Pass | Exchange]]
) -> tuple[dict[Message, _Side], dict[Message, _Side]]:
    """What a stage sends and receives. What it does not wait for when it asks for it has come when the pass
    that needs it begins.
    """
    sent, received = dict[Message, _Side](), dict[Message, _Side]()
    for at, each in planned:
        if isinstance(each, Exchange):
            sent |= dict.fromkeys(each.sends, _Side(at, at * each.waits))
            received |= dict.fromkeys(each.receives, _Side(at, at * each.waits))
        elif (needed := shape.needed(stage, each)) in received and not received[needed].waits_at:
            begins = next(before for before in range(at, 0, -1) if parts[before].kind is Kind.BEFORE)
            received[needed] = received[needed]._replace(waits_at=begins)
    return sent, received


def _told(part: Part) -> str:
    return part.name if part.kind is Kind.MESSAGE else part.kind.value


def _planned(each: Pass | Exchange) -> str:
    if isinstance(each, Exchange):
        return each.name
    kind: str = (Kind.FORWARD if each.is_forward else Kind.BACKWARD).value
    return kind


def _meetings(layout: Layout, parts: Mapping[Lane, Parts]) -> Iterator[Meeting]:
    """Those of one stage, except for the two that reach further."""
    found: dict[tuple[str, int, int], dict[Lane, int]] = defaultdict(dict)
    for lane, own in parts.items():
        turns: dict[str, int] = defaultdict(int)
        for at, part in enumerate(own):
            if part.kind is Kind.MEETING and at:
                is_wide = part.name in (layout.agreement, layout.embeddings)
                found[part.name, turns[part.name], -1 if is_wide else lane.stage][lane] = at
                turns[part.name] += 1
    return (Meeting(name, places) for (name, *_), places in found.items())


def _order(
    parts: Mapping[Lane, Parts], edges: Mapping[Node, Sequence[Edge]], meetings: Sequence[Meeting]
) -> list[Node | int]:
    """A node stands for all parts up to the next one of its lane that waits; a number for a meeting."""
    met = {Node(lane, at): number for number, one in enumerate(meetings) for lane, at in one.places.items()}
    heads: dict[Lane, list[int]] = {lane: [0] for lane in parts}
    for node in sorted({*edges, *met}, key=lambda node: node.at):
        if node.at:
            heads[node.lane].append(node.at)
    head_of = {lane: _heads(own, len(parts[lane])) for lane, own in heads.items()}

    def before(node: Node) -> Iterable[Node | int]:
        if node.at:
            yield Node(node.lane, head_of[node.lane][node.at - 1])
        for edge in edges.get(node, ()):
            yield Node(edge.after.lane, head_of[edge.after.lane][edge.after.at])
        if node in met:
            yield met[node]

    waits: dict[Node | int, set[Node | int]] = {
        Node(lane, at): set(before(Node(lane, at))) for lane, own in heads.items() for at in own
    }
    for number, one in enumerate(meetings):
        waits[number] = {Node(lane, head_of[lane][at - 1]) for lane, at in one.places.items()}
    try:
        return [*TopologicalSorter(waits).static_order()]
    except CycleError:
        raise NotKnownError("ranks wait for one another") from None


def _heads(heads: Sequence[int], count: int) -> list[int]:
    """Of each part the head of those that it is among."""
    found = []
    for head, end in zip(heads, [*heads[1:], count], strict=True):
        found += [head] * (end - head)
    return found
