"""Record types as tables of Arrow. Names and types of the columns follow from the type hints that make the
ring and the codec, too: integers in nanoseconds and bytes, as recorded; what is not known is null.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from functools import cached_property, reduce
from itertools import chain
from operator import or_
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints
from zlib import crc32

from flagscale_perf.spine import figures as shown_figures
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import MAX_NS, dump, encode
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import KINDS, TYPES, RunHeader, kind_of
from flagscale_perf.spine.slots import Wide
from flagscale_perf.store.decoder import records_of

if TYPE_CHECKING:
    import pyarrow

    from flagscale_perf.store.sidecars import Sidecar

WIDE_DIGITS = 38  # of a decimal: the widest number that other programs read exactly
RUN = ("run_id", "session_id", "host")  # the first columns of each table: whose row it is
TIME = "at_wall_ns"  # Unix time of a record's start, the last of a type's own columns where it has one
PENDING = 32  # chunks of a file, of 64 KiB of text each, before their values become columns

Columns = Sequence[Sequence[Any]]
Rows = Sequence[tuple[RunHeader, Mapping[str, Any]]]  # each with the header of its session


@dataclass(frozen=True)
class Tables:
    """What an instrument knows of its records as tables, beyond their type hints.

    Attributes:
        views: by name, a SELECT from tables, which have the names of their kinds.
        rows: by record type, what makes rows of a record whose lists belong together; the type that it
            returns has the columns.
        words: by record type and field, words for numbers.
        texts: by record type, the fields that are numbers of texts.
        figures: by record type, its figures, of which those that are numbers with a unit become columns.
        facts: by instrument, a type with what its headers' facts may be; single values are columns.
        runs: by instrument, what takes the figures of a run from its report's content; the type that it
            returns has the columns.
        sidecars: by table, what is no record and has files of its own beside a session's run files.
    """

    views: Mapping[str, str] = field(default_factory=dict)
    rows: Mapping[type, Callable[[Any], Iterable[Any]]] = field(default_factory=dict)
    words: Mapping[type, Mapping[str, Mapping[int, str]]] = field(default_factory=dict)
    texts: Mapping[type, Collection[str]] = field(default_factory=dict)
    figures: Mapping[type, shown_figures.Table[Any, Any]] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)
    runs: Mapping[str, Callable[[Any], Any]] = field(default_factory=dict)
    sidecars: Mapping[str, Sidecar] = field(default_factory=dict)

    def __or__(self, other: Tables) -> Tables:
        return Tables(*(getattr(self, each.name) | getattr(other, each.name) for each in fields(Tables)))

    @cached_property
    def schemas(self) -> dict[str, pyarrow.Schema]:
        """The schema of each kind's table."""
        return {kind: _schema(self.columns(type_)) for kind, type_ in KINDS.items()}

    def sidecar_columns(self, kind: str) -> list[Column]:
        """The columns of a table of `sidecars`."""
        hints = {name: str for name in RUN} | dict(self.sidecars[kind].columns)
        return [_column(name, hint) for name, hint in hints.items()]

    @cached_property
    def sidecar_schemas(self) -> dict[str, pyarrow.Schema]:
        """The schema of each table of `sidecars`."""
        return {kind: _schema(self.sidecar_columns(kind)) for kind in self.sidecars}

    @cached_property
    def digest(self) -> str:
        """Differs where the columns of any table do."""
        texts = [f"{kind} {schema}" for kind, schema in sorted(self.schemas.items())]
        return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:32]

    def columns(self, record_type: Any) -> list[Column]:
        """The columns of a type's table."""
        numbers = {*self.words.get(record_type, ()), *self.texts.get(record_type, ())}
        columns = [
            *(_column(name, str) for name in RUN),
            *(
                _column(name, str if name in numbers else hint, kind_of(record_type))
                for name, hint in _hints(self.row_type(record_type)).items()
                if not (record_type is RunHeader and name in RUN)
            ),
            *([] if TYPES[record_type].start is None else [_column(TIME, int)]),
            *(_column(each.key, float) for each in self.figures_of(record_type)),
        ]
        return [*columns, *self._facts(columns)] if record_type is RunHeader else columns

    def _facts(self, own: Iterable[Column]) -> Iterator[Column]:
        """The columns of a header's facts, which stand behind its own."""
        taken = {column.name for column in own}
        for name, hint in chain.from_iterable(_hints(each).items() for each in self.facts.values()):
            column = _column(f"facts_{name}" if name in taken else name, hint)
            if column.holds:
                yield column._replace(fact=name)

    def row_type(self, record_type: Any) -> Any:
        """The type whose fields are the columns."""
        make = self.rows.get(record_type)
        return record_type if make is None else get_args(get_type_hints(make)["return"])[0]

    @property
    def figure_types(self) -> list[Any]:
        """The types whose fields are the figures of a run."""
        return [get_type_hints(make)["return"] for make in self.runs.values()]

    def figures_of(self, record_type: Any) -> list[shown_figures.Figure[Any, Any]]:
        """The figures that are columns of the type's table."""
        table = self.figures.get(record_type)
        known = get_type_hints(record_type)
        return [
            each
            for each in (table.figures if table else ())
            if each.in_csv and each.unit != shown_figures.PLAIN and each.key not in known
        ]


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: with the unit.
        type: of Arrow.
        holds: the types of its values where these are single ones.
        is_json: its values are free or nested, and stand in it as text.
        fact: the name of the header's fact that it has.
    """

    name: str
    type: Any
    holds: tuple[type, ...] = ()
    is_json: bool = False
    fact: str = ""

    def array(self, values: Sequence[Any]) -> pyarrow.Array:
        """The column of these values."""
        import pyarrow

        shown = [None if value is None else dump(value) for value in values] if self.is_json else values
        try:
            return pyarrow.array(shown, self.type)
        except UnicodeEncodeError:  # half of a pair, as a file's name may have it: no text elsewhere
            return pyarrow.array(_printable(shown), self.type)


def has_arrow() -> bool:
    """Whether pyarrow is there."""
    try:
        arrow("")
    except PerfError:
        return False
    return True


def words_of(numbers: type[IntEnum]) -> dict[int, str]:
    """Words for the numbers of a field."""
    return {int(each): each.name.lower() for each in numbers}


def arrow(user: str) -> None:
    """Raises PerfError without pyarrow; `user` is what needs it."""
    try:
        import pyarrow.parquet  # noqa: F401
    except ImportError as error:
        raise missing("pyarrow", error, user) from None


def _hints(row_type: Any) -> dict[str, Any]:
    return get_type_hints(row_type, include_extras=True)


def _schema(columns: Iterable[Column]) -> pyarrow.Schema:
    import pyarrow

    return pyarrow.schema([(column.name, column.type) for column in columns])


def _column(name: str, hint: Any, kind: str = "") -> Column:
    """Of a field of this name in a record of this kind, which may have the name of a column of `RUN`."""
    import pyarrow

    if kind and name in RUN:
        name = f"{kind}_{name}"
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _column(name, next(part for part in parts if part is not type(None)))
    if hint == Wide:
        return Column(name, pyarrow.decimal128(WIDE_DIGITS))
    if origin is Annotated:
        return _column(name, parts[0])
    plain = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    if hint in plain:
        return Column(name, plain[hint], (int, float) if hint is float else (hint,))
    if origin in (list, tuple) and parts[0] in plain:
        return Column(name, pyarrow.list_(plain[parts[0]]))
    return Column(name, pyarrow.string(), is_json=True)


def _printable(values: Any) -> Any:
    if isinstance(values, str):
        return values.encode(errors="backslashreplace").decode()
    return [value if value is None else _printable(value) for value in values]


def run_id_of(header: RunHeader) -> str:
    """Tells a run file from any other but its copies, also from another machine's of the same second."""
    return f"{header.session_id}-{crc32(encode(header)):08x}"


