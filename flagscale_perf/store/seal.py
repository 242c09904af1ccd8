"""Run files' tables as Parquet, beside them in `cache/kind=KIND/host=HOST/part=NAME.parquet`: made once,
believed only as long as the run file has the very bytes that they were made of.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote

from flagscale_perf import __version__
from flagscale_perf.spine import files
from flagscale_perf.spine.jsonl import BadLine, dump
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import KINDS
from flagscale_perf.store.cache import Place, new_file, places, read
from flagscale_perf.store.decoder import Joined, read_chunks
from flagscale_perf.store.part import Part, Reader
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.tables import Maker, Names, Tables, arrow, run_id_of

if TYPE_CHECKING:
    import pyarrow

FORMAT = 1  # another one for other rows of the same columns
ROW_GROUP_BYTES = 16 << 20  # of each kind, in memory
_NO_HOST = "__HIVE_DEFAULT_PARTITION__"  # which other programs read as "not known"
_MAX_NAME = 200
_BELOW = re.compile(r"host=[\w.~%-]+/part=[\w.~%-]+\.parquet", re.ASCII)


class Sealed(NamedTuple):
    """The tables of a run file.

    Attributes:
        place: where they are.
        run_id: whose rows they have.
        files: of each kind that it has rows of.
        rows: how many, of each kind.
        is_new: they have just been made.
    """

    place: Place
    run_id: str
    files: dict[str, Path]
    rows: dict[str, int]
    is_new: bool


def seal(path: Path, tables: Tables, place: Place | None = None) -> Sealed:
    """The tables of a run file, made where they are not there, or not those of the file as it is now; always
    at a `place` that is given. Raises PerfError where the file cannot be read and without pyarrow, OSError
    where they can be written nowhere.
    """
    arrow("a table of a run file")
    if place is not None:
        return _made(place, RunFile(path), tables)
    found = _found(path, tables)
    if found is not None:
        return found
    run, trouble = RunFile(path), OSError("there is no place for its tables")
    for each in places(path):
        try:
            return _made(each, run, tables)
        except OSError as error:
            trouble = error
    raise trouble


def add_table(sealed: Sealed, run: RunFile, kind: str, table: pyarrow.Table) -> None:
    """Puts a table of another kind beside those of the run file, which goes with them. Raises OSError."""
    with new_file(sealed.place, _table(run, kind)) as file, _writer(file, table.schema) as writer:
        writer.write_table(table)


def has_table(sealed: Sealed, run: RunFile, kind: str) -> bool:
    """Whether there is one of this kind."""
    return (sealed.place.path / _table(run, kind)).is_file()


def read_table(paths: Sequence[Path], schema: pyarrow.Schema) -> pyarrow.Table:
    """What is in tables of one kind."""
    import pyarrow.parquet

    found = [pyarrow.parquet.ParquetFile(path).read() for path in paths]
    return pyarrow.concat_tables([schema.empty_table(), *found])


def _name(path: Path) -> str:
    return quote(path.name.removesuffix(".jsonl").removeprefix("perf_records_"), safe="")[:_MAX_NAME]


def _table(run: RunFile, kind: str) -> str:
    return f"kind={kind}/{_below(run)}"


def _below(run: RunFile) -> str:
    """Its name tells runs apart where the tables of many are in one directory."""
    host = quote(run.header.host, safe="")[:_MAX_NAME] if run.header.host else _NO_HOST
    which = run_id_of(run.header).rpartition("-")[2]
    return f"host={host}/part={_name(run.path)}-{which}.parquet"


def _list(path: Path) -> str:
    return f"parts/{_name(path)}.json"


def _state(path: Path, owners: Collection[int]) -> list[int]:
    """By which a table is known again. Raises OSError."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners:
        raise OSError(f"{path} is not ours")
    return [found.st_size, found.st_mtime_ns]


def _found(path: Path, tables: Tables) -> Sealed | None:
    for place in places(path):
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError):
            return _believed(place, path, tables)
    return None


def _believed(place: Place, path: Path, tables: Tables) -> Sealed:
    """Raises many errors where the tables are not there or not those of the file."""
    listed = json.loads(read(path, place, _list(path)) or "")
    part = Part(*listed["part"][:3], tuple(listed["part"][3]))
    found = path.stat()
    if listed["made_of"] != _made_of(tables) or not (listed["is_cut"] or found.st_size == part.size_bytes):
        raise ValueError("made of another part, or by another version")
    if (still := part.still(path)) is None:
        raise ValueError("the file has other bytes now")
    if _BELOW.fullmatch(listed["below"]) is None:
        raise ValueError("no name of ours")
    made, owners = Sealed(place, listed["run_id"], {}, {}, is_new=False), (found.st_uid, os.geteuid())
    for kind, rows, state in listed["tables"]:
        made.files[kind], made.rows[kind] = place.path / f"kind={kind}" / listed["below"], rows
        if kind not in KINDS or _state(made.files[kind], owners) != state:
            raise ValueError(f"the table {kind} is another file")
    if still != part:  # so that its bytes need not be read again
        with contextlib.suppress(OSError), new_file(place, _list(path)) as file:
            file.write(dump(listed | {"part": still}).encode())
    return made


