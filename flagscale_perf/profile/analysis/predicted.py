"""A prediction as blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Note, Quantity, Report, Section, Table
from flagscale_perf.profile.analysis.layers import OUTSIDE, number_of, short
from flagscale_perf.profile.prediction import BACKWARD, FORWARD, Card, Prediction
from flagscale_perf.spine.clock import NS_PER_MS

_GB = 1e9
_LAYER = "layer "
_FLOORS = (
    "floor: each operator takes at least the longer of its FLOPs by the peak and its bytes by the memory's"
    " speed, one after another as without a compiler; fused operators move less"
)
_WITHOUT = "The operators' own working memory, the allocator's blocks and the device's context come on top"


@dataclass
class _Place:
    flops: Counter[str] = field(default_factory=Counter)
    moved_bytes: int = 0
    floor_ns: float | None = 0.0

    def add(self, flops: Mapping[str, int], moved_bytes: int, floor_ns: float | None) -> None:
        self.flops.update(flops)
        self.moved_bytes += moved_bytes
        is_known = self.floor_ns is not None and floor_ns is not None
        self.floor_ns = (self.floor_ns or 0.0) + (floor_ns or 0.0) if is_known else None


@dataclass(frozen=True)
class _Content:
    prediction: Prediction
    card: Card | None

    def as_dict(self) -> Mapping[str, Any]:
        return self.prediction.as_dict(self.card)


def report_of(found: Prediction, card: Card | None) -> Report:
    """The report as blocks, the same for every output format; `card` is None if no device was named."""
    setup = found.setup
    kind = "a prefill" if setup.is_inference else "a training step"
    return Report(
        title=f"{setup.model}, {found.parameters:,} parameters: {kind} of {setup.batch} x {setup.tokens}"
        f" tokens in {setup.dtype}, predicted",
        facts=[Note(f"Not run: only shapes went through the model. {_WITHOUT}")],
        sections=[
            Section("memory", "Memory", "Memory at the peak", _memory(found, card)),
            Section("flops", "FLOPs", "FLOPs", _flops(found)),
            Section("layers", "Layers", "Layers", _layers(found, card)),
        ],
        content=_Content(found, card),
    )


def _memory(found: Prediction, card: Card | None) -> list[Table | Note]:
    peak = found.peak_bytes
    rows: list[Sequence[Cell]] = [
        (name, Quantity(size / _GB, "GB", 3), Quantity(size / peak, "share", 1))
        for name, size in sorted(found.at_peak.items(), key=lambda item: -item[1])
    ]
    rows.append(("peak", Quantity(peak / _GB, "GB", 3), Quantity(1.0, "share", 1)))
    kept = [
        ("parameters", found.parameter_bytes),
        ("gradients", found.gradient_bytes),
        ("optimizer", found.optimizer_bytes),
    ]
    held = [f"{name} {size / _GB:.3f} GB" for name, size in kept if size]
    blocks: list[Table | Note] = [
        Table(("held for", "at the peak", "share"), rows, 2),
        Note(f"over the whole step: {', '.join(held)}"),
    ]
    if found.setup.is_foreach:
        blocks.append(Note("the optimizer's arithmetic is done for all parameters at once, as on a GPU"))
    if card is not None:
        blocks.append(_fit(peak, card))
    return blocks


def _fit(peak: int, card: Card) -> Note:
    if card.memory_bytes is None:
        return Note(f"{card.name}: how much memory it has is not known")
    size = f"{card.memory_bytes / _GB:.0f} GB of {card.name}"
    if peak > card.memory_bytes:
        return Note(f"does not fit: {peak / _GB:.1f} GB are more than the {size}", "bad")
    return Note((Quantity(peak / card.memory_bytes, "share", 1), f" of the {size}"), "good")


def _flops(found: Prediction) -> list[Table | Note]:
    parts = dict.fromkeys(one.part for one in found.work if one.flops)
    rows: list[Sequence[Cell]] = [
        (part, Quantity(sum(one.flops for one in found.work if one.part == part), "FLOP")) for part in parts
    ]
    rows.append(("step", Quantity(found.flops, "FLOP")))
    known = found.flops_calculator
    if known is not None:
        rows.append(("by flops_calculator", Quantity(known, "FLOP")))
    blocks: list[Table | Note] = [Table(("part", "FLOPs"), rows, 1)]
    if known is not None and found.flops != known:
        more = Quantity(found.flops - known, "FLOP", is_change=True)
        blocks.append(Note((more, " against flops_calculator: the backward makes attention's scores again")))
    return blocks


def _layers(found: Prediction, card: Card | None) -> list[Table | Note]:
    places, whole = _places(found, card), _Place()
    for place in places.values():
        whole.add(place.flops, place.moved_bytes, place.floor_ns)
    is_trained = any(one.part == BACKWARD for one in found.work)
    head = ["place", "forward", *(["backward"] if is_trained else []), "GB moved"]
    rows: list[Sequence[Cell]] = []
    for name, place in [*_alike(places), ("step", whole)]:
        parts = (FORWARD, BACKWARD) if is_trained else (FORWARD,)
        cells: list[Cell] = [name, *(Quantity(place.flops[part], "FLOP") for part in parts)]
        cells.append(Quantity(place.moved_bytes / _GB, "", 3))
        if card is not None:
            cells.append(None if place.floor_ns is None else Quantity(place.floor_ns / NS_PER_MS, "ms", 3))
        rows.append(cells)
    if card is None:
        return [Table(head, rows, len(head) - 1)]
    head.append("floor")
    return [Table(head, rows, len(head) - 1), Note(_FLOORS), Note(f"{card.name}: {card.source}")]


def _places(found: Prediction, card: Card | None) -> dict[str, _Place]:
    """The places in the order in which the forward pass reaches them; last, what is outside of modules."""
    made: dict[str, _Place] = {}
    for one in found.work:
        number = number_of(one.module)
        name = (short(one.module) or OUTSIDE) if number is None else f"{_LAYER}{number}"
        floor_ns = None if card is None else card.floor_ns(one.flops, one.moved_bytes)
        made.setdefault(name, _Place()).add({one.part: one.flops}, one.moved_bytes, floor_ns)
    return dict(sorted(made.items(), key=lambda item: item[0] == OUTSIDE))


def _alike(places: Mapping[str, _Place]) -> list[tuple[str, _Place]]:
    """Joins consecutive layers with the same needs into one row."""
    found: list[tuple[str, _Place]] = []
    of_layers = ((name.startswith(_LAYER), place, name) for name, place in places.items())
    for (is_layer, place), group in groupby(of_layers, key=lambda each: each[:2]):
        names = [name for _, _, name in group]
        if is_layer and len(names) > 1:
            numbers = [name.removeprefix(_LAYER) for name in names]
            found.append((f"layers {numbers[0]} to {numbers[-1]}, each", place))
        else:
            found += [(name, place) for name in names]
    return found
