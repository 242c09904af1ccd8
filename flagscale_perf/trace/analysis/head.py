"""The key figures of traces: of an RL job first how fast each end of the queue is and which of them waits."""

from __future__ import annotations

from flagscale_perf.analysis.blocks import Cell, Quantity, Tile, lasting, sized, three
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.analysis import verdicts
from flagscale_perf.trace.analysis.report import TraceReport
from flagscale_perf.trace.analysis.sides import Side, Sides
from flagscale_perf.trace.figures import ONE_OF
from flagscale_perf.trace.records import Kind


def tiles_of(found: TraceReport) -> list[Tile]:
    """The key figures, each with where it is from."""
    total, get, _, put = found.sums.overall()
    queue = (get + put) / total if total else None
    tiles = [] if found.sides is None else _sides(found.sides)
    tiles.append(Tile("in the queue", Quantity(queue, "share", 1), verdicts.of_queue(queue)))
    for kind in (Kind.PUT, Kind.GET):
        speed = found.sums.operations[kind].speed.percentile(0.5)
        tiles.append(Tile(ONE_OF[kind], sized(speed, "/s"), verdicts.of_speed(speed)))
    if found.lineage is not None and found.lineage.joined:
        tiles.append(Tile("a sample waits", lasting(found.lineage.residence.percentile(0.5)), "median"))
    return tiles


def _sides(sides: Sides) -> list[Tile]:
    """The head of an RL job: how fast each end of the queue is, which one waits, and how old samples are."""
    each = {"generator": sides.generator, "trainer": sides.trainer}
    tiles = [Tile(label, three(side.samples_per_s, "samples/s"), _who(side)) for label, side in each.items()]
    if (waits := sides.waits_more) is not None:
        other = each["trainer" if waits == "generator" else "generator"]
        more = (f"of its time; {other.name} ", Quantity(other.waits_share, "share", 0))
        tiles.append(Tile(f"{each[waits].name} waits", Quantity(each[waits].waits_share, "share", 0), more))
    if sides.mean_age is not None:
        versions = "weight versions are not recorded"
        if sides.mean_behind is not None:
            versions = f"weights {sides.mean_behind:.3g} behind, at most {sides.most_behind}"
        note = f"of {sides.trainer.name}, at most {sides.oldest}; {versions}"
        tiles.append(Tile("age of samples", three(sides.mean_age, "steps"), note))
    return tiles


def _who(side: Side) -> Cell:
    count = f"{side.name}, {side.processes} process{'es' * (side.processes != 1)}"
    if side.waits_share is None:
        return f"{count}; whether it waits is not known"
    return (f"{count}; waits ", Quantity(side.waits_share, "share", 0), f": {side.waits_source}")


def lead_of(found: TraceReport) -> Cell:
    """How long after the first record the job began to work, where that is worth a word."""
    first_ns, began_ns = found.sums.first_ns, found.began_ns
    lead_ns = 0 if first_ns is None or began_ns is None else began_ns - first_ns
    lead = lasting(lead_ns) if lead_ns > NS_PER_S else None
    return None if lead is None else (lead, " after the first record; shares of the wall time count from it")
