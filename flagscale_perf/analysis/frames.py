"""Rows as tables of pandas: units in the names of their columns, NaN for what is not known.

Milliseconds stand for nanoseconds, GB for bytes.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.packages import missing

if TYPE_CHECKING:
    from pandas import DataFrame
    from pyarrow import ChunkedArray

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


def column_of(recorded: ChunkedArray, field: Field) -> Any:
    """A field's column as `frame_of` makes it of the values that are recorded."""
    import pyarrow

    numpy = _numpy()
    if pyarrow.types.is_decimal(recorded.type):
        try:
            recorded = recorded.cast(pyarrow.int64())
        except pyarrow.ArrowInvalid:  # each as Python rounds it
            numbers = [NAN if value is None else float(int(value)) for value in recorded.to_pylist()]
            return numpy.array(numbers)
    values = recorded.to_numpy()
    if field.factor is not None:
        return values * field.factor
    is_exact = values.dtype.kind != "i" or (abs(values) <= EXACT).all()
    return values if is_exact else values.astype(float)


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
