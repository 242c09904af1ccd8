"""A profile in tables."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from flagscale_perf.analysis.blocks import Block, Cell, Note, Pairs, Quantity, Table, ms
from flagscale_perf.profile.analysis import roofline as roofs
from flagscale_perf.profile.analysis.memory import MB, memory_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.profile.analysis.waits import Bubble, Late, Waits
from flagscale_perf.profile.records import PARTS

MOST = 20


def books(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A row for each rank; the parts add up to the step."""
    rows: list[Sequence[Cell]] = [
        (
            sums.titles[rank],
            Quantity(one.steps),
            ms(one.total),
            *(ms(one.parts[part]) for part in PARTS),
            share(one.coverage),
        )
        for rank, one in sums.books.items()
    ]
    head = ("", "steps", "step ms", *PARTS, "covered")
    gap = max(
        abs(one.total - one.residual - one.rows) / one.total for one in sums.books.values() if one.total
    )
    said = f"The parts add up to the step, nothing is rescaled; rows and parts differ by {100 * gap:.2f} %."
    return [Table(head, rows, len(head) - 1, f"A {sums.phase} step, ms"), Note(said)]


def layers(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A row for each layer."""
    amounts = sums.by_place(lambda cell: (cell.place.name, cell.kind))
    taken: defaultdict[str, float] = defaultdict(float)
    for (_, kind), one in amounts.items():
        taken[kind] += one.worked_ns
    kinds = sorted(filter(taken.get, taken), key=lambda kind: -taken[kind])  # the largest need no scrolling
    whole = sums.by_place(lambda cell: cell.place.name)
    rows: list[Sequence[Cell]] = []
    total = sums.mean.total if sums.busy is None else sums.busy
    for place in sums.places:
        cells = [amounts.get((place.name, kind)) for kind in kinds]
        shown = [None if one is None else ms(one.worked_ns) for one in cells]
        own = whole[place.name]
        host = [] if sums.busy is None else [ms(own.self_ns)]
        rows.append((place.name, ms(own.worked_ns), share(own.worked_ns, total), *host, *shown))
    times, of_device = ["ms", "of the step"], ""
    if sums.busy is not None:
        times, of_device = ["device ms", "of its busy time", "host ms"], " of the device"
    head = ("layer", *times, *kinds)
    said = f"A {sums.phase} step by layer, ms{of_device} on a rank that has it"
    return [Table(head, rows, len(head) - 1, said)]


def operators(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A row for each of the longest operators."""
    points = roofs.operators_of(sums, found.roofs)
    kinds = {cell.op: cell.kind for cell in sums.cells}
    rows: list[Sequence[Cell]] = []
    for op, one in sums.by(lambda cell: cell.op or cell.kind).items():
        point = points.get(op)
        rows.append(
            (
                op,
                kinds.get(op, op),
                Quantity(one.runs, "", 1),
                ms(one.self_ns),
                share(one.self_ns, sums.mean.total),
                None if point is None else _giga(point.flop_per_s),
                None if point is None else _giga(point.bytes_per_s),
                None if point is None else share(point.roof_share),
            )
        )
    head = ("operator", "kind", "runs", "ms", "of the step", "GFLOP/s", "GB/s", "of the roof")
    return [Table(head, rows, 6, f"A {sums.phase} step by operator", most=MOST, is_folded=len(rows) > MOST)]


def modules(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A row for each of the longest modules, counting only its own operators."""
    rows: list[Sequence[Cell]] = [
        (module or "outside", kind, ms(one.self_ns), share(one.self_ns, sums.mean.total))
        for (module, kind), one in sums.by_place(lambda cell: (cell.module, cell.kind)).items()
        if one.self_ns > 0
    ]
    head = ("module", "kind", "ms", "of the step")
    return [Table(head, rows, 2, f"A {sums.phase} step by module", most=MOST, is_folded=len(rows) > MOST)]


def roofline(found: ProfileReport, sums: PhaseSums) -> list[Block]:
    """A table of what could be saved if the work ran at the roofs."""
    measured = [
        (f"matmul, {name}", Quantity(value, "FLOP/s")) for name, value in found.roofs.flop_per_s.items()
    ]
    if found.roofs.bytes_per_s is not None:
        measured.append(("copy, read and written", Quantity(found.roofs.bytes_per_s / 1e9, "GB/s", 1)))
    rows: list[Sequence[Cell]] = [
        (
            point.label,
            ms(point.self_ns),
            ms(point.floor_ns),
            None if point.intensity is None else Quantity(point.intensity, "", 1),
            _giga(point.flop_per_s),
            _giga(point.bytes_per_s),
            share(point.roof_share),
            point.bound,
        )
        for point in found.points[sums.phase]
    ]
    if not rows:
        return [Note("No operator has FLOPs or bytes: the step with shapes is missing (--shapes).")]
    head = ("", "ms", "at the roof", "FLOP/byte", "GFLOP/s", "GB/s", "of the roof", "held by")
    title = f"A {sums.phase} step among the roofs"
    blocks: list[Block] = [Table(head, rows, 7, title, most=MOST)]
    return (
        [Pairs(measured), *blocks] if measured else [*blocks, Note("No roofs were measured on this device.")]
    )


def memory(found: ProfileReport) -> list[Block]:
    """A row for each module, those in it below it."""
    rows: list[Sequence[Cell]] = [
        (one.label, *(Quantity(value / MB, "", 2) for value in one[2:])) for one in memory_of(found.profile)
    ]
    head = ("", "retained MB", "transient MB", "peak MB")
    said = (
        "Retained: by all forward passes of the step together. Where there are several, a backward pass frees"
        " what one of them retains before the next: then the peak is lower."
    )
    title = "The forward pass by module, of the rank with the highest peak"
    return [Table(head, rows, 3, title, is_folded=len(rows) > MOST), Note(said)] if rows else []


def observer(found: ProfileReport) -> list[Block]:
    """A row for each kind of step."""
    rows: list[Sequence[Cell]] = [
        (
            phase,
            _three(one.ratio),
            _three(one.spread),
            Quantity(len(one.ratios)),
            _three(one.lost),
            _three(one.clean_ratio),
            _three(one.noise),
            ms(one.outside_ns),
            ms(one.reduce_ns),
        )
        for phase, one in found.observers.items()
    ]
    head = (
        *("steps", "profiled / clean", "+-", "pairs", "with start, stop", "clean / clean", "+-"),
        *("start, stop ms", "rows made in ms"),
    )
    said = (
        "Each profiled step against the clean ones beside it, in this run; +- is half of the distance"
        " between the quartiles. Starting and stopping is outside of the steps, rows are made on a thread"
        " beside them, both for each profiled step."
    )
    return [Table(head, rows, 7), Note(said)] if rows else []


def communication(found: ProfileReport) -> list[Block]:
    """Tables of waiting, of the ranks waited for, and of the links' speed; empty without collectives."""
    communication = found.communication
    if not communication.operations:
        return []
    made: list[Block] = [_waits(communication.waits)]
    if communication.lates:
        made.append(_lates(communication.lates))
    if communication.bubbles:
        made.append(_bubbles(communication.bubbles))
    if unsplit := communication.unsplit:
        count = len(communication.operations)
        said = f"{unsplit} of {count} operations are not split: not all their ranks were recorded"
        made.append(Note(said))
    if (clocks := communication.clocks) > 1:
        said = f"{clocks} clocks: an operation's time beyond its shortest on any rank counts as waiting"
        made.append(Note(said))
    return made


def _waits(waits: Sequence[Waits]) -> Table:
    rows: list[Sequence[Cell]] = [
        (
            f"rank {one.rank}",
            one.label,
            one.op,
            Quantity(one.runs),
            ms(one.exposed_waiting_ns + one.exposed_transfer_ns),
            ms(one.exposed_waiting_ns),
            ms(one.exposed_transfer_ns),
            ms(one.hidden_ns),
            Quantity(one.lasts),
            _three(one.naive_gb_per_s),
            _three(one.busbw_gb_per_s),
        )
        for one in waits
    ]
    head = (
        *("", "group", "operation", "runs", "exposed ms", "waiting", "transfer", "hidden ms", "came last"),
        *("GB/s with waiting", "bus GB/s"),
    )
    return Table(head, rows, 8, "Of all profiled steps", most=MOST)


def _lates(lates: Sequence[Late]) -> Table:
    rows = [
        (
            f"rank {one.rank}",
            f"{one.module or 'outside'}, {one.phase}",
            f"{one.lasts} of {one.operations}",
            ms(one.late_ns),
            ms(one.waits_ns),
        )
        for one in lates
    ]
    head = ("", "before", "came last", "later by ms", "others waited ms")
    return Table(head, rows, 2, "Who comes last", most=MOST)


def _bubbles(bubbles: Sequence[Bubble]) -> Table:
    rows = [
        (
            f"rank {one.rank}",
            Quantity(one.stage),
            Quantity(one.steps),
            ms(one.bubble_ns),
            ms(one.back_pressure_ns),
            ms(one.transfer_ns),
            share(one.share),
            share(one.waiting_share),
            share(one.ideal_share),
        )
        for one in bubbles
    ]
    head = (
        *("", "stage", "steps", "bubble ms", "back-pressure ms", "transfer ms", "bubble", "both"),
        "(p-1)/(m+p-1)",
    )
    return Table(head, rows, 8, "The pipeline's bubble")


def _three(value: float | None) -> Cell:
    return None if value is None else Quantity(value, "", 3)


def _giga(value: float | None) -> Cell:
    return None if value is None else Quantity(value / 1e9, "", 1)


def share(value: float | None, whole: float | None = 1.0) -> Quantity:
    """The value as a share of the whole; not known where one of them is not, or the whole is 0."""
    return Quantity(value / whole if value is not None and whole else None, "share", 1)
