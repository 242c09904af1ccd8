"""Costs fitted to measured times by weighted least squares, for a handful of terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

from flagscale_perf.spine.packages import missing

_SINGULAR = 1e-9  # of a column, what is left of it without the others
_AS_GOOD = 1e-6  # of what is left: by so much a later subset must be better

Rows = Sequence[Sequence[float]]


def least_squares(rows: Rows, values: Sequence[float], weights: Sequence[float]) -> list[float] | None:
    """A cost for each term; None where the rows do not tell the terms apart. A row has the terms of one
    measurement.
    """
    np = _numpy()
    root = np.sqrt(weights)
    design = np.asarray(rows, float) * root[:, None]
    # bytes and rows differ by many powers of ten
    scale = np.linalg.norm(design, axis=0)
    scale[scale == 0] = 1.0
    found, _, rank, _ = np.linalg.lstsq(design / scale, np.asarray(values) * root, _SINGULAR)
    return None if rank < len(scale) else [float(cost) for cost in found / scale]


def non_negative(rows: Rows, values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """A cost of 0 or more for each term: the best fit over all subsets of the terms; of equally good ones
    that of the earlier terms, so that what is the same in all measurements is the cost of a constant first
    one.
    """
    terms = len(rows[0])
    best, least = [0.0] * terms, math.inf
    for count in range(terms, 0, -1):
        for chosen in combinations(range(terms), count):
            found = least_squares([[row[place] for place in chosen] for row in rows], values, weights)
            if found is None or min(found) < 0:
                continue
            costs = [0.0] * terms
            for place, cost in zip(chosen, found, strict=True):
                costs[place] = cost
            left = sum(
                weight * (sum(cost * term for cost, term in zip(costs, row, strict=True)) - value) ** 2
                for row, value, weight in zip(rows, values, weights, strict=True)
            )
            if left < least * (1 - _AS_GOOD):
                best, least = costs, left
    return best


def independence(rows: Rows, weights: Sequence[float]) -> float:
    """Determinant of the terms' correlations: 1 if they are independent, 0 if one follows from the others."""
    np = _numpy()
    design = np.asarray(rows, float) * np.sqrt(weights)[:, None]
    scale = np.linalg.norm(design, axis=0)
    return float(np.linalg.det((design / scale).T @ (design / scale))) if scale.all() else 0.0


def _numpy() -> Any:
    try:
        import numpy  # only where something is fitted: its import takes longer than most reports
    except ImportError as error:
        raise missing("numpy", error, "a report of calls or experiments") from None
    return numpy
