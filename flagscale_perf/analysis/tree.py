"""Where a job's time goes, as a tree: the parts of a node add up to it, or its rest is a part, too.

An instrument puts the tree of its own session into its report. What another one knows of a node, which has
the same `key`, goes below it, as the time in which it was recorded: nothing is scaled.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

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
