"""Costs fitted to measured times by weighted least squares, for a handful of terms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

_SINGULAR = 1e-9  # of a matrix whose diagonal is 1

Rows = Sequence[Sequence[float]]


def products(rows: Rows, weights: Sequence[float]) -> list[list[float]]:
    """The weighted sums of products of every two terms; a row has the terms of one measurement."""
    terms = range(len(rows[0]))
    return [
        [sum(weight * row[i] * row[j] for row, weight in zip(rows, weights, strict=True)) for j in terms]
        for i in terms
    ]


def least_squares(rows: Rows, values: Sequence[float], weights: Sequence[float]) -> list[float] | None:
    """A cost for each term; None where the rows do not tell the terms apart."""
    right = [
        sum(weight * row[i] * value for row, value, weight in zip(rows, values, weights, strict=True))
        for i in range(len(rows[0]))
    ]
    return _solved(products(rows, weights), right)


def non_negative(rows: Rows, values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """A cost of 0 or more for each term: the best fit over all subsets of the terms."""
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
            if left < least:
                best, least = costs, left
    return best


def _solved(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with pivots, columns scaled to 1: bytes and rows differ by many powers of ten."""
    count = len(right)
    scale = [math.sqrt(matrix[i][i]) or 1.0 for i in range(count)]
    table = [
        [*(matrix[i][j] / (scale[i] * scale[j]) for j in range(count)), right[i] / scale[i]]
        for i in range(count)
    ]
    for column in range(count):
        pivot = max(range(column, count), key=lambda row: abs(table[row][column]))
        if abs(table[pivot][column]) < _SINGULAR:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        for row in range(count):
            if row != column:
                factor = table[row][column] / table[column][column]
                table[row] = [a - factor * b for a, b in zip(table[row], table[column], strict=True)]
    return [table[i][count] / table[i][i] / scale[i] for i in range(count)]
