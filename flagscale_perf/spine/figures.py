"""The type of a table of figures: what an instrument shows of its records, and where.

A figure is one row, in its instrument's table. Text columns, CSV, TensorBoard, W&B, Prometheus, summary,
report, `watch` and the tables of the docs are derived from that row.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from flagscale_perf.spine.errors import PerfError, did_you_mean
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.spine.session import Starts
from flagscale_perf.spine.units import UNKNOWN, number, printable

Value: TypeAlias = float | str | None
R = TypeVar("R")  # the record that a row is computed from
C = TypeVar("C")  # what is fixed for a run: its devices, its labels of time

SUSPECT_MARK = "!"
_WHERE = "docs/metrics.md lists them"
_LEAST_WIDTH = 10  # of a column that is chosen by its figure's key
_FORMULA = tuple("=+-@")  # how a text begins that a spreadsheet would compute


@dataclass(frozen=True)
class Unit:
    """The unit in which a figure is shown.

    Attributes:
        name: as in "12.5 ms"; empty for a count or a text. A "share" of 1 is shown in percent.
        divisor: from what is recorded to this unit.
        decimals: in text.
        base: from what is recorded to the SI base unit, which Prometheus asks for.
    """

    name: str = ""
    divisor: float = 1
    decimals: int = 0
    base: float = 1

    def of(self, recorded: Value) -> Value:
        """A recorded value in this unit, not rounded; an integer that needs no division stays one."""
        if recorded is None or isinstance(recorded, str) or self.divisor == 1:
            return recorded
        return recorded / self.divisor

    def text(self, value: Value) -> str:
        """A value in this unit, rounded, without the unit's name; "-" for None."""
        if value is None:
            return UNKNOWN
        if isinstance(value, str):
            return printable(value)
        return number(value * 100 if self == SHARE else value, self.decimals)


PLAIN = Unit()
SHARE = Unit("share", decimals=1)
MILLISECONDS = Unit("ms", 1e6, 1, base=1e9)  # recorded in nanoseconds
FINE_MILLISECONDS = replace(MILLISECONDS, decimals=3)
SECONDS = Unit("s", 1e9, 1, base=1e9)  # recorded in nanoseconds
GIGABYTES = Unit("GB", 1e9, 2)  # recorded in bytes
GIBIBYTES = Unit("GiB", 2**30, 2)  # recorded in bytes
TERAFLOPS = Unit("TFLOP/s", 1e12, 2)  # computed in FLOP/s
WATTS = Unit("W", 1000, base=1000)  # recorded in milliwatts
MEGAHERTZ = Unit("MHz", base=1e-6)
CELSIUS = Unit("°C")


@dataclass(frozen=True)
class Column:
    """A column of the text log.

    Attributes:
        width: with at least one space; a longer cell moves the rest of its line to the right.
        option: the option that asks for the column; None for always.
        unless: the option that leaves it out, to make room for others; None for none.
    """

    title: str
    width: int
    option: str | None = None
    unless: str | None = None

    def is_usual(self, options: object) -> bool:
        """Whether it is shown under these options where nobody chooses the columns."""
        is_asked_for = self.option is None or bool(getattr(options, self.option))
        return is_asked_for and not (self.unless and getattr(options, self.unless))


@dataclass(frozen=True)
class Gauge:
    """A value of a Prometheus metric, in the base unit.

    Attributes:
        name: without the prefix.
        help: one sentence.
        label: name and value, where several figures are one metric.
    """

    name: str
    help: str
    label: tuple[str, str] | None = None


@dataclass(frozen=True)
class OtlpMetric:
    """A metric of OTLP.

    Attributes:
        name: its name there.
        kind: "gauge", or since the session's start a "sum" of the rows' values or their "histogram".
        unit: as UCUM has it; empty where only the name says it.
        shown: what its values are in, where that is not the figure's unit.
    """

    name: str
    kind: Literal["gauge", "sum", "histogram"] = "gauge"
    unit: str = ""
    shown: Unit | None = None


@dataclass(frozen=True)
class Watched:
    """A line of `flagscale-perf watch`: the `place`-th from above."""

    place: int
    title: str


@dataclass(frozen=True)
class Figure(Generic[R, C]):
    """One row of a table.

    Attributes:
        key: its name in files: CSV, JSON, report, summary.
        label: its name in text.
        unit: what it is shown in.
        value: what is recorded or follows from it; None where it is not known.
        meaning: the formula, for the docs.
        column: of the text log where nobody chooses its columns; None for a figure that is not among them.
        flag: what stands at the end of a line of the text log where the value is true.
        in_csv: it is a column of the CSV files and a figure of the report's points.
        curve: the tag of its curve in TensorBoard and W&B; None for a figure that has none.
        gauge: in Prometheus.
        otlp: in OTLP; None for a figure that has none there.
        in_summary: it is in the rows of the summary's `iteration_logs`.
        summary_key: its name there, where the requirement fixes another one.
        watch: in `flagscale-perf watch`.
        limit: a value above it cannot be true: text marks it, curves and Prometheus leave it out, with every
            other figure of the row that has a limit.
    """

    key: str
    label: str
    unit: Unit
    value: Callable[[R, C], Value]
    meaning: str = ""
    column: Column | None = None
    flag: str = ""
    in_csv: bool = True
    curve: str | None = None
    gauge: Gauge | None = None
    in_summary: bool = False
    summary_key: str = ""
    watch: Watched | None = None
    limit: float | None = None
    otlp: OtlpMetric | None = None

    def as_column(self) -> Column:
        """Its column where it is chosen by its key, which then is the title of one that has no other."""
        title = f"{self.key}(%)" if self.unit == SHARE else self.key
        return self.column or Column(title, max(len(title) + 2, _LEAST_WIDTH))

    def is_suspect(self, value: Value) -> bool:
        """Whether the value is above the limit."""
        return self.limit is not None and isinstance(value, int | float) and value > self.limit

    def text(self, value: Value) -> str:
        """The value, in the figure's unit, as text; marked if it cannot be true."""
        return self.unit.text(value) + SUSPECT_MARK * self.is_suspect(value)


