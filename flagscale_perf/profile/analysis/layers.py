"""Tells the layer of the model that a module belongs to, by its path alone."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from flagscale_perf.profile.analysis.source import Profile

_NAMES = r"(?:layers|layer|h|blocks|block)"
_LAYER = re.compile(rf"(?:^|(.*)\.){_NAMES}\.(\d+)$")
_FIRST = re.compile(rf"(.*?(?:^|\.){_NAMES}\.\d+)(?:\.|$)")
OUTSIDE = "outside"  # of any module: optimizer, data, loss
LAST = 1 << 30


@dataclass(frozen=True, order=True)
class Place:
    """A row of the heat map.

    Attributes:
        order: sorts the places: what comes before the layers, the layers, what comes behind them.
        number: the layer's number, from 0; None for what is in no layer.
        name: `layer 3`, or the module's path without the model's name.
    """

    order: int
    number: int | None
    name: str


class Places:
    """The layers of the whole model, with unique numbers."""

    def __init__(self, profile: Profile) -> None:
        numbers: dict[int, set[int]] = defaultdict(set)  # by stage
        prefixes: set[str] = set()
        for rank in profile.ranks:
            for path in set(rank.rows["module"]):
                if match := _LAYER.match(_outermost(path)):
                    numbers[rank.place.get("pipeline") or 0].add(int(match[2]))
                    prefixes.add(match[1] or "")
        is_local = sum(0 in own for own in numbers.values()) > 1
        self._offsets = {
            stage: sum(max(numbers[other]) + 1 for other in numbers if other < stage) if is_local else 0
            for stage in numbers
        }
        self._several = len(prefixes) > 1

    def of(self, module: str, stage: int | None) -> Place:
        """The place of a module on a rank of that pipeline stage."""
        match = _LAYER.match(_outermost(module))
        if match is None:
            name = short(module)
            return Place(_behind(name), None, name or OUTSIDE)
        number = int(match[2]) + self._offsets.get(stage or 0, 0)
        before = f"{match[1]} " if self._several and match[1] else ""
        return Place(1 + number, number, f"{before}layer {number}")


def number_of(module: str) -> int | None:
    """The layer's number in the path; None for a path outside of layers."""
    match = _LAYER.match(_outermost(module))
    return int(match[2]) if match else None


def within(module: str) -> str:
    """The path within the layer, such as `self_attn.q_proj`; "" for the layer itself and outside of one."""
    return module[len(_outermost(module)) + 1 :]


def short(module: str) -> str:
    """The path without the prefix that every path has."""
    return re.sub(r"^(model|module|transformer|decoder|gpt)\.(?=.)", "", module)


def _outermost(module: str) -> str:
    """The path up to its first layer number, so that experts and blocks within a layer belong to it."""
    match = _FIRST.match(module)
    return match[1] if match else module


def _behind(name: str) -> int:
    """Sort key: 0 for what comes before the layers."""
    if re.search(r"(^|\.)(norm|final_layernorm|ln_f)$", name):
        return LAST
    return LAST + 1 if re.search(r"(^|\.)(lm_head|output_layer|head|score)$", name) or not name else 0


def ordered(places: Iterable[Place]) -> Sequence[Place]:
    """Places in the order shown: what is outside of any module last."""
    return sorted(set(places), key=lambda place: (place.name == OUTSIDE, place.order, place.name))
