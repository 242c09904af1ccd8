"""The order in which a stage of a pipeline takes its micro-batches, and the messages between.

Each schedule as Megatron-Core runs it, in which a rank exchanges messages only between two passes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

ONE_F_ONE_B, INTERLEAVED = "1f1b", "interleaved"


class Message(NamedTuple):
    """What a pass hands on.

    Attributes:
        is_forward: made by a forward pass.
        place: of the chunk that makes it, among all chunks of the model.
    """

    is_forward: bool
    place: int
    batch: int


class Pass(NamedTuple):
    """A micro-batch's way through one chunk.

    Attributes:
        chunk: of those on this stage.
    """

    is_forward: bool
    chunk: int
    batch: int


class Exchange(NamedTuple):
    """Messages that are sent and received in one call.

    Attributes:
        name: of the host's timer, which names what may be sent and received.
        waits: until all of them have passed; else they pass while the stage goes on.
    """

    name: str
    sends: Sequence[Message]
    receives: Sequence[Message]
    waits: bool = True


class Shape(NamedTuple):
    """A pipeline.

    Attributes:
        stages, batches: how many.
        chunks: on each stage.
        group: micro-batches of a chunk that follow one another.
    """

    stages: int
    batches: int
    chunks: int = 1
    group: int = 1

    def made(self, stage: int, one: Pass) -> Message | None:
        """What the pass hands on; None for the last one of its direction."""
        place = one.chunk * self.stages + stage
        last = self.stages * self.chunks - 1 if one.is_forward else 0
        return None if place == last else Message(one.is_forward, place, one.batch)

    def needed(self, stage: int, one: Pass) -> Message | None:
        """What the pass is made of; None for the first one of a forward pass and the last chunk's backward
        pass, which follows its own forward pass.
        """
        place = one.chunk * self.stages + stage + (-1 if one.is_forward else 1)
        return Message(one.is_forward, place, one.batch) if 0 <= place < self.stages * self.chunks else None


def passes_of(shape: Shape, stage: int) -> tuple[list[Pass], list[Pass], int]:
    """The forward and the backward passes of a stage, each in their order, and how many forward passes come
    before the first backward pass beyond the one that it alternates with.
    """
    groups = range(0, shape.batches, shape.group) if shape.chunks > 1 else [0]
    size = shape.group if shape.chunks > 1 else shape.batches
    table = [
        (batch, chunk)
        for first in groups
        for chunk in range(shape.chunks)
        for batch in range(first, min(first + size, shape.batches))
    ]
    ahead = shape.stages - 1 - stage
    if shape.chunks > 1:
        ahead = 2 * ahead + (shape.chunks - 1) * shape.group
    forward = [Pass(True, chunk, batch) for batch, chunk in table]
    backward = [Pass(False, shape.chunks - 1 - chunk, batch) for batch, chunk in table]
    return forward, backward, min(ahead, len(table))


def order_of(shape: Shape, stage: int) -> list[Pass]:
    """All passes of a stage, in their order."""
    forward, backward, ahead = passes_of(shape, stage)
    both = zip(forward[ahead:], backward, strict=False)
    alternating = [one for pair in both for one in pair]
    return [*forward[:ahead], *alternating, *backward[len(backward) - ahead :]]


def operations_of(shape: Shape, stage: int, overlaps: bool = False) -> list[Pass | Exchange]:
    """Passes and exchanges of a stage in their order. `overlaps`: messages between passes of both directions
    pass beside computing, where interleaved.
    """
    return [*(_interleaved(shape, stage, overlaps) if shape.chunks > 1 else _one_f_one_b(shape, stage))]


def _one_f_one_b(shape: Shape, stage: int) -> Iterator[Pass | Exchange]:
    """Between passes of one direction a stage first sends and then receives, in turns of direction both at
    once, unless all micro-batches go forward before the first one comes back.
    """
    order = order_of(shape, stage)
    together = passes_of(shape, stage)[2] < shape.batches
    yield from _exchange(None, shape.needed(stage, order[0]))
    for one, after in pairwise(order):
        yield one
        sent, received = shape.made(stage, one), shape.needed(stage, after)
        if together and one.is_forward != after.is_forward:
            yield from _exchange(sent, received)
        else:
            yield from _exchange(sent, None)
            yield from _exchange(None, received)
    yield order[-1]
    yield from _exchange(shape.made(stage, order[-1]), None)


def _exchange(sent: Message | None, received: Message | None) -> Iterator[Exchange]:
    """Nothing where there is nothing to exchange: the host times no call then."""
    ways = [(sent, "send"), (received, "recv")]
    names = [f"{'forward' if each.is_forward else 'backward'}-{way}" for each, way in ways if each]
    if names:
        yield Exchange("-".join(names), [sent] if sent else [], [received] if received else [])


FORTH, BACK = "forward-send-forward-recv", "backward-send-backward-recv"
BOTH = "forward-backward-send-forward-backward-recv"


def _interleaved(shape: Shape, stage: int, overlaps: bool) -> Iterator[Pass | Exchange]:
    """Every exchange is timed, also where there is nothing to send and receive."""
    forward, backward, ahead = passes_of(shape, stage)
    count, first = len(forward), shape.needed(stage, backward[0])
    yield from _exchange(None, shape.needed(stage, forward[0]))
    for number in range(ahead):
        forth = _ways(shape, stage, forward, number)
        yield forward[number]
        if number < ahead - 1 or ahead == count:
            yield Exchange(FORTH, *forth)
        else:
            yield from _both(forth, ([], _known(first)), overlaps)
    for number in range(count - ahead):
        forth, back = _ways(shape, stage, forward, ahead + number), _ways(shape, stage, backward, number)
        yield forward[ahead + number]
        if overlaps:
            yield Exchange(FORTH, *forth, waits=False)
        yield backward[number]
        yield from [Exchange(BACK, *back, waits=False)] if overlaps else _both(forth, back, overlaps)
    if ahead == count:
        yield from _exchange(None, first)
    for number in range(count - ahead, count):
        yield backward[number]
        yield Exchange(BACK, *_ways(shape, stage, backward, number))


_Ways = tuple[list[Message], list[Message]]  # what is sent and what is received


def _both(forth: _Ways, back: _Ways, overlaps: bool) -> Iterator[Exchange]:
    if overlaps:
        yield Exchange(FORTH, *forth)
        yield Exchange(BACK, *back, waits=False)
    else:
        yield Exchange(BOTH, forth[0] + back[0], forth[1] + back[1])


def _ways(shape: Shape, stage: int, passes: Sequence[Pass], number: int) -> _Ways:
    """What is sent and received behind a pass."""
    receives = _known(_next(shape, stage, passes, number)) if number < len(passes) - 1 else []
    return _known(shape.made(stage, passes[number])), receives


def _next(shape: Shape, stage: int, passes: Sequence[Pass], number: int) -> Message | None:
    """What is received behind pass `number`. A stage receives what its next pass needs; the first one of a
    direction, what the last one has made in the meantime: that is as many passes behind as there are stages
    between.
    """
    is_forward, between = passes[0].is_forward, shape.stages - 1
    if stage != (0 if is_forward else between):
        return shape.needed(stage, passes[number + 1])
    if number < between:
        return None
    return shape.made(between if is_forward else 0, passes[number - between])


def _known(message: Message | None) -> list[Message]:
    return [] if message is None else [message]
