"""Collectives as pictures and tables: who waits, for which rank, and how fast the links are."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flagscale_perf.analysis.blocks import Block, Cell, Lane, Note, Quantity, Stripe, Table, Waterfall
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.waits import Waits
from flagscale_perf.spine.clock import NS_PER_MS

MOST = 20
PARTS = (
    ("waiting", "exposed_waiting_ns", "red"),
    ("transfer", "exposed_transfer_ns", "blue"),
    ("hidden by other work", "hidden_ns", "faint"),
)
MB = 1e6


def blocks(found: ProfileReport) -> list[Block]:
    """All blocks about collectives; an empty list if there were none."""
    communication = found.communication
    if not communication.operations:
        return []
    made: list[Block] = [*_pictures(found), _waits(found.communication.waits)]
    if communication.lates:
        made.append(_lates(found))
    if communication.bubbles:
        made.append(_bubbles(found))
    if communication.unsplit:
        count = len(communication.operations)
        made.append(Note(
            f"{communication.unsplit} of {count} operations are not split: not all their ranks were recorded"
        ))  # fmt: skip
    if communication.clocks > 1:
        made.append(Note(
            f"{communication.clocks} clocks: an operation's time beyond its shortest on any rank"
            " counts as waiting"
        ))  # fmt: skip
    return made


def _pictures(found: ProfileReport) -> list[Block]:
    steps = max(1, max(len(rank.profiled) for rank in found.profile.ranks))
    ranks: dict[int, list[Waits]] = defaultdict(list)
    speeds: dict[str, float] = {}
    for one in found.communication.waits:
        ranks[one.rank].append(one)
        if one.busbw_gb_per_s:
            name = f"{one.label} {one.operation}"
            speeds[name] = max(speeds.get(name, 0.0), one.busbw_gb_per_s)
    lanes = [
        Lane(f"rank {rank}", 0.0, [
            Stripe(name, sum(getattr(one, part) for one in own) / steps / NS_PER_MS, None, colour)
            for name, part, colour in PARTS
        ])
        for rank, own in sorted(ranks.items())
    ]  # fmt: skip
    made: list[Block] = [Waterfall("waits", "Collectives by rank", "ms a step", lanes, _longest(lanes))]
    if speeds:
        bars = [
            Lane(name, 0.0, [Stripe("bus bandwidth", value, None, "blue")]) for name, value in speeds.items()
        ]
        made.append(Waterfall("bandwidth", "Bus bandwidth of the transfers", "GB/s", bars, _longest(bars)))
    return made


def _longest(lanes: list[Lane]) -> float:
    return 1.05 * max(sum(part.value or 0.0 for part in lane.parts) for lane in lanes) or 1.0


def _waits(waits: Sequence[Waits]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            f"rank {one.rank}", one.label, one.op, Quantity(one.runs),
            _ms(one.exposed_waiting_ns + one.exposed_transfer_ns), _ms(one.exposed_waiting_ns),
            _ms(one.exposed_transfer_ns), _ms(one.hidden_ns), Quantity(one.lasts),
            _speed(one.naive_gb_per_s), _speed(one.busbw_gb_per_s),
        )
        for one in waits
    ]  # fmt: skip
    head = ("", "group", "operation", "runs", "exposed ms", "waiting", "transfer", "hidden ms", "came last",
            "GB/s with waiting", "bus GB/s")  # fmt: skip
    return Table(head, rows, 8, "Of all profiled steps", most=MOST)


def _lates(found: ProfileReport) -> Table:
    rows = [
        (
            f"rank {one.rank}", f"{one.module or 'outside'}, {one.phase}",
            f"{one.lasts} of {one.operations}", _ms(one.late_ns), _ms(one.waits_ns),
        )
        for one in found.communication.lates
    ]  # fmt: skip
    head = ("", "before", "came last", "later by ms", "others waited ms")
    return Table(head, rows, 2, "Who comes last", most=MOST)


def _bubbles(found: ProfileReport) -> Table:
    rows = [
        (
            f"rank {one.rank}", Quantity(one.stage), Quantity(one.steps), _ms(one.bubble_ns),
            _ms(one.back_pressure_ns), _ms(one.transfer_ns), Quantity(one.share, "share", 1),
            Quantity(one.waiting_share, "share", 1), Quantity(one.ideal_share, "share", 1),
        )
        for one in found.communication.bubbles
    ]  # fmt: skip
    head = ("", "stage", "steps", "bubble ms", "back-pressure ms", "transfer ms", "bubble", "both",
            "(p-1)/(m+p-1)")  # fmt: skip
    return Table(head, rows, 8, "The pipeline's bubble")


def _ms(value: float) -> Quantity:
    return Quantity(value / NS_PER_MS, "", 3)


def _speed(value: float | None) -> Cell:
    return None if value is None else Quantity(value, "", 3)