def of_run(header: RunHeader) -> list[str | None]:
    """The values of the columns of `RUN`."""
    values = run_id_of(header), header.session_id, header.host
    return [value and _printable(value) for value in values]


def table_of(row_types: Sequence[Any], rows: Rows) -> pyarrow.Table:
    """A table of rows about sessions, which are no records; its columns are the fields of these types."""
    import pyarrow

    hints = reduce(or_, map(_hints, row_types))
    columns = [*(_column(name, str) for name in RUN), *(_column(name, hint) for name, hint in hints.items())]
    whole = [[*of_run(header), *(row.get(name) for name in hints)] for header, row in rows]
    values = zip(*whole, strict=True) if whole else ([] for _ in columns)
    arrays = [column.array(each) for column, each in zip(columns, values, strict=True)]
    return pyarrow.table(arrays, schema=_schema(columns))


class Names:
    """The texts behind the numbers of a file's processes, as far as it has been read."""

    def __init__(self) -> None:
        self._texts: dict[tuple[int, int], str] = {}

    def learn(self, columns: Columns) -> None:
        """Takes name records."""
        processes, numbers, texts = columns
        self._texts.update(zip(zip(processes, numbers, strict=True), texts, strict=True))

    def texts(self, processes: Sequence[int], numbers: Sequence[int | None]) -> list[str | None]:
        """The text of each process's number; None for 0, which is no text's."""
        return [
            self._texts.get((process, number), f"name {number}") if number else None
            for process, number in zip(processes, numbers, strict=True)
        ]


