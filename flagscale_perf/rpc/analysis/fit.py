"""The cost of a call by its bytes, fitted to calls of several sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from flagscale_perf.analysis.compare.bootstrap import median

MIN_SIZES = 3
_SINGULAR = 1e-9
Size: TypeAlias = tuple[float, float]  # bytes sent and received
# Terms of the fit: the call, a byte sent, a byte received; 2: a byte costs the same both ways.
_KINDS = ((1, 1, 1), (1, 1, 0), (1, 0, 1), (0, 1, 1), (1, 2, 2), (0, 2, 2), (1, 0, 0))


class CallCost(NamedTuple):
    """Nanoseconds of a call without bytes, and of each further byte."""

    fixed_ns: float
    sent_ns: float
    received_ns: float

    def of(self, sent: float, received: float) -> float:
        """The cost of a call with this many bytes."""
        return self.fixed_ns + self.of_bytes(sent, received)

    def of_bytes(self, sent: float, received: float) -> float:
        """The cost of this many bytes."""
        return self.sent_ns * sent + self.received_ns * received


def fit(costs: Mapping[Size, Sequence[float]]) -> CallCost | None:
    """The non-negative costs that come closest to the median of each size, in relative terms; None for calls
    of too few sizes.
    """
    medians = {size: (median(found), len(found)) for size, found in costs.items()}
    medians = {size: each for size, each in medians.items() if each[0] > 0}
    if len(medians) < MIN_SIZES:
        return None
    fitted = [cost for kind in _KINDS for cost in _solved(kind, medians)]
    return min(fitted, key=lambda cost: _error(cost, medians), default=None)


def _error(cost: CallCost, medians: Mapping[Size, tuple[float, int]]) -> float:
    return sum(count * (cost.of(*size) / measured - 1) ** 2 for size, (measured, count) in medians.items())


def _solved(kind: tuple[int, int, int], medians: Mapping[Size, tuple[float, int]]) -> Iterator[CallCost]:
    """Weighted least squares; None if a cost is negative or the sizes do not tell the costs apart."""
    places = sorted({place for place, each in enumerate(kind) if each} - ({2} if kind[1] == 2 else set()))
    rows = []
    for (sent, received), (measured, count) in medians.items():
        given = (1.0, sent + received if kind[1] == 2 else sent, received)
        weight = count / measured**2
        rows.append(([given[place] for place in places], measured, weight))
    n = len(places)
    left = [[sum(w * x[i] * x[j] for x, _, w in rows) for j in range(n)] for i in range(n)]
    right = [sum(w * x[i] * y for x, y, w in rows) for i in range(n)]
    solution = _eliminated(left, right)
    if solution is None or min(solution) < 0:
        return
    found = dict(zip(places, solution, strict=True))
    sent_ns = found.get(1, 0.0)
    yield CallCost(found.get(0, 0.0), sent_ns, sent_ns if kind[1] == 2 else found.get(2, 0.0))


def _eliminated(left: list[list[float]], right: list[float]) -> list[float] | None:
    """The solution of these equations, whose matrix is symmetric; None if it is not unique."""
    size = len(right)
    scales = [left[place][place] ** 0.5 or 1.0 for place in range(size)]
    rows = [
        [left[i][j] / scales[i] / scales[j] for j in range(size)] + [right[i] / scales[i]]
        for i in range(size)
    ]
    for place in range(size):
        if rows[place][place] < _SINGULAR:
            return None
        for other in range(size):
            if other != place:
                factor = rows[other][place] / rows[place][place]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[place], strict=True)]
    return [rows[place][size] / rows[place][place] / scales[place] for place in range(size)]
