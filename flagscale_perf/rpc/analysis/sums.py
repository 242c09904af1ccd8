"""Folds calls in columns into sums, samples and extremes, in bounded memory."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import Any

from flagscale_perf.rpc.analysis.columns import Columns, call_at, known, largest, least, total
from flagscale_perf.rpc.records import CallRecord, Status
from flagscale_perf.rpc.stages import FIELDS
from flagscale_perf.rpc.totals import CallTotals, Totals
from flagscale_perf.spine.chance import Choice

TOP = 5
SAMPLE = 1024
_SUMMED = [
    "status",
    "total_ns",
    *FIELDS,
    "sent_bytes",
    "received_bytes",
    "socket_sent_bytes",
    "socket_received_bytes",
    "shared_sent_bytes",
    "shared_received_bytes",
]


def add_columns(totals: Totals, columns: Columns) -> None:
    """Adds all calls of a batch."""
    statuses = columns["status"]
    totals.calls += len(statuses)
    totals.failed += len(statuses) - statuses.count(Status.OK)
    whole, parts = total(columns["total_ns"]), [total(columns[name]) for name in FIELDS]
    told = [*(known(columns[name]) for name in FIELDS), len(statuses)]
    for place, took_ns in enumerate([*parts, whole - sum(parts)]):
        totals.stages_ns[place] += took_ns
        totals.told[place] += told[place]
    totals.total_ns += whole
    totals.sent_bytes += total(columns["sent_bytes"])
    totals.received_bytes += total(columns["received_bytes"])
    totals.socket_bytes += total(columns["socket_sent_bytes"]) + total(columns["socket_received_bytes"])
    totals.shared_bytes += total(columns["shared_sent_bytes"]) + total(columns["shared_received_bytes"])


def add_batch(totals: CallTotals, columns: Columns) -> None:
    """Adds all calls of a batch, each to its method's sums, which add up to those of all calls."""
    for method, part in _by_method(columns).items():
        sums = Totals()
        add_columns(sums, part)
        totals.of(method).merge(sums)
        totals.overall.merge(sums)


def _by_method(columns: Columns) -> dict[str, Columns]:
    methods = columns["method"]
    places: dict[str, list[int]] = {method: [] for method in dict.fromkeys(methods)}
    if len(places) == 1:
        return {methods[0]: columns}
    for place, method in enumerate(methods):
        places[method].append(place)
    return {
        method: {name: _picked(columns[name], chosen) for name in _SUMMED}
        for method, chosen in places.items()
    }


def _picked(values: Sequence[Any], places: list[int]) -> Sequence[Any]:
    return itemgetter(*places)(values) if len(places) > 1 else [values[places[0]]]


class Sample(Choice):
    """A uniform sample of `SAMPLE` calls, or all if there are fewer; deterministic for the same calls."""

    def __init__(self) -> None:
        super().__init__(SAMPLE)
        self.calls: list[CallRecord] = []

    def add(self, columns: Columns) -> None:
        """Adds the next calls."""
        for number, place in self.places(len(columns["number"])):
            self.calls[place : place + 1] = [call_at(columns, number)]


@dataclass
class Tops:
    """The `TOP` calls that are largest by one figure, the largest first; of equal ones the earlier."""

    rows: list[tuple[float, int, CallRecord]] = field(default_factory=list)

    def add(self, columns: Columns, figures: Sequence[float]) -> None:
        """Adds the next calls and their figures."""
        numbers = columns["number"]
        places: Iterable[int] = range(len(figures))
        if len(self.rows) == TOP:
            last, number, _ = self.rows[-1]
            most = largest(figures)
            if most < last or (most == last and least(numbers) > -number):
                return
            places = [place for place in places if figures[place] >= last]
        best = heapq.nlargest(TOP, places, key=lambda place: (figures[place], -numbers[place]))
        new = [(figures[place], -numbers[place], call_at(columns, place)) for place in best]
        self.rows = heapq.nlargest(TOP, [*self.rows, *new], key=lambda row: row[:2])

    def calls(self) -> list[CallRecord]:
        """The calls kept, the greatest figure first."""
        return [call for *_, call in self.rows]
