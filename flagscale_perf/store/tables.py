"""Record types as tables of Arrow: names and types of the columns follow from the same type hints as the ring and
the codec. Integers are nanoseconds and bytes, as recorded; what is unknown is null.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.jsonl import MAX_NS, dump
from flagscale_perf.spine.packages import missing
from flagscale_perf.spine.records import TYPES, RunHeader, kind_of
from flagscale_perf.spine.slots import Wide
from flagscale_perf.store.decoder import records_of

if TYPE_CHECKING:
    import pyarrow

WIDE_DIGITS = 38  # of a decimal, the widest number that other programs read exactly
RUN = ("run_id", "session_id", "host")  # the first columns of each table: whose row it is
TIME = "at_wall_ns"  # Unix time of a record's start, in each table whose records have one
PENDING = 32  # chunks of a file, of 64 KiB of text each, before their values become columns

Columns = Sequence[Sequence[Any]]


def arrow(user: str) -> Any:
    """The module pyarrow. Raises PerfError without it; `user` is what needs it."""
    try:
        import pyarrow
    except ImportError as error:
        raise missing("pyarrow", error, user) from None
    return pyarrow


class Column(NamedTuple):
    """A column of a table.

    Attributes:
        name: with the unit.
        type: of Arrow.
        shown: from the recorded values to those of the column; None where they are the same.
    """

    name: str
    type: Any
    shown: Callable[[Sequence[Any]], Sequence[Any]] | None = None

    def array(self, values: Sequence[Any]) -> pyarrow.Array:
        """The column of these values."""
        import pyarrow

        shown = values if self.shown is None else self.shown(values)
        try:
            return pyarrow.array(shown, self.type)
        except UnicodeEncodeError:  # half of a pair, as a file's name may have it, is no text elsewhere
            return pyarrow.array(_printable(shown), self.type)


def columns_of(record_type: Any) -> list[Column]:
    """The columns of a type of records: whose they are, its fields, and when they were."""
    kind = kind_of(record_type)
    fields = [
        _column(f"{kind}_{name}" if name in RUN else name, hint)
        for name, hint in get_type_hints(record_type, include_extras=True).items()
    ]
    times = [] if TYPES[record_type].start is None else [_column(TIME, int)]
    return [*(_column(name, str) for name in RUN), *fields, *times]


def schema_of(record_type: Any) -> pyarrow.Schema:
    """The schema of a table of such records."""
    import pyarrow

    return pyarrow.schema([(column.name, column.type) for column in columns_of(record_type)])


def _column(name: str, hint: Any) -> Column:
    import pyarrow

    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _column(name, next(part for part in parts if part is not type(None)))
    if hint == Wide:
        return Column(name, pyarrow.decimal128(WIDE_DIGITS))
    if origin is Annotated:
        return _column(name, parts[0])
    plain = {int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_(), str: pyarrow.string()}
    if hint in plain:
        return Column(name, plain[hint])
    if origin in (list, tuple):
        return Column(name, pyarrow.list_(_column(name, parts[0]).type))
    return Column(name, pyarrow.string(), _as_json)  # free content


def _as_json(values: Sequence[Any]) -> Sequence[Any]:
    return [None if value is None else dump(value) for value in values]


def _printable(values: Sequence[Any]) -> Sequence[Any]:
    if isinstance(values, str):
        return values.encode(errors="backslashreplace").decode()
    return [value if value is None else _printable(value) for value in values]


class Maker:
    """Makes batches of rows from the records of one type of one run file.

    Attributes:
        kind: of the table.
        columns: of the table, those of `RUN` first.
    """

    def __init__(self, record_type: Any, header: RunHeader, run_id: str) -> None:
        self.kind, self._type, start = kind_of(record_type), record_type, TYPES[record_type].start
        self._of_run = [run_id, header.session_id, header.host or ""]
        self.columns = columns_of(record_type)
        self._start = None
        if start is not None:
            anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
            place = list(get_type_hints(record_type)).index(start)
            self._start = place, (None if start.endswith("_wall_ns") else anchor.wall_of)
        self._pending: list[Columns] = []

    @property
    def schema(self) -> pyarrow.Schema:
        """Of the table."""
        import pyarrow

        return pyarrow.schema([(column.name, column.type) for column in self.columns])

    def add(self, columns: Columns) -> Iterator[pyarrow.RecordBatch]:
        """Takes records; yields a batch where there are enough for one."""
        self._pending.append(columns)
        if len(self._pending) == PENDING:
            yield from self.rest()

    def rest(self) -> Iterator[pyarrow.RecordBatch]:
        """A batch of the records that were taken since the last one, if any."""
        import pyarrow

        if self._pending:
            columns = [list(chain.from_iterable(parts)) for parts in zip(*self._pending, strict=True)]
            self._pending.clear()
            values = [*([text] * len(columns[0]) for text in self._of_run), *columns]
            if self._start:
                values.append(self._times(columns))
            arrays = [column.array(each) for column, each in zip(self.columns, values, strict=True)]
            yield pyarrow.record_batch(arrays, schema=self.schema)

    def _times(self, columns: Columns) -> list[int | None]:
        assert self._start is not None
        place, wall_of = self._start
        if wall_of is None:
            return list(columns[place])
        times = map(wall_of, columns[place])
        return [at_ns if -MAX_NS < at_ns < MAX_NS else None for at_ns in times]
