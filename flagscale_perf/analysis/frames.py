"""Rows as tables of pandas: units in the names of their columns, NaN for what is not known.

Milliseconds stand for nanoseconds, GB for bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.packages import missing

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import Array

    from flagscale_perf.store.seal import Columns

ROWS = 4096  # are held as Python objects before they go into the columns
EXACT = 1 << 53  # the whole numbers up to it are exact in a column of floating point
NAN = float("nan")
TIME = "timestamp"
_UNITS = {"_ns": ("_ms", 1 / NS_PER_MS), "_bytes": ("_gb", 1e-9)}

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
    numpy = _numpy()
    columns, held = [_Column() for _ in names], []
    for row in rows:
        held.append(row)
        if len(held) == ROWS:
            _take(columns, held)
    _take(columns, held)
    return made_frame({name: column.content(numpy) for name, column in zip(names, columns, strict=True)})


def made_frame(columns: Mapping[str, Any]) -> DataFrame:
    """A table of arrays."""
    import pandas

    frame = pandas.DataFrame(columns, copy=False)
    if TIME in frame:
        frame[TIME] = pandas.to_datetime(frame[TIME])
    return frame


def column_of(table: Columns, name: str, field: Field, is_asked: Any = None) -> Any:
    """A field's column of a table as `frame_of` makes it of the values that are recorded, in memory for no
    more than it; `is_asked`: an array that tells of each row whether it is wanted, None for all.
    """
    import pyarrow

    numpy, end = _numpy(), 0
    pieces = _asked(table.column(name), is_asked)
    if pyarrow.types.is_string(table.type(name)):
        return pyarrow.chunked_array(pieces, table.type(name)).to_pandas()
    numbers = numpy.empty(table.rows if is_asked is None else int(is_asked.sum()))
    whole, is_whole = numbers.view("int64"), field.factor is None
    for piece in pieces:
        values = _values(numpy, piece)
        begin, end = end, end + len(values)
        if is_whole and (values.dtype.kind != "i" or (abs(values) > EXACT).any()):
            numbers[:begin], is_whole = whole[:begin], False
        numpy.multiply(values, field.factor or 1, out=(whole if is_whole else numbers)[begin:end])
    return whole if is_whole else numbers


def _asked(pieces: Iterable[Array], is_asked: Any) -> Iterator[Array]:
    import pyarrow

    end = 0
    for piece in pieces:
        begin, end = end, end + len(piece)
        yield piece if is_asked is None else piece.filter(pyarrow.array(is_asked[begin:end]))


def _values(numpy: Any, piece: Array) -> Any:
    """Whole numbers where all are known, and fit; else numbers, as Python rounds them."""
    import pyarrow

    if pyarrow.types.is_decimal(piece.type):
        try:
            piece = piece.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:
            return numpy.array([NAN if value is None else float(int(value)) for value in piece.to_pylist()])
    return piece.to_numpy(zero_copy_only=False)


def _numpy() -> Any:
    try:
        import numpy
        import pandas  # noqa: F401
    except ImportError as error:
        raise missing("pandas", error, "a table of a run", "use records() or report()") from None
    return numpy


def _take(columns: Sequence[_Column], held: list[Row]) -> None:
    for column, values in zip(columns, zip(*held, strict=True), strict=bool(held)):
        column.extend(values)
    held.clear()
