"""A run's records as tables of pandas: units in the names of their columns, NaN for what is not known.

Names and units are those of the figures: milliseconds for nanoseconds, GB for bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S, Anchor
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import EventRecord, Record, RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.spine.units import as_ms
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

ROWS = 4096  # are held as Python objects before they go into the columns
EXACT = 1 << 53  # the whole numbers up to it are exact in a column of floating point
NAN = float("nan")
_BYTES_PER_MB = 10**6
TIME = "timestamp"
_UNITS = {"_ns": ("_ms", 1 / NS_PER_MS), "_bytes": ("_gb", 1e-9)}
_EVENT = ("event", TIME, "elapsed_s", "iteration", "text")
_RANK = ("first_iteration", "iteration", "rank", "ranks", "hostname", "device", "stage")
_RANK_TIMES = ("iteration_ms", "work_ms", "wait_ms", "data_ms")
_RANK_HOST = ("run_delay_share", "cpu_stall_share", "memory_stall_share", "io_stall_share")
_RANK_HOST_MORE = ("host_memory_available_gb", "disk_mb_per_s", "network_mb_per_s")

Row = Sequence[Any]


class Field(NamedTuple):
    """A field of a record type as a column.

    Attributes:
        name: of the column.
        factor: from what is recorded.
    """

    name: str
    factor: float | None

    @classmethod
    def of(cls, name: str) -> Field:
        """By the unit in the field's name."""
        for ending, (shown, factor) in _UNITS.items():
            if name.endswith(ending):
                return cls(name.removesuffix(ending) + shown, factor)
        return cls(name, None)

    def value(self, recorded: Any) -> Any:
        """A recorded value in the column's unit; None stays None."""
        return recorded if recorded is None or self.factor is None else recorded * self.factor


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


class _Column:
    """Values as they come: 8 bytes each while they are numbers, whatever they are in a record."""

    def __init__(self) -> None:
        self._kinds: set[type] = set()
        self._is_exact = True
        self._values: Any = array("d")

    def extend(self, values: Sequence[Any]) -> None:
        self._kinds |= set(map(type, values))
        if str in self._kinds and isinstance(self._values, array):
            self._values = [None if value != value else value for value in self._values]
        if isinstance(self._values, list):
            self._values.extend(values)
            return
        self._is_exact &= all(abs(value) <= EXACT for value in values if value is not None)
        self._values.extend(NAN if value is None else value for value in values)

    def content(self, numpy: Any) -> Any:
        """The column as an array: of texts, booleans, whole numbers where all are known, or numbers."""
        if isinstance(self._values, list):
            return numpy.array([NAN if value is None else value for value in self._values], dtype=object)
        numbers = numpy.frombuffer(self._values) if self._values else numpy.empty(0)
        if self._kinds == {bool}:
            return numbers.astype(bool)
        return numbers.astype("int64") if self._kinds == {int} and self._is_exact else numbers.copy()


def frame_of(names: Sequence[str], rows: Iterable[Row]) -> DataFrame:
    """A table with these columns. Raises PerfError without pandas."""
    try:
        import numpy
        import pandas
    except ImportError as error:
        raise missing("pandas", error, "a table of a run", "use records() or report()") from None
    columns, held = [_Column() for _ in names], []
    for row in rows:
        held.append(row)
        if len(held) == ROWS:
            _take(columns, held)
    _take(columns, held)
    frame = pandas.DataFrame(
        {name: column.content(numpy) for name, column in zip(names, columns, strict=True)}, copy=False
    )
    if TIME in frame:
        frame[TIME] = pandas.to_datetime(frame[TIME])
    return frame


def _take(columns: Sequence[_Column], held: list[Row]) -> None:
    for column, values in zip(columns, zip(*held, strict=True), strict=bool(held)):
        column.extend(values)
    held.clear()
