"""A training's records as tables of pandas; names and units are those of the figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import TYPE_CHECKING, Any

from flagscale_perf.analysis.frames import TIME, Field, Row, column_of, frame_of, made_frame
from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import EventRecord, Record, RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.spine.units import as_ms
from flagscale_perf.store.seal import Columns
from flagscale_perf.training.analysis.every_rank import COLUMNS, EveryRank
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.host import HostStretch
from flagscale_perf.training.phases import PhaseJoin, share
from flagscale_perf.training.rank_records import RanksRecord
from flagscale_perf.training.ranks.totals import Place, RankTotals
from flagscale_perf.training.rates import as_gb, per_second
from flagscale_perf.training.records import OUTCOMES, IntervalRecord, PhaseRecord, StepRecord

if TYPE_CHECKING:
    from pandas import DataFrame

_BYTES_PER_MB = 10**6
_EVENT = ("event", TIME, "elapsed_s", "iteration", "text")
_RANK = ("first_iteration", "iteration", "rank", "ranks", "hostname", "device", "stage")
_RANK_TIMES = ("iteration_ms", "work_ms", "wait_ms", "data_ms")
_RANK_HOST = ("run_delay_share", "cpu_stall_share", "memory_stall_share", "io_stall_share")
_RANK_HOST_MORE = ("host_memory_available_gb", "disk_mb_per_s", "network_mb_per_s")

_STEP = tuple(map(Field.of, StepRecord._fields))
_PHASES = tuple(map(Field.of, PhaseRecord._fields))


def steps(records: Iterable[Record], header: RunHeader) -> DataFrame:
    """A row for each step: its fields; its start as seconds since the session's, its outcome as a word."""
    special: dict[str, Callable[[Any], Any]] = {
        "start_ms": lambda ms: ms / 1e3 - header.start_mono_ns / NS_PER_S,
        "outcome": lambda number: OUTCOMES.get(number, str(number)),
        "warmup": bool,
    }
    makers = [(each.value, special.get(each.name)) for each in _STEP]

    def rows() -> Iterator[Row]:
        for step in records:
            if isinstance(step, StepRecord):
                yield [
                    then(convert(value)) if then else convert(value)
                    for (convert, then), value in zip(makers, step, strict=True)
                ]

    names = ["elapsed_s" if each.name == "start_ms" else each.name for each in _STEP]
    return frame_of(names, rows())


def steps_of(table: Columns, header: RunHeader, first: int | None, last: int | None) -> DataFrame:
    """The same from the columns of the steps' table, of those between two iterations."""
    is_asked, limits = None, (-inf if first is None else first, inf if last is None else last)
    if limits != (-inf, inf):
        numbers = column_of(table, "iteration", Field("iteration", None))
        is_asked = (numbers >= limits[0]) & (numbers <= limits[1])
    columns = {
        field.name: column_of(table, name, field, is_asked)
        for name, field in zip(StepRecord._fields, _STEP, strict=True)
    }
    columns["start_ms"] = columns["start_ms"] / 1e3 - header.start_mono_ns / NS_PER_S
    columns["warmup"] = columns["warmup"].astype(bool)
    return made_frame({"elapsed_s" if name == "start_ms" else name: each for name, each in columns.items()})


def phases(records: Iterable[Record], facts: RunFacts) -> DataFrame:
    """A row for each step whose phases were measured."""

    def rows() -> Iterator[Row]:
        join = PhaseJoin(facts)
        for record in records:
            if isinstance(record, PhaseRecord):
                join.hold(record)
            elif isinstance(record, StepRecord) and (found := join.take(record)) is not None:
                own = [each.value(value) for each, value in zip(_PHASES, found.record, strict=True)]
                yield [*own, as_ms(found.bubble_ns), as_ms(found.imbalance_ns)]

    return frame_of([*(each.name for each in _PHASES), "bubble_ms", "imbalance_ms"], rows())


def intervals(records: Iterable[Record], header: RunHeader) -> DataFrame:
    """A row for each interval: its figures."""
    figures = Rows(TABLE, header)
    rows = (list(figures.csv(record).values()) for record in records if isinstance(record, IntervalRecord))
    return frame_of(TABLE.csv_keys(), rows)


def ranks(records: Iterable[Record], facts: RunFacts) -> DataFrame:
    """A row for each rank and stretch; of ranks that share an entry the first and how many they are."""

    def rows() -> Iterator[Row]:
        totals = RankTotals(facts.world_size)
        for record in records:
            totals.add(record)
            if isinstance(record, RanksRecord):
                yield from _stretch(record, totals.places, facts.world_size)

    return frame_of([*_RANK, *_RANK_TIMES, "memory_peak_gb", *_RANK_HOST, *_RANK_HOST_MORE], rows())


def every_rank(found: EveryRank, header: RunHeader, first: int | None, last: int | None) -> DataFrame:
    """A row for each block that a rank has sent, with the time at which rank 0's machine had it."""
    fields, labels = [*map(Field.of, COLUMNS)][1:], Labels(header)
    begin, end = (list(COLUMNS).index(name) for name in ("first_iteration", "iteration"))

    def rows() -> Iterator[Row]:
        for row in found.rows():
            if (first is None or row[end] >= first) and (last is None or row[begin] <= last):
                values = (each.value(value) for each, value in zip(fields, row[1:], strict=True))
                yield [labels.at(row[0]).isoformat(sep=" "), *values]

    frame = frame_of([TIME, *(each.name for each in fields)], rows())
    frame.attrs["remarks"] = found.remarks()
    return frame


def _stretch(record: RanksRecord, places: dict[int, Place], world_size: int) -> Iterator[Row]:
    times = zip(record.iteration_ns, record.work_ns, record.wait_ns, record.data_ns, strict=True)
    columns = zip(times, record.memory_peak_bytes, record.hosts(), strict=True)
    for entry, (of_entry, peak_bytes, host) in enumerate(columns):
        rank = entry * record.ranks_per_entry
        sharing = max(1, min(record.ranks_per_entry, world_size - rank))
        place = places.get(rank, (None, None, None))
        yield [
            record.first_iteration,
            record.iteration,
            rank,
            sharing,
            *place,
            *map(as_ms, of_entry),
            as_gb(peak_bytes),
            *_of_host(host),
        ]


def _of_host(host: HostStretch) -> Row:
    whole_ns = host.host_ns or 0
    stalls = host.run_delay_ns, host.cpu_stall_ns, host.memory_stall_ns, host.io_stall_ns
    moved = host.disk_bytes, host.network_bytes
    return [
        *(share(dur_ns, whole_ns) for dur_ns in stalls),
        as_gb(host.memory_available_bytes),
        *(per_second(size, whole_ns * _BYTES_PER_MB) for size in moved),
    ]


def events(records: Iterable[Record], header: RunHeader) -> DataFrame:
    """A row for each event."""
    labels, anchor = Labels(header), Anchor(header.start_wall_ns, header.start_mono_ns)
    rows = (
        [
            event.name,
            labels.at(anchor.wall_of(event.at_ns)).isoformat(sep=" "),
            (event.at_ns - header.start_mono_ns) / NS_PER_S,
            event.iteration,
            event.text,
        ]
        for event in records
        if isinstance(event, EventRecord)
    )
    return frame_of(_EVENT, rows)
