"""The cost model of an operation by its shape: a fixed part, one per cell (row x field), one per byte.

Fitted to the operations of the run itself, by relative least squares to the middle of each shape. There is no
model for too few operations, or for shapes that cannot tell the three parts apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from flagscale_perf.analysis.fit import independence, non_negative
from flagscale_perf.trace.spread import Spread

MIN_CALLS, MIN_SHAPES = 30, 3
MAX_SHAPES = 512
_SIZES_ALIKE = math.log(1.1)
MAX_ERROR = 0.4  # median, relative: beyond it the model does not describe these operations
MIN_INDEPENDENT = 1e-4  # determinant of the correlations
FIXED, CELLS, BYTES = "fixed cost", "cells", "bytes"
BOUNDS = (FIXED, CELLS, BYTES)


@dataclass
class Shape:
    """Operations of one size.

    Attributes:
        rows, fields: of each.
        size_bytes: sum.
        times: of them, in nanoseconds.
    """

    rows: int
    fields: int
    size_bytes: int
    times: Spread

    @property
    def each(self) -> tuple[float, float, float]:
        """Rows, fields and bytes of a mean one."""
        return self.rows, self.fields, self.size_bytes / self.times.count

    @property
    def terms(self) -> tuple[float, float, float]:
        """The factors of the fixed, cell and byte costs."""
        return 1.0, float(self.rows * self.fields), self.size_bytes / self.times.count


class Shapes:
    """Operations by shape; sizes within 10 % count as one. Shapes beyond `MAX_SHAPES` are dropped."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, int, int], Shape] = {}
        self.left_out = 0

    def add(self, rows: int, fields: int, size_bytes: int, took_ns: int) -> None:
        """Adds one successful operation."""
        self.extend([(rows, fields, size_bytes, took_ns)])

    def extend(self, operations: Iterable[tuple[int, int, int, int]]) -> None:
        """Adds operations given by rows, fields, bytes and time of each."""
        found: dict[tuple[int, int, int], list[tuple[int, int]]] = {}
        for rows, fields, size_bytes, took_ns in operations:
            key = (rows, fields, round(math.log(size_bytes + 1) / _SIZES_ALIKE))
            found.setdefault(key, []).append((size_bytes, took_ns))
        for key, alike in found.items():
            shape = self.kept.get(key)
            if shape is None:
                if len(self.kept) == MAX_SHAPES:
                    self.left_out += len(alike)
                    continue
                shape = self.kept[key] = Shape(key[0], key[1], 0, Spread())
            shape.size_bytes += sum([size_bytes for size_bytes, _ in alike])
            shape.times.extend([took_ns for _, took_ns in alike])

    def usual(self) -> Shape | None:
        """The shape that takes the most time; None if there is none."""
        return max(self.kept.values(), key=lambda shape: shape.times.total, default=None)

    @property
    def calls(self) -> int:
        """Operations of all shapes that are kept."""
        return sum(shape.times.count for shape in self.kept.values())


@dataclass(frozen=True)
class Model:
    """Costs in nanoseconds.

    Attributes:
        fixed_ns: of any operation.
        cell_ns, byte_ns: of one more of them.
        error: median over the operations of |time - model| / time, of the middle of each shape.
        calls, shapes: it is fitted to.
        reason: why there is no model; empty where there is.
    """

    fixed_ns: float = 0.0
    cell_ns: float = 0.0
    byte_ns: float = 0.0
    error: float = 0.0
    calls: int = 0
    shapes: int = 0
    reason: str = ""

    def __bool__(self) -> bool:
        """Whether a model was fitted."""
        return not self.reason

    def parts(self, rows: float, fields: float, size_bytes: float) -> tuple[float, float, float]:
        """The fixed, cell and byte parts of one operation."""
        return self.fixed_ns, self.cell_ns * rows * fields, self.byte_ns * size_bytes

    def predict(self, rows: float, fields: float, size_bytes: float) -> float:
        """Predicted time for an operation of this shape."""
        return sum(self.parts(rows, fields, size_bytes))

    def bound(self, rows: float, fields: float, size_bytes: float) -> str:
        """The largest of the three parts."""
        parts = self.parts(rows, fields, size_bytes)
        return BOUNDS[parts.index(max(parts))]


def fit(shapes: Shapes) -> Model:
    """The model, or one with the reason why there is none."""
    found = list(shapes.kept.values())
    empty = Model(calls=shapes.calls, shapes=len(found))
    if shapes.calls < MIN_CALLS or len(found) < MIN_SHAPES:
        return replace(
            empty,
            reason=f"needs {MIN_CALLS} operations of {MIN_SHAPES} shapes (rows, fields, bytes);"
            f" has {shapes.calls} of {len(found)}",
        )
    rows = [shape.terms for shape in found]
    middles = [shape.times.percentile(0.5) or 1.0 for shape in found]
    weights = [shape.times.count / (middle * middle) for shape, middle in zip(found, middles, strict=True)]
    if independence(rows, weights) < MIN_INDEPENDENT:
        return replace(empty, reason="rows x fields and bytes grow together: vary one of them alone")
    costs = non_negative(rows, middles, weights)
    model = replace(empty, fixed_ns=costs[0], cell_ns=costs[1], byte_ns=costs[2])
    errors = Spread()
    for terms, middle, shape in zip(rows, middles, found, strict=True):
        made = sum(cost * term for cost, term in zip(costs, terms, strict=True))
        errors.add(abs(made - middle) / middle, shape.times.count)
    error = errors.percentile(0.5) or 0.0
    if error > MAX_ERROR:
        return replace(empty, reason=f"times do not follow the shape: median error {100 * error:.0f} %")
    return replace(model, error=error)
