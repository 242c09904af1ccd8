"""What captured steps of a pipeline say of the clocks of its machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flagscale_perf.analysis.clocks import Bound, clock_of, none_left_before
from flagscale_perf.device.marks import CLOCK_BITS, time_of
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.training.capture import is_sound, unpacked
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
    stages: dict[int, list[int]]


def bounds_of(files: Sequence[RunFile]) -> Iterator[Bound]:
    """Of every file: a stage has a message after its neighbour began to send it, and no replica leaves the
    exchange of gradients before all have come to it.
    """
    for file in files:
        facts, own = RunFacts.of(file.header.facts), {file.header.host: clock_of(file.header)}
        clocks: dict[int, str] = {}
        stages: dict[int, int] = {}
        steps: dict[int, dict[int, CapturedRecord]] = defaultdict(dict)
        for record in file:
            if isinstance(record, NodeRecord):
                clocks |= dict.fromkeys(record.ranks, own.get(record.hostname, record.hostname))
                stages |= zip(record.ranks, record.stages, strict=False)
            elif isinstance(record, CapturedRecord) and is_sound(record):
                steps[record.iteration][record.rank] = record
        if len({*clocks.values()}) > 1:
            ranks_of = defaultdict(list)
            for rank in sorted(stages):
                ranks_of[stages[rank]].append(rank)
            layout = _Layout(clocks, ranks_of)
            for ranks in steps.values():
                yield from _of_step({rank: _timed(step) for rank, step in ranks.items()}, facts, layout)


def _of_step(timed: Mapping[int, _Timed], facts: RunFacts, layout: _Layout) -> Iterator[Bound]:
    stages = [ranks for _, ranks in sorted(layout.stages.items())]
    if facts.pipeline_schedule == ONE_F_ONE_B and len({*map(len, stages)}) == 1:
        for stage, behind in zip(stages, stages[1:], strict=False):
            for one, other in zip(stage, behind, strict=True):
                if layout.clocks[one] != layout.clocks[other] and {one, other} <= timed.keys():
                    yield from _messages(timed, layout.clocks, one, other)
    arguments = facts.arguments or {}
    if arguments.get("overlap_grad_reduce") is False and (facts.expert_parallel or 1) == 1:
        width = facts.tensor_parallel or 1
        for ranks in stages:
            for first in range(width):
                group = [rank for rank in ranks[first::width] if rank in timed]
                for turn in range(min((len(timed[rank].get(_GRADIENTS, ())) for rank in group), default=0)):
                    sides = [(layout.clocks[rank], *timed[rank][_GRADIENTS][turn]) for rank in group]
                    yield from none_left_before(sides)


def _messages(timed: Mapping[int, _Timed], clocks: Mapping[int, str], one: int, other: int) -> Iterator[Bound]:
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


def _timed(step: CapturedRecord) -> _Timed:
    found = defaultdict(list)
    begun: dict[int, int] = {}
    for mark in unpacked(step):
        number, is_stop = divmod(mark >> CLOCK_BITS, 2)
        if not is_stop:
            begun[number] = time_of(mark)
        elif number in begun:
            found[number].append((begun.pop(number), time_of(mark)))
    return found