def _made_of(tables: Tables) -> list[Any]:
    return [__version__, FORMAT, tables.digest]


def _made(place: Place, run: RunFile, tables: Tables) -> Sealed:
    with ExitStack() as opened:
        writers = _Writers(place, run, tables, opened)
        with os.fdopen(files.open_regular(run.path), "rb") as file:
            reader = _FromFront(file)
            is_cut = writers.take(reader)
            part = reader.part()
    owners = (os.geteuid(),)
    tables_made = {kind: place.path / _table(run, kind) for kind in writers.rows}
    _remove_others(place, run.path, tables_made.values())
    listed = {
        "run_id": run_id_of(run.header),
        "part": part,
        "is_cut": is_cut,
        "made_of": _made_of(tables),
        "below": _below(run),
        "tables": [[kind, writers.rows[kind], _state(path, owners)] for kind, path in tables_made.items()],
    }
    with new_file(place, _list(run.path)) as file:
        file.write(dump(listed).encode())
    return Sealed(place, run_id_of(run.header), tables_made, writers.rows, is_new=True)


def _remove_others(place: Place, path: Path, kept: Collection[Path]) -> None:
    """Removes what other programs would take for tables of the file as it is now."""
    for each in place.path.glob(f"kind=*/host=*/part={_name(path)}-*.parquet"):
        if each not in kept:
            each.unlink(missing_ok=True)


class _FromFront(Reader):
    def seek(self, _begin: int) -> None:
        """Begins anew."""
        self._file.seek(0)
        self.size_bytes = self.crc32 = 0


class _Writers:
    """Writes the tables of a run file, each from its first row on.

    Attributes:
        rows: of each kind.
    """

    def __init__(self, place: Place, run: RunFile, tables: Tables, opened: ExitStack) -> None:
        self._place, self._run, self._opened = place, run, opened
        self._names = Names()
        self._makers = {each: Maker(each, tables, run.header, self._names) for each in KINDS.values()}
        self._writers: dict[str, Any] = {}
        self._held: dict[str, list[pyarrow.RecordBatch]] = {}
        self.rows: dict[str, int] = {}

    def take(self, file: BinaryIO) -> bool:
        """All records of the file. Returns whether its reading ended before it did."""
        is_cut = False
        for chunk in read_chunks(file):
            is_cut |= isinstance(chunk, Joined)
            if isinstance(chunk, Joined | BadLine):
                continue
            if NameRecord in chunk.columns:
                self._names.learn(chunk.columns[NameRecord])
            for record_type, columns in chunk.columns.items():
                self._hold(record_type, self._makers[record_type].add(columns))
        for record_type, maker in self._makers.items():
            self._hold(record_type, maker.rest())
            self._write(maker)
        for writer in self._writers.values():
            writer.close()
        return is_cut

    def _hold(self, record_type: Any, batches: Iterator[pyarrow.RecordBatch]) -> None:
        maker = self._makers[record_type]
        held = self._held.setdefault(maker.kind, [])
        for batch in batches:
            held.append(batch)
            if sum(each.nbytes for each in held) >= ROW_GROUP_BYTES:
                self._write(maker)

    def _write(self, maker: Maker) -> None:
        import pyarrow

        held = self._held.pop(maker.kind, [])
        if not held:
            return
        if maker.kind not in self._writers:
            file = self._opened.enter_context(new_file(self._place, _table(self._run, maker.kind)))
            self._writers[maker.kind] = _writer(file, maker.schema)
        table = pyarrow.Table.from_batches(held)
        self._writers[maker.kind].write_table(table, row_group_size=len(table))
        self.rows[maker.kind] = self.rows.get(maker.kind, 0) + len(table)


def _writer(file: BinaryIO, schema: pyarrow.Schema) -> Any:
    """Integers are written as their differences, which are small; all else by dictionaries."""
    import pyarrow.parquet
    from pyarrow import types

    integers, others = list[str](), list[str]()
    for field in schema:
        is_list = types.is_list(field.type)
        of = field.type.value_type if is_list else field.type
        (integers if types.is_int64(of) else others).append(field.name + ".list.element" * is_list)
    return pyarrow.parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=others,
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
