"""Traces as pictures: the processes' activity over time, how full the queue was, how old samples were."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate

from flagscale_perf.analysis.blocks import Block, HeatMap, Layer, Line, Note, Panel, Section, Series
from flagscale_perf.analysis.extremes import thinned
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.trace.analysis.lineage import Lineage
from flagscale_perf.trace.analysis.report import TraceReport
from flagscale_perf.trace.analysis.transfers import Transfers
from flagscale_perf.trace.records import Kind

BINS = 120
MOST_LINES, MOST_ROWS = 6, 64
COLOURS = ("blue", "orange", "green", "red", "sky", "yellow")
LAYERS = ("compute", "get", "put")


def pictures(found: TraceReport) -> list[Section]:
    """The sections that are mostly pictures; empty for text, which has no indexes."""
    transfers, lineage = found.traces.transfers, found.lineage
    if transfers is None or lineage is None or not (transfers.transfers or transfers.works):
        return []
    axis, colours = _Axis(transfers, found.began_ns), _colours(transfers)
    return [
        Section(
            "flow",
            "Flow",
            "Producers, queue and consumers over time",
            _flow(axis, transfers, lineage, colours),
        ),
        Section("processes-time", "Over time", "Processes over time", _processes(axis, transfers)),
        Section("age", "Age", "How old samples are when they are used", _ages(lineage)),
    ]


class _Axis:
    """Seconds since the job began to work, in bins of equal width. What was before, while its processes were
    starting, is not drawn.
    """

    def __init__(self, transfers: Transfers, began_ns: int | None) -> None:
        spans = [(one.start_ns, one.end_ns) for one in transfers.transfers]
        spans += [(one.start_ns, one.end_ns) for one in transfers.works.values()]
        self.begin_ns = min(start for start, _ in spans) if began_ns is None else began_ns
        self.end_ns = max(end for _, end in spans)
        self.width_ns = max(1, math.ceil((self.end_ns - self.begin_ns) / BINS))
        self.edges = [place * self.width_ns / NS_PER_S for place in range(BINS + 1)]
        self.middles = [(one + other) / 2 for one, other in zip(self.edges, self.edges[1:], strict=False)]
        self.span = (self.edges[0], self.edges[-1])

    def bin_of(self, at_ns: int) -> int:
        return min(BINS - 1, max(0, (at_ns - self.begin_ns) // self.width_ns))

    def shares(self, start_ns: int, took_ns: int) -> Iterator[tuple[int, float]]:
        """The bins that an interval covers, and how much of each."""
        at_ns, end_ns = max(start_ns, self.begin_ns), start_ns + took_ns
        while at_ns < end_ns:
            place = self.bin_of(at_ns)
            until_ns = min(end_ns, self.begin_ns + (place + 1) * self.width_ns)
            if until_ns <= at_ns:
                return
            yield place, (until_ns - at_ns) / self.width_ns
            at_ns = until_ns


def _colours(transfers: Transfers) -> dict[str, str]:
    """Colours of functions, the same in every picture; those with the most samples have one of their own."""
    samples: Counter[str] = Counter()
    for transfer in transfers.transfers:
        samples[transfers.function_of(transfer)] += transfer.rows
    return {name: COLOURS[place % len(COLOURS)] for place, (name, _) in enumerate(samples.most_common())}


def _flow(axis: _Axis, transfers: Transfers, lineage: Lineage, colours: Mapping[str, str]) -> list[Block]:
    rates: dict[tuple[Kind, str], list[float]] = defaultdict(lambda: [0.0] * BINS)
    for transfer in transfers.transfers:
        at_ns = transfer.end_ns if transfer.kind is Kind.PUT else transfer.start_ns
        if at_ns < axis.begin_ns:
            continue
        rates[transfer.kind, transfers.function_of(transfer)][axis.bin_of(at_ns)] += (
            transfer.rows * transfer.weight
        )
    per_s = NS_PER_S / axis.width_ns
    panels = []
    for kind, title in ((Kind.PUT, "Samples put"), (Kind.GET, "Samples got")):
        chosen = sorted((key for key in rates if key[0] is kind), key=lambda key: -sum(rates[key]))
        lines = [
            Line(name, axis.middles, [count * per_s for count in rates[kind, name]], colours[name], "area")
            for _, name in chosen[:MOST_LINES]
        ]
        if lines:
            panels.append(Panel(title, "1/s", lines, begins_at_zero=True, decimals=0))
    if lineage.last.depth:
        waiting = Line("waiting", axis.middles, _depth(axis, lineage.last.depth), "blue")
        title = f"Samples that wait for {lineage.last.name or 'a consumer'}"
        panels.insert(min(1, len(panels)), Panel(title, "", [waiting], begins_at_zero=True, decimals=0))
    if not panels:
        return []
    return [Series("flow-time", "Samples put, waiting and got", panels, "second", axis.span)]


def _depth(axis: _Axis, changes: Sequence[tuple[int, int]]) -> list[float | None]:
    """Number of samples waiting at the end of each bin."""
    ordered = sorted(changes)
    times, counts = [at_ns for at_ns, _ in ordered], [0, *accumulate(count for _, count in ordered)]
    ends = (axis.begin_ns + (place + 1) * axis.width_ns for place in range(BINS))
    return [float(max(0, counts[bisect_right(times, end_ns)])) for end_ns in ends]


def _processes(axis: _Axis, transfers: Transfers) -> list[Block]:
    """The share of its time that each process spends on compute, get and put."""
    busy: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0.0] * BINS)
    seen: dict[str, int] = {}
    for work in transfers.works.values():
        seen.setdefault(work.process, work.start_ns)
        at_ns = work.start_ns
        for layer, took_ns in (("get", work.get_ns), ("compute", work.compute_ns), ("put", work.put_ns)):
            for place, share in axis.shares(at_ns, took_ns or 0):
                busy[layer, work.process][place] += share
            at_ns += took_ns or 0
    for transfer in transfers.transfers:
        if (transfer.process, transfer.call) not in transfers.works:
            seen.setdefault(transfer.process, transfer.start_ns)
            for place, share in axis.shares(transfer.start_ns, transfer.end_ns - transfer.start_ns):
                busy[transfer.kind.name.lower(), transfer.process][place] += share
    rows = sorted(seen, key=lambda process: seen[process])[:MOST_ROWS]
    layers = [
        Layer(layer, "share", [[min(1.0, part) for part in busy[layer, process]] for process in rows])
        for layer in LAYERS
        if any(name == layer for name, _ in busy)
    ]
    left_out = [Note(f"and {len(seen) - MOST_ROWS} more processes")] if len(seen) > MOST_ROWS else []
    title = "Share of its time that a process computes, gets or puts"
    return [
        HeatMap("processes-busy", title, "process", rows, "second", axis.span, axis.edges, layers),
        *left_out,
    ]


def _ages(lineage: Lineage) -> list[Block]:
    """The age of the last consumer's samples, step by step."""
    steps = lineage.last.by_step
    if len(steps) < 2 or not any(lineage.last.age):
        return []
    ages = thinned([(float(step), age) for step, age, _ in steps], lambda row: row[1])
    oldest_ages = thinned([(float(step), float(age)) for step, _, age in steps], lambda row: row[1])
    mean = Line("mean", [at for at, _ in ages], [age for _, age in ages], "blue")
    at = [at for at, _ in oldest_ages]
    oldest = Line("oldest", at, [age for _, age in oldest_ages], "orange", "dashed")
    panel = Panel("Age of the samples, steps", "", [mean, oldest], begins_at_zero=True, decimals=1)
    title = f"How old the samples of {lineage.last.name} are"
    return [Series("age", title, [panel], "step", (float(steps[0][0]), float(steps[-1][0])))]
