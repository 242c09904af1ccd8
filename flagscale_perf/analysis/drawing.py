"""The items of a whole job on the clock of its leading session: all, or those of some steps and ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from flagscale_perf.analysis.clocks import Move, clock_of
from flagscale_perf.analysis.instrument import clocks_of, load
from flagscale_perf.analysis.session import Session
from flagscale_perf.analysis.timeline import Counter, Drawn, End, Item, Part, Process
from flagscale_perf.analysis.whole import Whole
from flagscale_perf.spine.errors import PerfError

MOST_ARROWS = 400_000  # of a job; later ones are left out
_SAMPLE = 2000  # items of each session, of which the size of all is estimated


class Chosen(NamedTuple):
    """What is to be drawn; None for all."""

    steps: tuple[int, int] | None = None
    ranks: frozenset[int] | None = None


@dataclass
class Size:
    """How much a job's items are.

    Attributes:
        slices: items and their parts.
        bytes: what they are estimated to take.
        arrows: with both ends.
        lost_arrows: beyond `MOST_ARROWS`.
    """

    slices: int = 0
    bytes: float = 0
    arrows: int = 0
    lost_arrows: int = 0


@dataclass
class _Keys:
    """Keys of arrows, of which both ends have been seen, or one of them and when it is, or several."""

    both: set[int] = field(default_factory=set)
    one: dict[int, End] = field(default_factory=dict)
    many: set[int] = field(default_factory=set)
    lost: int = 0

    def add(self, end: End) -> None:
        other = self.one.pop(end.key, None)
        if other is None:
            if end.key in self.both or end.key in self.many:
                self.both.discard(end.key)
                self.many.add(end.key)
            elif len(self.one) + len(self.both) + len(self.many) < MOST_ARROWS:
                self.one[end.key] = end
            else:
                self.lost += 1
            return
        source, target = (other, end) if other.is_source else (end, other)
        is_pair = source.is_source and not target.is_source and source.at_ns <= target.at_ns
        (self.both if is_pair else self.many).add(end.key)


class Drawing:
    """What is drawn of a job.

    Attributes:
        whole: the job.
        zero_ns: monotonic mark of its start: that of the leading session, or what began before it.
        wall_ns: Unix time of the same instant.
        clocks: how those of its machines lie to one another.
        arrows: keys of those whose ends are both drawn; None, for all, until it has been measured.
        processes: by their keys, each as the instrument says it that knows most of it.
    """

    def __init__(self, whole: Whole, chosen: Chosen | None = None) -> None:
        """Raises PerfError for steps that the job does not have."""
        header = whole.lead.header
        self.whole, self._chosen = whole, chosen or Chosen()
        self.zero_ns, self.wall_ns = header.start_mono_ns, header.start_wall_ns
        self.arrows: set[int] | None = None
        self.clocks = clocks_of(whole.sessions)
        self.processes: dict[tuple[object, ...], Process] = {}
        self._of: dict[Process, bool] = {}
        self._window = None if self._chosen.steps is None else self._window_of(*self._chosen.steps)

    def _window_of(self, first: int, last: int) -> tuple[int, int]:
        begins, ends, known = list[int](), list[int](), list[int]()
        for item in self._of_session(self.whole.lead):
            step = item.step if isinstance(item, Item) else None
            if step is not None and isinstance(item, Item):
                known = [min([step, *known]), max([step, *known])]
                if first <= step <= last:
                    begins, ends = [min([item.begin_ns, *begins])], [max([item.end_ns, *ends])]
        if not begins:
            has = f"{known[0]} to {known[-1]}" if known else "none"
            raise PerfError(f"--steps {first}:{last}: no such steps are recorded; there are {has}")
        return begins[0], ends[0]

    def _of_session(self, session: Session) -> Iterator[Drawn]:
        move = self.clocks.mover(clock_of(session.header))
        items = load(session.instrument).timeline(session).items(session)
        return (_moved(item, move) for item in items) if move else items

    def items(self, sessions: Sequence[Session] | None = None) -> Iterator[Drawn]:
        """Everything that is drawn, session by session, the leading one first."""
        for session in self.whole.sessions if sessions is None else sessions:
            for item in self._of_session(session):
                if not self._is_drawn(item):
                    continue
                if isinstance(item, Item) and item.ends and self.arrows is not None:
                    ends = tuple(end for end in item.ends if end.key in self.arrows)
                    yield item._replace(ends=ends)
                else:
                    yield item

    def _is_drawn(self, item: Drawn) -> bool:
        process = item.track.process if isinstance(item, Item) else item.process
        if self._of.get(process) is None:
            known, chosen = self.processes.setdefault(process.key, process), self._chosen.ranks
            if known.rank is None and process.rank is not None:
                known = self.processes[process.key] = process
            self._of[process] = chosen is None or known.rank is None or known.rank in chosen
        if not self._of[process]:
            return False
        begin_ns, end_ns = (
            (item.begin_ns, item.end_ns) if isinstance(item, Item) else (item.at_ns, item.at_ns)
        )
        return self._window is None or (begin_ns <= self._window[1] and end_ns >= self._window[0])

    def measure(self, bytes_of: Callable[[Sequence[Drawn]], int], most_bytes: float | None) -> Size:
        """Reads everything once; stops where it is more than so many bytes. `bytes_of` tells what a sample of
        items takes.
        """
        size, keys, most = Size(), _Keys(), math.inf if most_bytes is None else most_bytes
        for session in self.whole.sessions:
            items = self.items([session])
            sample = [*islice(items, _SAMPLE)]
            for item in sample:
                self._count(item, size, keys)
            sample_bytes = bytes_of(sample)
            size.bytes += sample_bytes
            while size.bytes <= most and (more := next(items, None)) is not None:
                self._count(more, size, keys)
                size.bytes += sample_bytes / len(sample)
            if size.bytes > most:
                return size
        self._of.clear()  # a rank may have been known as one only later
        self.arrows, size.arrows, size.lost_arrows = keys.both, len(keys.both), keys.lost
        return size

    def _count(self, item: Drawn, size: Size, keys: _Keys) -> None:
        if isinstance(item, Counter):
            return
        size.slices += 1 + len(item.parts)
        if item.begin_ns < self.zero_ns:
            self.wall_ns -= self.zero_ns - item.begin_ns
            self.zero_ns = item.begin_ns
        for end in item.ends:
            keys.add(end)


def _moved(item: Drawn, move: Move) -> Drawn:
    """On another clock."""
    if isinstance(item, Counter):
        return item._replace(at_ns=move(item.at_ns))
    return item._replace(
        begin_ns=move(item.begin_ns),
        end_ns=move(item.end_ns),
        parts=tuple(Part(name, move(begin_ns), move(end_ns)) for name, begin_ns, end_ns in item.parts),
        ends=tuple(end._replace(at_ns=move(end.at_ns)) for end in item.ends),
    )
