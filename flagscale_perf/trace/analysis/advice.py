"""What to change to reduce the largest part of an operation's cost, and what that would gain."""

from __future__ import annotations

from dataclasses import dataclass

from flagscale_perf.analysis.rules import Change
from flagscale_perf.trace.analysis.model import BYTES, CELLS, FIXED, Model
from flagscale_perf.trace.analysis.sums import OperationSums
from flagscale_perf.trace.records import Kind

_UNITS = Change(["num_data_storage_units"], "more storage units, on machines with room: parts go in parallel")
_BACKEND = Change(
    [], "another backend where bytes are the bound: MooncakeStore over RDMA, Yuanrong (ds_max_workers)"
)
_THREADS = Change(["TQ_CLIENT_ZMQ_IO_THREADS"], "raise it where large batches go through TCP")
_CHANGES: dict[str, tuple[Change, ...]] = {
    FIXED: (
        Change([], "put and get twice as many rows at once: half as many operations"),
        Change(["TQ_NUM_THREADS"], "set it to the CPUs there are: more threads only wait for each other"),
    ),
    CELLS: (
        Change(["select_fields"], "get only the fields that are used: half as many halve this part"),
        Change([], "pack small fields into one: it is fields x rows that costs here, not their bytes"),
    ),
    BYTES: (
        Change([], "halve the bytes: half precision, no padding, no fields that are never got"),
        *(_THREADS, _UNITS, _BACKEND),
    ),
}


@dataclass(frozen=True)
class Gain:
    """One change, applied to every operation of a kind.

    Attributes:
        bound: what the change is against.
        share: of the operations' time that this part takes.
        words: the change, with figures.
        saved_ns: of all operations, by the model.
        changes: what to do, the one whose gain this is first.
    """

    bound: str
    share: float
    words: str
    saved_ns: float
    changes: tuple[Change, ...]


def best_gain(kind: Kind, one: OperationSums, model: Model) -> Gain | None:
    """The gain against the largest part of the operations that take the most time; None without a model."""
    shape = one.shapes.usual()
    if not model or shape is None:
        return None
    rows, fields, size = shape.rows, shape.fields, shape.size_bytes / shape.times.count
    now = model.predict(rows, fields, size)
    bound = model.bound(rows, fields, size)
    after = _after(model, bound, rows, fields, size)
    words = {
        FIXED: f"{2 * rows} rows instead of {rows}",
        CELLS: f"{fields / 2:g} fields instead of {fields}",
        BYTES: "half the bytes",
    }[bound]
    gets = "a get" if kind is Kind.GET else "a put"
    title = f"{gets} with {words}: {after / 1e6:.2f} ms for the same rows instead of {now / 1e6:.2f} ms"
    parts = dict(zip((FIXED, CELLS, BYTES), model.parts(rows, fields, size), strict=True))
    saved = sum(
        (model.predict(*each) - _after(model, bound, *each)) * other.times.count
        for other in one.shapes.kept.values()
        for each in [(other.rows, other.fields, other.size_bytes / other.times.count)]
    )
    scale = one.total.weight / max(1, one.shapes.calls)
    return Gain(bound, parts[bound] / now if now else 0.0, title, saved * scale, _CHANGES[bound])


def _after(model: Model, bound: str, rows: float, fields: float, size: float) -> float:
    """Time for the same rows once this part has been halved."""
    if bound == FIXED:
        return model.predict(2 * rows, fields, 2 * size) / 2
    return model.predict(rows, fields / 2, size) if bound == CELLS else model.predict(rows, fields, size / 2)
