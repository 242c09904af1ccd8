"""What captured steps of a pipeline say of the clocks of its machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from flagscale_perf.analysis.clocks import Bound, clock_of, none_left_before
from flagscale_perf.analysis.session import Session
from flagscale_perf.training.capture import Messages, is_sound, messages_of, times_of
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.phases import NUMBER_OF, ONE_F_ONE_B
from flagscale_perf.training.rank_records import NodeRecord
from flagscale_perf.training.records import CapturedRecord

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
            if facts.pipeline_schedule == ONE_F_ONE_B:
                yield from _of_pipeline({rank: messages_of(step) for rank, step in ranks.items()}, layout)
            # where gradients are reduced beside the backward pass, that has begun before the timer
            if (facts.arguments or {}).get("overlap_grad_reduce") is False and facts.expert_parallel == 1:
                timed = {rank: times_of(step) for rank, step in ranks.items()}
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


def _of_pipeline(messages: Mapping[int, Messages], layout: _Layout) -> Iterator[Bound]:
    if len({*map(len, layout.stages)}) > 1:
        return
    for stage, behind in pairwise(layout.stages):
        for one, other in zip(stage, behind, strict=True):
            here, there = layout.clocks[one], layout.clocks[other]
            if here != there and {one, other} <= messages.keys():
                for begin_ns, end_ns in messages[one].forward(messages[other]):
                    yield Bound(here, begin_ns, there, end_ns)
                for begin_ns, end_ns in messages[other].backward(messages[one]):
                    yield Bound(there, begin_ns, here, end_ns)


def _of_gradients(timed: Mapping[int, _Timed], layout: _Layout, width: int) -> Iterator[Bound]:
    for ranks in layout.stages:
        for first in range(width):
            group = [rank for rank in ranks[first::width] if rank in timed]
            for spans in zip(*(timed[rank].get(_GRADIENTS, ()) for rank in group), strict=False):
                clocks = (layout.clocks[rank] for rank in group)
                yield from none_left_before(
                    [(clock, *span) for clock, span in zip(clocks, spans, strict=True)]
                )
