"""What instruments recorded from one moment to another, laid into the steps of the session that leads."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

from flagscale_perf.analysis.clocks import Move
from flagscale_perf.analysis.tree import Node
from flagscale_perf.spine.clock import NS_PER_S

if TYPE_CHECKING:
    from numpy import int64
    from numpy.typing import NDArray


class Laid(NamedTuple):
    """Something that an instrument recorded; monotonic marks of its session."""

    name: str
    start_ns: int
    end_ns: int


class Spans:
    """All of one session by name, 16 bytes each.

    Attributes:
        marks: of each name begins and ends by turns.
    """

    def __init__(self, what: Iterable[Laid], move: Move | None = None) -> None:
        """`move` brings their marks onto the clock of the steps; None where they are on it."""
        found: dict[str, array[int]] = {}
        for name, start_ns, end_ns in what:
            pair = (start_ns, end_ns) if move is None else (move(start_ns), move(end_ns))
            found.setdefault(name, array("q")).extend(pair)
        self.marks: Mapping[str, array[int]] = found


class Steps:
    """The steps of a session: monotonic marks, in order."""

    def __init__(self, steps: Iterable[tuple[int, int]]) -> None:
        """`steps`: begin and end of each."""
        import numpy as np  # here: a report of one session needs none of it

        edges = np.fromiter(chain.from_iterable(steps), np.int64).reshape(-1, 2)
        self._begin, self._end = edges[:, 0], edges[:, 1]
        self._before = np.concatenate([[0], np.cumsum(self._end - self._begin)])

    def nodes(self, spans: Spans, instrument: str) -> Iterator[Node]:
        """A node for each name: how long at least one of them lies in the steps, how many begin in a step and
        how many outside of all.
        """
        import numpy as np

        for name, marks in spans.marks.items():
            pairs = np.frombuffer(marks, np.int64).reshape(-1, 2)
            pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
            yield self._node(f"{instrument}: {name}", pairs[:, 0], pairs[:, 1])

    def _node(self, name: str, starts: NDArray[int64], ends: NDArray[int64]) -> Node:
        import numpy as np

        count = len(starts)
        if not len(self._begin):
            return Node(name, None, note=f"{count:,}, none of them in a step")
        last = np.maximum.accumulate(ends)
        free = np.maximum(starts, np.concatenate([starts[:1], last[:-1]]))  # what others lie over counts once
        inside_ns = int((self._until(last) - self._until(free)).sum())
        step = np.searchsorted(self._begin, starts, side="right") - 1
        is_inside = (step >= 0) & (starts < self._end[np.maximum(step, 0)])
        inside, touched = int(is_inside.sum()), len(np.unique(step[is_inside]))
        whole = f"{touched:,} of {len(self._begin):,} steps"
        note = f"{inside:,} begin in {whole}, {count - inside:,} outside of all"
        return Node(name, inside_ns / NS_PER_S, note=note)

    def _until(self, at: NDArray[int64]) -> NDArray[int64]:
        """How much of the steps has passed by then."""
        import numpy as np

        step = np.searchsorted(self._begin, at, side="right") - 1
        own = np.maximum(np.minimum(at, self._end[step]) - self._begin[step], 0)
        passed: NDArray[int64] = np.where(step < 0, 0, self._before[np.maximum(step, 0)] + own)
        return passed


def laid_in(steps: Steps, all_of_them: Sequence[tuple[str, Spans]]) -> list[Node]:
    """The nodes of what several instruments recorded, the longest first."""
    nodes = [node for instrument, spans in all_of_them for node in steps.nodes(spans, instrument)]
    return sorted(nodes, key=lambda one: -(one.dur_s or 0.0))
