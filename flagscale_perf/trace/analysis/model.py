"""The cost model of an operation by its shape: a fixed part, one per cell (row x field), one per byte.

Fitted to the operations of the run itself, by relative least squares to the middle of each shape. There is no
model for too few operations, or for shapes that cannot tell the three parts apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

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
    if _independence(rows, weights) < MIN_INDEPENDENT:
        return replace(empty, reason="rows x fields and bytes grow together: vary one of them alone")
    costs = _least_squares(rows, middles, weights)
    model = replace(empty, fixed_ns=costs[0], cell_ns=costs[1], byte_ns=costs[2])
    errors = Spread()
    for terms, middle, shape in zip(rows, middles, found, strict=True):
        made = sum(cost * term for cost, term in zip(costs, terms, strict=True))
        errors.add(abs(made - middle) / middle, shape.times.count)
    error = errors.percentile(0.5) or 0.0
    if error > MAX_ERROR:
        return replace(empty, reason=f"times do not follow the shape: median error {100 * error:.0f} %")
    return replace(model, error=error)


def _products(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> list[list[float]]:
    return [
        [sum(weight * row[i] * row[j] for row, weight in zip(rows, weights, strict=True)) for j in range(3)]
        for i in range(3)
    ]


def _independence(rows: Sequence[Sequence[float]], weights: Sequence[float]) -> float:
    """Determinant of the terms' correlations: 1 if they are independent, 0 if one follows from the others."""
    made = _products(rows, weights)
    scale = [math.sqrt(made[i][i]) for i in range(3)]
    if not all(scale):
        return 0.0
    one, two, three = (made[i][j] / (scale[i] * scale[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    return 1 + 2 * one * two * three - one * one - two * two - three * three


def _least_squares(
    rows: Sequence[Sequence[float]], values: Sequence[float], weights: Sequence[float]
) -> list[float]:
    """Three non-negative costs: the best fit over all subsets of the terms."""
    made = _products(rows, weights)
    right = [
        sum(weight * row[i] * value for row, value, weight in zip(rows, values, weights, strict=True))
        for i in range(3)
    ]
    best, least = [0.0, 0.0, 0.0], math.inf
    for count in (3, 2, 1):
        for chosen in combinations(range(3), count):
            solved = _solved([[made[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
            if solved is None or min(solved) < 0:
                continue
            costs = [0.0, 0.0, 0.0]
            for place, cost in zip(chosen, solved, strict=True):
                costs[place] = cost
            left = sum(
                weight * (sum(cost * term for cost, term in zip(costs, row, strict=True)) - value) ** 2
                for row, value, weight in zip(rows, values, weights, strict=True)
            )
            if left < least:
                best, least = costs, left
    return best


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with scaled columns; None for a singular matrix."""
    count = len(right)
    scale = [math.sqrt(matrix[i][i]) or 1.0 for i in range(count)]
    table = [
        [*(matrix[i][j] / (scale[i] * scale[j]) for j in range(count)), right[i] / scale[i]]
        for i in range(count)
    ]
    for column in range(count):
        pivot = max(range(column, count), key=lambda row: abs(table[row][column]))
        if abs(table[pivot][column]) < 1e-12:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        for row in range(count):
            if row != column:
                factor = table[row][column] / table[column][column]
                table[row] = [a - factor * b for a, b in zip(table[row], table[column], strict=True)]
    return [table[i][count] / table[i][i] / scale[i] for i in range(count)]
