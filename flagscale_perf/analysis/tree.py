"""Where a job's time goes, as a tree: the parts of a node add up to it, or its rest is a part, too.

An instrument puts the tree of its own session into its report. What another one knows of a node, which has
the same `key`, goes below it, as the time in which it was recorded: nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from flagscale_perf.analysis.clocks import Move
from flagscale_perf.spine.clock import NS_PER_S

MOST = 12  # parts of a node beside its rest
_SAME = 1e-6  # of a node's time: parts that differ from it by less add up to it


@dataclass(frozen=True)
class Node:
    """A part of the time.

    Attributes:
        name: in words.
        dur_s: None where it is not told apart from the others.
        parts: what it consists of.
        beside: what lies in it as well, and not apart from `parts`: calls while a phase goes on.
        key: by which another instrument's node is found; "" for none.
        ranks: whose time it is; empty for a usual rank's.
        note: how often it happened, what explains it; empty where there is nothing to say.
        is_sample: it is the time of the steps alone in which another instrument recorded it.
        most: parts that are kept beside the rest.
        rest: name of the rest.
    """

    name: str
    dur_s: float | None
    parts: Sequence[Node] = ()
    beside: Sequence[Node] = ()
    key: str = ""
    ranks: Sequence[int] = ()
    note: str = ""
    is_sample: bool = False
    most: int = MOST
    rest: str = "other"

    def closed(self) -> Node:
        """With a rest wherever the parts leave one, and of many parts the longest."""
        known = [one.closed() for one in self.parts if one.dur_s]
        unknown = [one for one in self.parts if one.dur_s is None]
        beside = [one.closed() for one in self.beside]
        if not known or self.dur_s is None:
            return replace(self, parts=unknown, beside=beside)
        return replace(self, parts=[*self._kept(known, self.dur_s), *unknown], beside=beside)

    def _kept(self, known: Sequence[Node], whole_s: float) -> list[Node]:
        """The longest of the parts in their order, and the rest."""
        longest = sorted(known, key=lambda one: -(one.dur_s or 0.0))[: self.most]
        kept = [one for one in known if one in longest]
        rest_s = whole_s - sum(one.dur_s or 0.0 for one in kept)
        if abs(rest_s) <= _SAME * abs(whole_s):
            return kept
        left = len(known) - len(kept)
        return [*kept, Node(self.rest, rest_s, note=f"{left} more" if left else "")]

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON."""
        return {
            "name": self.name,
            "s": self.dur_s,
            **({"ranks": list(self.ranks)} if self.ranks else {}),
            **({"note": self.note} if self.note else {}),
            **({"is_sample": True} if self.is_sample else {}),
            "parts": [one.as_dict() for one in self.parts],
            **({"beside": [one.as_dict() for one in self.beside]} if self.beside else {}),
        }


class Laid(NamedTuple):
    """Something that an instrument recorded from one moment to another; monotonic marks of its session."""

    name: str
    start_ns: int
    end_ns: int


@dataclass
class _Spent:
    spans: list[tuple[int, int]] = field(default_factory=list)


def grafted(tree: Node, branch: Node) -> Node:
    """The tree with the parts of another instrument's below the nodes of the same key: each rank's own, or,
    below a usual rank's node, those of the first rank that no node of the tree names.
    """
    named = {rank for node in _every(tree) for rank in node.ranks}
    usual = next((one for one in branch.parts if not named.intersection(one.ranks)), None)
    return tree if usual is None else _grafted(tree, usual)


def _grafted(node: Node, branch: Node) -> Node:
    parts = [_grafted(one, branch) for one in node.parts]
    own = next((one for one in branch.parts if node.key and one.key == node.key), None)
    if own is None or node.ranks:
        return replace(node, parts=parts)
    recorded = replace(own, name=branch.name, key="", is_sample=True)
    return replace(node, parts=[*parts, recorded], rest="in other steps, not taken apart")


def noted(node: Node, key: str, ranks: Sequence[int], note: str) -> Node:
    """The tree with a note at the node of these ranks and this key."""
    parts = [noted(one, key, ranks, note) for one in node.parts]
    is_meant = node.key == key and list(node.ranks) == list(ranks)
    return replace(node, parts=parts, note=note if is_meant else node.note)


def _every(node: Node) -> Iterable[Node]:
    yield node
    for one in node.parts:
        yield from _every(one)


def moved(what: Iterable[Laid], move: Move) -> Iterator[Laid]:
    """The same on another clock."""
    for name, start_ns, end_ns in what:
        yield Laid(name, move(start_ns), move(end_ns))


def laid_in(steps: Sequence[tuple[int, int]], what: Iterable[Laid], instrument: str) -> list[Node]:
    """A node for each name of what was recorded: how long at least one of them lies in the steps, how many
    begin in a step and how many outside of all.

    Args:
        steps: begin and end of each, in order.
        what: in any order, on the clock of the steps.
        instrument: that recorded it.
    """
    import numpy as np  # here: a report of one session needs none of it

    found: dict[str, _Spent] = {}
    for name, start_ns, end_ns in what:
        found.setdefault(name, _Spent()).spans.append((start_ns, end_ns))
    edges = np.array(steps, dtype=np.int64).reshape(-1, 2)
    before = np.concatenate([[0], np.cumsum(edges[:, 1] - edges[:, 0])])

    def in_steps(at: Any) -> Any:  # time of steps until then
        step = np.searchsorted(edges[:, 0], at, side="right") - 1
        own = np.minimum(at, edges[step, 1]) - edges[step, 0]
        return np.where(step < 0, 0, before[np.maximum(step, 0)] + np.maximum(own, 0))

    nodes = []
    for name, spent in found.items():
        spans = np.array(sorted(spent.spans), dtype=np.int64)
        starts, ends = spans[:, 0], np.maximum.accumulate(spans[:, 1])
        starts = np.maximum(
            starts, np.concatenate([starts[:1], ends[:-1]])
        )  # what others lay over counts once
        count = len(spans)
        if not len(edges):
            nodes.append(Node(f"{instrument}: {name}", None, note=f"{count:,}, none of them in a step"))
            continue
        inside_s = float((in_steps(ends) - in_steps(starts)).sum()) / NS_PER_S
        step = np.searchsorted(edges[:, 0], spans[:, 0], side="right") - 1
        is_inside = (step >= 0) & (spans[:, 0] < edges[np.maximum(step, 0), 1])
        inside = int(is_inside.sum())
        touched = len(np.unique(step[is_inside]))
        note = f"{inside:,} begin in {touched:,} of {len(edges):,} steps, {count - inside:,} outside of all"
        nodes.append(Node(f"{instrument}: {name}", inside_s, note=note))
    return sorted(nodes, key=lambda one: -(one.dur_s or 0.0))