def start_figure(key: str) -> Figure[Any, Starts]:
    """When a record with a `start_ns` began."""
    began = Column("Start", 27)
    return Figure(
        key, "start", PLAIN, lambda it, by: by.label(it.start_ns), "when it began, local time", began
    )


@dataclass(frozen=True)
class Table(Generic[R, C]):
    """The figures of one instrument, in the order in which they are shown.

    Attributes:
        record: a record of this type is a row.
        step: its field that numbers the rows: the x axis of curves.
        time: its field with the row's Unix time in nanoseconds.
        context: what is fixed for a run, from its header.
        figures: the rows of the table.
        also_in_summary: another name -> the key of the figure that is in the summary's rows under it, too.
        also_curves: another tag -> the key of the figure whose curve is drawn under it, too.
    """

    record: type[R]
    step: str
    time: str
    context: Callable[[RunHeader], C]
    figures: tuple[Figure[R, C], ...]
    also_in_summary: Mapping[str, str] = field(default_factory=dict)
    also_curves: Mapping[str, str] = field(default_factory=dict)

    def csv_keys(self) -> list[str]:
        """The columns of a CSV file."""
        return [figure.key for figure in self.figures if figure.in_csv]

    def named(self, keys: Sequence[str]) -> list[Figure[R, C]]:
        """The figures with these keys, in this order. Raises PerfError for a key that no figure has."""
        by_key = {figure.key: figure for figure in self.figures}
        for key in keys:
            if key not in by_key:
                raise PerfError(f"{key!r} is not a figure{did_you_mean(key, by_key) or '; ' + _WHERE}")
        return [by_key[key] for key in keys]

    def watched(self) -> list[tuple[str, Figure[R, C]]]:
        """Titles and figures on the screen of `flagscale-perf watch`, from above."""
        shown = [(figure.watch, figure) for figure in self.figures if figure.watch]
        return [(watch.title, figure) for watch, figure in sorted(shown, key=lambda pair: pair[0].place)]


class Rows(Generic[R, C]):
    """The table over the records of one run."""

    def __init__(self, table: Table[R, C], header: RunHeader) -> None:
        self.table = table
        self._context = table.context(header)
        own = [(figure.summary_key or figure.key, figure) for figure in table.figures if figure.in_summary]
        others = table.also_in_summary
        self._in_summary = [*own, *zip(others, table.named(list(others.values())), strict=True)]
        self._tags = {
            figure.key: [
                figure.curve,
                *(tag for tag, key in table.also_curves.items() if key == figure.key),
            ]
            for figure in table.figures
            if figure.curve
        }

    def is_row(self, record: object) -> bool:
        """Whether the record has figures."""
        return isinstance(record, self.table.record)

    def value(self, figure: Figure[R, C], record: R) -> Value:
        """The record's value, in the figure's unit."""
        return figure.unit.of(figure.value(record, self._context))

    def numbers(self, figure: Figure[R, C], records: Iterable[R]) -> list[float | None]:
        """A figure over several records, None where it is not known."""
        values = (self.value(figure, record) for record in records)
        return [value if isinstance(value, int | float) else None for value in values]

    def csv(self, record: R) -> dict[str, Value]:
        """Key to value of the figures that are in CSV files and reports."""
        return {figure.key: self.value(figure, record) for figure in self.table.figures if figure.in_csv}

    def summary(self, record: R) -> dict[str, Value]:
        """A row of the summary."""
        return {name: self.value(figure, record) for name, figure in self._in_summary}

    def curves(self, record: R) -> dict[str, float]:
        """Tag to value; what is not known or cannot be true is left out: a curve has no room to say so."""
        return {
            tag: value
            for figure, recorded in self._believed(record)
            if isinstance(value := figure.unit.of(recorded), int | float)
            for tag in self._tags.get(figure.key, ())
        }

    def otlp(self, record: R) -> dict[OtlpMetric, float]:
        """OTLP's metrics to values, as `curves`."""
        return {
            metric: value
            for figure, recorded in self._believed(record)
            if (metric := figure.otlp)
            and isinstance(value := (metric.shown or figure.unit).of(recorded), int | float)
        }

    def gauges(self, record: R) -> Iterator[tuple[Gauge, float | None]]:
        """Prometheus' values, as they are recorded; None where one is not known or cannot be true."""
        for figure, recorded in self._believed(record):
            if figure.gauge:
                yield figure.gauge, recorded if isinstance(recorded, int | float) else None

    def _believed(self, record: R) -> Iterator[tuple[Figure[R, C], Value]]:
        figures = self.table.figures
        limited = [figure for figure in figures if figure.limit is not None]
        is_suspect = any(figure.is_suspect(self.value(figure, record)) for figure in limited)
        for figure in figures:
            is_left_out = is_suspect and figure.limit is not None
            yield figure, None if is_left_out else figure.value(record, self._context)


def csv_line(cells: Iterable[Any]) -> str:
    """A line of a CSV file: unknown is empty, true is 1, and no text is a formula or goes over two lines."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow([_cell(cell) for cell in cells])
    return line.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(_FORMULA) else text