class Maker:
    """Makes batches of rows from the records of one type of a run file.

    Attributes:
        kind: of the table.
        schema: of the table.
    """

    def __init__(self, record_type: Any, tables: Tables, header: RunHeader, names: Names) -> None:
        self.kind, self._type, self._tables = kind_of(record_type), record_type, tables
        self._columns, self.schema = tables.columns(record_type), tables.schemas[self.kind]
        self._header, self._of_run, self._names = header, of_run(header), names
        self._fields = list(get_type_hints(record_type))
        self._pending: list[Columns] = []

    def add(self, columns: Columns) -> Iterator[pyarrow.RecordBatch]:
        """Takes records; yields a batch where there are enough for one."""
        texts = self._tables.texts.get(self._type, ())
        if texts:
            processes = columns[self._fields.index("process")]
            columns = [
                self._names.texts(processes, values) if name in texts else values
                for name, values in zip(self._fields, columns, strict=True)
            ]
        self._pending.append(columns)
        if len(self._pending) == PENDING:
            yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """A batch of the records that were taken since the last one, if they have rows."""
        import pyarrow

        if not self._pending:
            return
        columns = [list(chain.from_iterable(parts)) for parts in zip(*self._pending, strict=True)]
        self._pending.clear()
        if own := self._own(columns):
            whose = [pyarrow.repeat(pyarrow.scalar(text, "string"), len(own[0])) for text in self._of_run]
            arrays = [column.array(each) for column, each in zip(self._columns[len(RUN) :], own, strict=True)]
            yield pyarrow.record_batch([*whose, *arrays], schema=self.schema)

    def _own(self, columns: Columns) -> list[Sequence[Any]]:
        """The columns behind those of `RUN`; none without a row."""
        if make := self._tables.rows.get(self._type):
            rows = [row for record in records_of(self._type, columns) for row in make(record)]
            return list(zip(*rows, strict=True))
        words = self._tables.words.get(self._type, {})
        own: list[Sequence[Any]] = [
            [words[name].get(value, str(value)) for value in values] if name in words else values
            for name, values in zip(self._fields, columns, strict=True)
            if not (self._type is RunHeader and name in RUN)
        ]
        return [*own, *self._times(columns), *self._more(columns)]

    def _times(self, columns: Columns) -> list[Sequence[int | None]]:
        start = TYPES[self._type].start
        if start is None:
            return []
        marks = columns[self._fields.index(start)]
        if start.endswith("_wall_ns"):
            return [marks]
        times = map(Anchor(self._header.start_wall_ns, self._header.start_mono_ns).wall_of, marks)
        return [[at_ns if -MAX_NS < at_ns < MAX_NS else None for at_ns in times]]

    def _more(self, columns: Columns) -> list[Sequence[Any]]:
        """The columns of figures, and of a header's facts."""
        if table := self._tables.figures.get(self._type):
            rows, records = shown_figures.Rows(table, self._header), list(records_of(self._type, columns))
            return [
                [None if number is None else float(number) for number in rows.numbers(each, records)]
                for each in self._tables.figures_of(self._type)
            ]
        if self._type is RunHeader:
            facts = [
                record.facts if record.instrument in self._tables.facts else {}
                for record in records_of(RunHeader, columns)
            ]
            return [
                [_fact(column, each.get(column.fact)) for each in facts]
                for column in self._columns
                if column.fact
            ]
        return []


def _fact(column: Column, value: Any) -> Any:
    if type(value) not in column.holds:  # exact: True is no integer here
        return None
    if float in column.holds:
        return float(value)
    return value if not isinstance(value, int) or -MAX_NS <= value < MAX_NS else None
