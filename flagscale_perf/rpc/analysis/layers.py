"""The pattern of calls that is repeated, as layer by layer in a model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from flagscale_perf.rpc.records import CallRecord

MAX_PERIOD = 32  # calls of a layer
MIN_REPEATS = 3
FIRST = 1024  # calls searched for the pattern


class Step(NamedTuple):
    """One call of the layer.

    Attributes:
        call: itself.
        start_ns: from the layer's beginning.
    """

    call: CallRecord
    start_ns: int


@dataclass(frozen=True)
class Layer:
    """The repeated calls, represented by the repetition of median duration.

    Attributes:
        steps: its calls.
        repeats: how often they come.
        starts_known: else the calls are laid end to end.
    """

    steps: list[Step]
    repeats: int
    starts_known: bool

    @property
    def total_ns(self) -> int:
        """Time from the start of its first call to the end of the last."""
        last = self.steps[-1]
        return last.start_ns + last.call.total_ns

    def as_dict(self) -> dict[str, Any]:
        """Its content as JSON-ready data."""
        calls = [{"start_ns": step.start_ns} | step.call._asdict() for step in self.steps]
        return {"repeats": self.repeats, "total_ns": self.total_ns, "calls": calls}


def methods_of_a_layer(calls: Sequence[CallRecord]) -> list[str]:
    """The methods of the repeated pattern, regardless of bytes, which grow with each token; empty if there is
    none.
    """
    period, begins = _cycles([call.method for call in calls])
    return [call.method for call in calls[begins[0] : begins[0] + period]] if period else []


def cycles(calls: Sequence[CallRecord]) -> tuple[int, list[int]]:
    """The length of the pattern that covers the most calls, and where its repetitions begin; (0, []) if there
    is none. Of patterns with equal coverage the shortest is chosen.
    """
    return _cycles([(call.method, round(call.sent_bytes), round(call.received_bytes)) for call in calls])


def _cycles(kinds: Sequence[Any]) -> tuple[int, list[int]]:
    best: tuple[int, int, int] = (0, 0, 0)  # calls covered, -period, start
    for period in range(1, min(MAX_PERIOD, len(kinds) // MIN_REPEATS) + 1):
        start, run = _longest(kinds, period)
        if run // period + 1 >= MIN_REPEATS:
            best = max(best, (run + period - run % period, -period, -start))
    covered, period, start = best[0], -best[1], -best[2]
    return (period, list(range(start, start + covered, period))) if period else (0, [])


def _longest(kinds: Sequence[Any], period: int) -> tuple[int, int]:
    """Start and length of the longest stretch in which each call equals the one a period later."""
    best_start = best = start = 0
    for place in range(period, len(kinds) + 1):
        if place < len(kinds) and kinds[place] == kinds[place - period]:
            continue
        run = place - period - start
        if run > best:
            best_start, best = start, run
        start = place - period + 1
    return best_start, best


def find_layer(calls: Sequence[CallRecord], starts_known: bool) -> Layer | None:
    """None if no pattern is repeated."""
    period, begins = cycles(calls)
    if not period:
        return None
    found = [
        Layer(_laid_out(calls[begin : begin + period], starts_known), len(begins), starts_known)
        for begin in begins
    ]
    return sorted(found, key=attrgetter("total_ns"))[len(found) // 2]


def _laid_out(calls: Sequence[CallRecord], starts_known: bool) -> list[Step]:
    steps, end_ns = [], 0
    for call in calls:
        start_ns = call.start_ns - calls[0].start_ns if starts_known else end_ns
        steps.append(Step(call, start_ns))
        end_ns = start_ns + call.total_ns
    return steps
