"""Memory of the forward pass as a tree of modules: the layers, what contains them, and what is in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from flagscale_perf.profile.analysis.layers import Place, Places, within
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.spine.language import DEPTH

MB = 1e6
MOST_ROWS = 96  # beyond which what is in layers is left out


class Held(NamedTuple):
    """Memory of a module's forward pass, inner modules included, on the rank with the highest peak.

    Attributes:
        name: the module's name in the one that contains it.
        depth: how many of the modules in the list contain it.
    """

    name: str
    depth: int
    retained_bytes: float
    transient_bytes: float
    peak_bytes: float

    @property
    def label(self) -> str:
        """The module's name, indented by its depth."""
        return DEPTH * self.depth + self.name


class _Node(NamedTuple):
    place: Place
    part: str  # within the layer; "" for the layer itself and outside of layers


def memory_of(profile: Profile) -> list[Held]:
    """Each module before those that it contains, in model order; of what is in a layer, the first level."""
    amounts: dict[_Node, tuple[float, float, float]] = {}
    inside: dict[_Node | None, dict[_Node, None]] = defaultdict(dict)
    places = Places(profile)
    for rank in profile.ranks:
        frame = rank.memory.where((rank.memory["op"] == "") & (rank.memory["module"] != ""))
        frame = frame.where(frame["phase"] == "forward")
        stage, root = rank.place.get("pipeline"), str(rank.place.get("model"))
        nodes = {
            path: _Node(places.of(path, stage), within(path))
            for path in dict.fromkeys(frame["module"])
            if "." not in within(path)
        }
        for path, node in nodes.items():
            around = filter(None, map(nodes.get, _above(path, root)))
            inside[next(around, None)][node] = None
        for one in frame.records():
            if held := nodes.get(one["module"]):
                now = (float(one["retained_bytes"]), float(one["transient_bytes"]), float(one["peak_bytes"]))
                amounts[held] = max(amounts.get(held, now), now, key=lambda each: each[2])
    made = _walked(inside, amounts)
    return made if len(made) <= MOST_ROWS else _walked(inside, amounts, layers_only=True)


def _above(path: str, root: str) -> list[str]:
    """Paths that may contain this one, the innermost first; of several models, each begins with a number."""
    parts = path.split(".")
    roots = [each for each in (f"{parts[0]}.{root}", root) if each != path]
    return [*(".".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)), *roots]


def _walked(
    inside: Mapping[_Node | None, Iterable[_Node]],
    amounts: dict[_Node, tuple[float, float, float]],
    layers_only: bool = False,
) -> list[Held]:
    made: list[Held] = []

    def walk(around: _Node | None, depth: int) -> None:
        for node in sorted(inside.get(around, ()), key=lambda each: each.place):
            if not (layers_only and node.part):
                made.append(Held(node.part or node.place.name, depth, *amounts[node]))
                walk(node, depth + 1)

    walk(None, 0)
    return made
