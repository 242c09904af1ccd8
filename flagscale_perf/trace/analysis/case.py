"""The case that rules examine, and what a change is worth to the whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from flagscale_perf.analysis.rules import Case, Change, Finding, Rule
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.spine.limits import Limit
from flagscale_perf.trace.analysis.model import BOUNDS, BYTES, CELLS, FIXED, Model
from flagscale_perf.trace.analysis.report import TraceReport
from flagscale_perf.trace.analysis.sums import JudgedOperations
from flagscale_perf.trace.analysis.transfers import title_of
from flagscale_perf.trace.records import Kind

GAIN = "samples in the same time"
MIN_OPERATIONS = 30  # ours: of fewer nothing is said
ON_POLICY = 0.5  # ours: steps; below it most samples are of the step that trains on them
WORTH = Limit(0.02, "share", "ours: less of the time is not worth a change")
_UNITS = Change(["num_data_storage_units"], "more storage units, on machines with room: parts go in parallel")
_BACKEND = "another backend where bytes are the bound: MooncakeStore over RDMA, Yuanrong (ds_max_workers)"
_THREADS = Change(["TQ_CLIENT_ZMQ_IO_THREADS"], "raise it where large batches go through TCP")
_CHANGES: dict[str, tuple[Change | str, ...]] = {
    FIXED: (
        "put and get twice as many rows at once: half as many operations",
        Change(["TQ_NUM_THREADS"], "set it to the CPUs there are: more threads only wait for each other"),
    ),
    CELLS: (
        Change(["select_fields"], "get only the fields that are used: half as many halve this part"),
        "pack small fields into one: it is fields x rows that costs here, not their bytes",
    ),
    BYTES: (
        "halve the bytes: half precision, no padding, no fields that are never got",
        *(_THREADS, _UNITS, _BACKEND),
    ),
}


@dataclass(frozen=True)
class TraceCase(Case):
    """A report, as the rules see it."""

    report: TraceReport

    @property
    def whole_ns(self) -> float:
        """The time that shares refer to: that of all calls, or of all operations if there are no calls."""
        calls = self.report.sums.overall()[0]
        return calls or sum(one.total.total for one in self.report.sums.operations.values())

    def operations(self) -> Iterator[tuple[Kind, str, JudgedOperations]]:
        """The kinds with enough operations to judge."""
        for kind, one in self.report.sums.operations.items():
            if one.total.count >= MIN_OPERATIONS:
                yield kind, kind.name.lower(), one

    def busiest_in(self, function: str) -> float:
        """The share that the process with most of it has of a function's time."""
        calls = self.report.sums.by_process
        times = [one.total.total for (_, name), one in calls.items() if name == function]
        return max(times) / sum(times) if sum(times) else 1.0

    def busiest_with(self, kind: Kind) -> float:
        """The share that the process with most of it has of the time of operations of a kind."""
        sums = self.report.sums
        times = [one.total for (_, other), one in sums.operations_by.items() if other is kind]
        return max(times) / sum(times) if sum(times) else 1.0

    def waited_share(self, unit: str, kind: Kind) -> float:
        """The part of the time for which a unit held up operations of a kind that the job waited for it. Of
        processes that do the same, which they do at the same time, the one held up for longest counts. What
        different ones do comes in turn where each step trains on its own samples, else at the same time, too.
        """
        sums, lineage = self.report.sums, self.report.lineage
        longest_ns = dict[str, int]()
        for (process, *what), held_ns in sums.held_by.items():
            if what == [unit, kind]:
                does = sorted(name for other, name in sums.by_process if other == process)
                role = " ".join(does) or title_of(process)
                longest_ns[role] = max(longest_ns.get(role, 0), held_ns)
        age = None if lineage is None else lineage.last.mean_age
        is_in_turn = age is not None and age < ON_POLICY
        waited_ns = sum(longest_ns.values()) if is_in_turn else max(longest_ns.values(), default=0)
        return waited_ns / (sums.operations[kind].held[unit].total or 1.0)

    def holding(self, held: Mapping[tuple[str, Kind], float], whole_ns: float) -> list[tuple[Finding, float]]:
        """The findings on storage units that held something up which took so long: each with its share."""
        found = {finding.title: finding for finding in self.explained_by}
        shares = {
            held_up(unit, kind): held_ns / whole_ns for (unit, kind), held_ns in held.items() if whole_ns
        }
        return [(found[title], share) for title, share in shares.items() if title in found]

    def takes(self, finding: Finding, saved_ns: float, busiest: float = 1.0) -> Finding:
        """The finding with its cost and its gain, both of the wall time: processes work at the same time, so
        that gets shorter by what the busiest one is saved, at most. `saved_ns`: of all processes. Text has no
        wall time; there it is the time of all calls.
        """
        wall_ns = self.report.wall_ns
        whole_ns, less_ns = (self.whole_ns, saved_ns) if wall_ns is None else (wall_ns, saved_ns * busiest)
        left_ns = whole_ns - less_ns
        return replace(
            finding,
            cost_s=less_ns / NS_PER_S,
            cost_share=less_ns / whole_ns if wall_ns else None,
            gain=less_ns / left_ns if left_ns > 0 else None,
        )


def held_up(unit: str, kind: Kind) -> str:
    """Title of the finding on a slow storage unit."""
    return f"Storage unit {unit} holds up the {kind.name.lower()}s"


TraceRule = Rule[TraceCase]


@dataclass(frozen=True)
class Gain:
    """One change, applied to every operation of a kind.

    Attributes:
        bound: what the change is against.
        share: of the operations' time that this part takes.
        words: the change, with figures.
        part_ns: this part of all operations, by the model.
        saved_ns: of all operations, likewise.
        changes: what to do, the one whose gain this is first.
    """

    bound: str
    share: float
    words: str
    part_ns: float
    saved_ns: float
    changes: tuple[Change | str, ...]


def best_gain(kind: Kind, one: JudgedOperations, model: Model) -> Gain | None:
    """The gain against the largest part of the operations that take the most time; None without a model."""
    shape = one.shapes.usual()
    if not model or shape is None:
        return None
    now, bound = model.predict(*shape.each), model.bound(*shape.each)
    after, place = _after(model, bound, *shape.each), BOUNDS.index(bound)
    words = {
        FIXED: f"{2 * shape.rows} rows instead of {shape.rows}",
        CELLS: f"{shape.fields / 2:g} fields instead of {shape.fields}",
        BYTES: "half the bytes",
    }[bound]
    title = f"with {words} the same rows take {after / 1e6:.3g} ms instead of {now / 1e6:.3g} ms"
    part = saved = 0.0
    for other in one.shapes.kept.values():
        part += model.parts(*other.each)[place] * other.times.count
        saved += (model.predict(*other.each) - _after(model, bound, *other.each)) * other.times.count
    scale, share = one.total.weight / max(1, one.shapes.calls), model.parts(*shape.each)[place] / (now or 1.0)
    return Gain(bound, share, title, part * scale, saved * scale, _CHANGES[bound])


def _after(model: Model, bound: str, rows: float, fields: float, size: float) -> float:
    """Time for the same rows once this part has been halved."""
    if bound == FIXED:
        return model.predict(2 * rows, fields, 2 * size) / 2
    return model.predict(rows, fields / 2, size) if bound == CELLS else model.predict(rows, fields, size / 2)
