"""The interface of a sink, and what a sink is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol, TypeAlias

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.spine.figures import OtlpMetric, Table
from flagscale_perf.spine.files import AppendFile
from flagscale_perf.spine.records import Record, RunHeader

# Metric to the values of its labels to value, in base units; of a value that is not known there is none.
Series: TypeAlias = dict[str, dict[tuple[str, ...], float]]
PREFIX = "flagscale_perf_"  # of the metrics of an instrument that has no other


class Summary(Protocol):
    """A session's totals, as the summary file holds them."""

    def add(self, record: Record) -> None:
        """The next record of the session."""

    def text(self) -> str:
        """The summary so far, as the content of its file."""


class Metric(NamedTuple):
    """A metric of Prometheus.

    Attributes:
        name: without the prefix; its ending decides between counter, info and gauge.
        help: for the HELP line.
        labels: their names. The last one of a histogram is `le`: the bounds of its buckets, and "sum".
        divisor: from what is recorded to the base unit.
        prefix: what stands before its name.
    """

    name: str
    help: str
    labels: tuple[str, ...] = ()
    divisor: float = 1
    prefix: str = PREFIX


class Metrics(Protocol):
    """A session as Prometheus metrics."""

    table: Mapping[str, Metric]

    def add(self, record: Record) -> None:
        """The next record of the session."""

    def values(self) -> Series:
        """All metrics as they are now."""


@dataclass(frozen=True)
class Presentation:
    """How an instrument's records are shown: all that sinks know of it.

    Attributes:
        title: what begins a session in the text log.
        table: its figures.
        notes: lines below the heading of the text log, without "# ".
        summary: begins a summary of a session.
        metrics: begins the metrics of a session.
        views: what its run file is shown as; None for the usual ones, `sinks.registry.VIEWS`.
        of_ranks: figures of other ranks that a record has: for each its number, and OTLP's metrics to values.
    """

    title: str
    table: Table[Any, Any]
    notes: Callable[[RunHeader], Sequence[str]]
    summary: Callable[[RunHeader], Summary]
    metrics: Callable[[RunHeader], Metrics]
    views: Sequence[type[Sink]] | None = None
    of_ranks: Callable[[Record], Iterable[tuple[int, dict[OtlpMetric, float]]]] | None = None


@dataclass(frozen=True)
class SinkContext:
    """What every sink of a session is given.

    Attributes:
        header: of the session; a sink takes conventions, options and facts from it.
        directory: where the session's files are, absolute.
        emit: hands one line to the host's console, of the process with the pid given with it where there are
            several; called only where an option asks for it.
        presentation: of the instrument that records.
        complain: says one line on stderr of the processes that there are.
        resumed: another process of this session wrote before; its files are there already.
        may_serve: this process is the writer's own, so a port may be opened in it.
        emit_figures: hands numbers by tag to the host's W&B run; called only where an option asks for it.
    """

    header: RunHeader
    directory: Path
    emit: Callable[..., None]
    presentation: Presentation
    complain: Callable[[str], None] = lambda text: None
    resumed: bool = False
    may_serve: bool = False
    emit_figures: Callable[[dict[str, float]], None] = lambda figures: None

    @cached_property
    def options(self) -> PerfConfig:
        """The options in force, read from the header."""
        return PerfConfig.of(self.header.config)


class Sink(Protocol):
    """One destination. It is dumb: it takes records in order and knows no other sink.

    `write` keeps the record in memory and fails only on a bug, or where too much waits already; `flush`
    brings everything kept to its place. A `flush` that raises OSError keeps what it could not bring there,
    and is called again later.

    Attributes:
        name: for messages.
        cost: what is missing while it fails, and what the user can do; one phrase.
        rebuilds: wants the records of a session's earlier process again.
        option: of `PerfConfig`, which asks for it; None for a sink that needs no asking.
        file: what it makes, by its key in `spine.session.file_names`; `perf_log_format` may leave it out.
    """

    name: ClassVar[str]
    cost: ClassVar[str]
    rebuilds: ClassVar[bool] = False
    option: ClassVar[str | None] = None
    file: ClassVar[str] = ""

    def __init__(self, context: SinkContext) -> None: ...

    @classmethod
    def open(cls, context: SinkContext) -> Sink | None:
        """The sink; None if no option asks for it. Does no I/O. Raises ImportError for a missing package."""
        options = context.options
        is_asked_for = cls.option is None or getattr(options, cls.option)
        return cls(context) if is_asked_for and cls.file not in options.left_out else None

    def write(self, record: Record) -> None:
        """Takes one record; ignores those that it does not show."""

    def flush(self) -> None:
        """Brings everything to its place. Raises OSError."""

    def close(self) -> None:
        """Gives descriptors back; what is not flushed is lost. May be called again."""


class FileSink(Sink):
    """A sink of one file, which it appends to."""

    _file: AppendFile

    def flush(self) -> None:
        """Brings everything kept to the file. Raises OSError."""
        self._file.flush()

    def close(self) -> None:
        """Gives the descriptor back, and with it the file's lock."""
        self._file.close()
