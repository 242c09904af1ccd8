"""Which layer of the model a module belongs to, by its path alone."""

from __future__ import annotations

import re
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
        order: among the places: what comes before the layers, the layers, what comes behind them.
        number: of the layer, from 0; None for what is in no layer.
        name: `layer 3`, or the module's path without the model's name.
    """

    order: int
    number: int | None
    name: str


class Places:
    """The layers of the whole model, with unique numbers."""

    def __init__(self, profile: Profile) -> None:
        counts: dict[int, int] = {}
        firsts: dict[int, int] = {}
        for rank in profile.ranks:
            numbers = [found for path in set(rank.rows["module"]) if (found := number_of(path)) is not None]
            if numbers:
                stage = rank.place.get("pipeline") or 0
                counts[stage] = max(counts.get(stage, 0), max(numbers) + 1)
                firsts[stage] = min(firsts.get(stage, LAST), *numbers, LAST)
        is_local = sum(first == 0 for first in firsts.values()) > 1
        self.offsets = {
            stage: sum(counts[other] for other in counts if other < stage) if is_local else 0
            for stage in counts
        }
        self._several = len(set(_prefixes(profile))) > 1

    def of(self, module: str, stage: int | None) -> Place:
        """The place of a module on a rank of that pipeline stage."""
        match = _LAYER.match(_outermost(module))
        if match is None:
            name = short(module)
            return Place(_behind(name), None, name or OUTSIDE)
        number = int(match[2]) + self.offsets.get(stage or 0, 0)
        before = f"{match[1]} " if self._several and match[1] else ""
        return Place(1 + number, number, f"{before}layer {number}")


def number_of(module: str) -> int | None:
    """The layer's number as the path says it."""
    match = _LAYER.match(_outermost(module))
    return int(match[2]) if match else None


def within(module: str) -> str:
    """The path within the layer, such as `self_attn.q_proj`; "" for the layer itself and outside of
    layers.
    """
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


def _prefixes(profile: Profile) -> Iterable[str]:
    for rank in profile.ranks:
        for path in set(rank.rows["module"]):
            match = _LAYER.match(_outermost(path))
            if match:
                yield match[1] or ""


def ordered(places: Iterable[Place]) -> Sequence[Place]:
    """Places in the order shown: what is outside of any module last."""
    return sorted(set(places), key=lambda place: (place.name == OUTSIDE, place.order, place.name))
