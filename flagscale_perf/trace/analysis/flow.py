"""A queue's processes as a flow: each one's puts, gets and work, and which samples it waited for."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from flagscale_perf.analysis.flows import Flow, Lane, Place
from flagscale_perf.spine.averages import median
from flagscale_perf.trace.analysis.lineage import join
from flagscale_perf.trace.analysis.sides import generator_of
from flagscale_perf.trace.analysis.transfers import Transfer, Transfers, Work, title_of
from flagscale_perf.trace.records import Kind

MOST = 20_000  # puts and gets that are replayed, the first of a session: some seconds
BETWEEN, GET, PUT = "between", "get", "put"
SOON, OFTEN = 0.25, 0.8  # of a gap, of the gaps: what begins so soon after a step, so often, waits for it
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


class _Item(NamedTuple):
    start_ns: int
    end_ns: int
    call: int
    number: int  # of a transfer; -1 for a request


class _Lane(Lane):
    """What one process does."""

    def __init__(self, number: int, begin_ns: int, process: str) -> None:
        super().__init__(number, begin_ns)
        self.process = process
        self.functions: set[str] = set()
        self.pieces: list[int] = []  # its calls, else its puts: the first stretch of each
        self.ends: list[Place] = []  # of what counts as a step of it

    def does(self, name: str) -> bool:
        """Whether it is one of the processes that the lineage calls so: by a function, or their title."""
        return name in self.functions if self.functions else title_of(name) == title_of(self.process)


@dataclass
class QueueFlow:
    """The flow, and what changes need of it.

    Attributes:
        flow: as it is replayed.
        phases: names that changes may use.
        makers: lanes of the processes that make samples, each with the first stretch of each of its pieces.
        users: those of the last consumer.
        rooms: by a maker's stretch, the number of the step that it waited for.
        moved: by its stretch, each put and get.
    """

    flow: Flow
    phases: Mapping[str, tuple[int, ...]]
    makers: Mapping[int, Sequence[int]] = field(default_factory=dict)
    users: Sequence[int] = ()
    rooms: Mapping[Place, int] = field(default_factory=dict)
    moved: Mapping[Place, Transfer] = field(default_factory=dict)


class _Flows:
    def __init__(self, transfers: Transfers) -> None:
        self._transfers, self._all = transfers, transfers.transfers[:MOST]
        self._numbers: dict[str, int] = {BETWEEN: 0, GET: 1, PUT: 2}
        self._puts: dict[int, set[int]] = defaultdict(set)
        self.lineage = join(transfers, lambda get, put, _: self._puts[get].add(put))
        self.waiting: dict[int, tuple[_Lane, Place]] = {}  # by get
        self.made: dict[int, Place] = {}  # by put: at its end its samples are there
        self.moved: dict[Place, Transfer] = {}
        items: dict[str, list[_Item]] = defaultdict(list)
        for number, one in enumerate(self._all):
            items[one.process].append(_Item(one.start_ns, one.end_ns, one.call, number))
        for ask in transfers.asks:
            if ask.process in items:
                items[ask.process].append(_Item(ask.start_ns, ask.end_ns, -1, -1))
        self.lanes = [
            self._lane(number, process, sorted(own)) for number, (process, own) in enumerate(items.items())
        ]
        for get, (lane, place) in self.waiting.items():
            lane.waits(place, [self.made[put] for put in sorted(self._puts[get]) if put in self.made])

    def phase(self, name: str) -> int:
        """The number of what is called that."""
        return self._numbers.setdefault(_NO_NAME.sub("_", name), len(self._numbers))

    @property
    def phases(self) -> dict[str, tuple[int, ...]]:
        """By name."""
        return {name: (number,) for name, number in self._numbers.items()}

    def _lane(self, number: int, process: str, items: Sequence[_Item]) -> _Lane:
        works = self._transfers.works
        first = works.get((process, items[0].call))
        lane = _Lane(number, items[0].start_ns if first is None else first.start_ns, process)
        work, waits, own = None, None, self.phase(title_of(process))
        for item in items:
            if item.number >= 0 and (inside := works.get((process, item.call))) is not work:
                self._end(lane, work)
                work = inside
                if work is not None:
                    lane.functions.add(work.function)
                    lane.pieces.append(len(lane.stretches))
                    waits = lane.add(0, work.start_ns)
            if work is None and item.number >= 0 and self._all[item.number].kind is Kind.PUT:
                lane.pieces.append(len(lane.stretches))
            if item.start_ns > lane.end_ns:
                lane.add(own if work is None else self.phase(work.function), item.start_ns)
            if item.number < 0:
                waits = lane.add(0, item.end_ns)
            else:
                self._move(lane, item, waits)
                waits = None
        self._end(lane, work)
        return lane

    def _move(self, lane: _Lane, item: _Item, waits: Place | None) -> None:
        one = self._all[item.number]
        if one.kind is Kind.GET:
            if waits is not None:
                self.waiting[item.number] = lane, waits
            place = lane.add(self._numbers[GET], one.end_ns)
            if not item.call:
                lane.ends.append(place)
        else:
            place = self.made[item.number] = lane.add(self._numbers[PUT], one.ready_ns)
            lane.add(self._numbers[PUT], one.end_ns)
        self.moved[place] = one

    def wait(self, rooms: Mapping[Place, int], steps: _Lane) -> None:
        """Those stretches wait for these steps, too."""
        for place, step in rooms.items():
            self.lanes[place[0]].waits(place, [steps.ends[step]])

    def flow(self, steps: _Lane, last: str, note: str) -> Flow:
        """As it is replayed: the steps of the last consumer."""
        begins_ns, lanes = [lane.begin_ns for lane in self.lanes], [lane.stretches for lane in self.lanes]
        count = len(steps.ends)
        return Flow(begins_ns, lanes, steps.ends, [last] * count, True, f"{count} steps of {last}", [note])

    def _end(self, lane: _Lane, work: Work | None) -> None:
        if work is not None:
            lane.ends.append(lane.add(self.phase(work.function), work.end_ns))


def flow_of(transfers: Transfers) -> QueueFlow | None:
    """The flow of a run; None where no samples go from one end to another, or where it is not known when the
    last consumer waits: it neither asks for samples nor gets them in calls.
    """
    found = _Flows(transfers)
    last, maker = found.lineage.last.name, generator_of(transfers, found.lineage)
    users = [lane for lane in found.lanes if lane.does(last) and lane.ends]
    makers = [lane for lane in found.lanes if maker is not None and lane.does(maker) and lane.pieces]
    waits = {lane.number for lane, _ in found.waiting.values()}
    if not makers or waits.isdisjoint(lane.number for lane in users):
        return None
    steps = max(users, key=lambda lane: len(lane.ends))
    rooms = dict(_rooms(makers, steps))
    found.wait(rooms, steps)
    word = "waits for" if rooms else "does not wait for"
    note = f"{maker} {word} the steps of {last}, by what was recorded"
    return QueueFlow(
        found.flow(steps, last, note),
        found.phases,
        {lane.number: lane.pieces for lane in makers},
        [lane.number for lane in users],
        rooms,
        found.moved,
    )


def _rooms(makers: Sequence[_Lane], steps: _Lane) -> Iterator[tuple[Place, int]]:
    """Pieces of a maker that began when a step had ended, as a rule: it waits for room, or new weights."""
    ends_ns = [steps.stretches[at].end_ns for _, at in steps.ends]
    for lane in makers:
        gaps, found = list[tuple[int, int]](), list[tuple[Place, int]]()
        for piece in lane.pieces[1:]:
            start_ns, before_ns = lane.stretches[piece].end_ns, lane.stretches[piece - 1].end_ns
            step = sum(end_ns <= start_ns for end_ns in ends_ns) - 1
            is_behind = step >= 0 and ends_ns[step] > before_ns
            gaps.append(
                (start_ns - before_ns, start_ns - ends_ns[step] if is_behind else start_ns - before_ns)
            )
            if is_behind:
                found.append(((lane.number, piece), step))
        is_often = found and len(found) >= OFTEN * len(gaps)
        if is_often and median([rest for _, rest in gaps]) <= SOON * median([gap for gap, _ in gaps]):
            yield from found
