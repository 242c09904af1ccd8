"""What captured steps of a pipeline say of the clocks of its machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from flagscale_perf.analysis.clocks import Bound, clock_of, none_left_before
from flagscale_perf.analysis.session import Session
from flagscale_perf.training.capture import is_sound, times_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import NUMBER_OF, ONE_F_ONE_B
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord

# Timers in which a message goes to the next stage, and in which the next one takes it; and the same way back.
_WAYS = {
    1: ({"forward-send", "forward-send-backward-recv"}, {"forward-recv", "backward-send-forward-recv"}),
    -1: ({"backward-send", "backward-send-forward-recv"}, {"backward-recv", "forward-send-backward-recv"}),
}
_GRADIENTS = NUMBER_OF["all-grads-sync"]

_Timed = Mapping[int, Sequence[tuple[int, int]]]  # by timer, begin and end of each time


class _Layout(NamedTuple):
    """The machines of the ranks, and the ranks of each stage."""

    clocks: dict[int, str]
    stages: list[list[int]]


def bounds_of(sessions: Sequence[Session]) -> Iterator[Bound]:
    """A stage has a message after its neighbour began to send it, and no replica leaves the exchange of
    gradients before all have come to it.
    """
    for session in sessions:
        facts = RunFacts.of(session.header.facts)
        nodes: list[NodeRecord] = []
        steps: dict[int, dict[int, CapturedRecord]] = defaultdict(dict)
        for record in session:
            if isinstance(record, NodeRecord):
                nodes.append(record)
            elif isinstance(record, CapturedRecord) and is_sound(record):
                steps[record.iteration][record.rank] = record
        layout = _layout(session, nodes)
        for ranks in steps.values() if len({*layout.clocks.values()}) > 1 else ():
            timed = {rank: times_of(step) for rank, step in ranks.items()}
            if facts.pipeline_schedule == ONE_F_ONE_B:
                yield from _of_pipeline(timed, layout)
            # where gradients are reduced beside the backward pass, that has begun before the timer
            if (facts.arguments or {}).get("overlap_grad_reduce") is False and facts.expert_parallel == 1:
                yield from _of_gradients(timed, layout, facts.tensor_parallel or 1)


def _layout(session: Session, nodes: Iterable[NodeRecord]) -> _Layout:
    own = {session.header.host: clock_of(session.header)}
    clocks: dict[int, str] = {}
    stages: dict[int, int] = {}
    for node in nodes:
        clocks |= dict.fromkeys(node.ranks, own.get(node.hostname, node.hostname))
        stages |= zip(node.ranks, node.stages, strict=False)
    ranks_of: dict[int, list[int]] = {stage: [] for stage in sorted(stages.values())}
    for rank in sorted(stages):
        ranks_of[stages[rank]].append(rank)
    return _Layout(clocks, [*ranks_of.values()])


def _of_pipeline(timed: Mapping[int, _Timed], layout: _Layout) -> Iterator[Bound]:
    if len({*map(len, layout.stages)}) > 1:
        return
    for stage, behind in pairwise(layout.stages):
        for one, other in zip(stage, behind, strict=True):
            if layout.clocks[one] != layout.clocks[other] and {one, other} <= timed.keys():
                yield from _messages(timed, layout.clocks, one, other)


def _of_gradients(timed: Mapping[int, _Timed], layout: _Layout, width: int) -> Iterator[Bound]:
    for ranks in layout.stages:
        for first in range(width):
            group = [rank for rank in ranks[first::width] if rank in timed]
            for spans in zip(*(timed[rank].get(_GRADIENTS, ()) for rank in group), strict=False):
                clocks = (layout.clocks[rank] for rank in group)
                yield from none_left_before(
                    [(clock, *span) for clock, span in zip(clocks, spans, strict=True)]
                )


def _messages(
    timed: Mapping[int, _Timed], clocks: Mapping[int, str], one: int, other: int
) -> Iterator[Bound]:
    """Between a rank and the one behind it in the pipeline: as many were sent as taken, in one order."""
    for way, (sending, taking) in _WAYS.items():
        sender, taker = (one, other) if way == 1 else (other, one)
        sent, taken = (
            sorted(span for name in names for span in timed[rank].get(NUMBER_OF[name], ()))
            for rank, names in ((sender, sending), (taker, taking))
        )
        if len(sent) == len(taken):
            for (begin_ns, _), (_, end_ns) in zip(sent, taken, strict=True):
                yield Bound(clocks[sender], begin_ns, clocks[taker], end_ns)
