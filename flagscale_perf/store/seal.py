"""Run files' tables as Parquet, beside them in `cache/kind=KIND/host=HOST/part=NAME.parquet`: made once,
believed only as long as the run file has the very bytes that they were made of.

Of a run that goes on, what is new gets tables of its own, and small ones become large ones. A file of ours
never changes: one of another name replaces it, so that whoever reads meanwhile finds the right rows or no
file.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
import string
import zlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain, groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from flagscale_perf.spine import files
from flagscale_perf.spine.jsonl import WholeLines, dump
from flagscale_perf.spine.peers.records import NameRecord
from flagscale_perf.spine.records import KINDS, RunHeader
from flagscale_perf.store.cache import Place, code, new_file, places, read
from flagscale_perf.store.decoder import Chunk, Joined, read_chunks
from flagscale_perf.store.part import Part, Reader
from flagscale_perf.store.replaced import Replaced
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.tables import RUN, Maker, Names, Tables, arrow, run_id_of

if TYPE_CHECKING:
    import pyarrow

ROW_GROUP_BYTES = 16 << 20  # of each kind, in memory
PIECE_ROWS = 1 << 16  # of a column: what a processor's cache has room for
_SMALL = 4  # a piece is written anew with what came behind it if it is at most so many times as long
_NO_HOST = "__HIVE_DEFAULT_PARTITION__"  # which other programs read as "not known"
_MAX_NAME = 200
_PLAIN = frozenset(string.ascii_letters + string.digits + "._~-")
_BELOW = re.compile(r"host=[\w.~%-]+/part=[\w.~%-]+", re.ASCII)


class Sealed(NamedTuple):
    """The tables of a run file.

    Attributes:
        place: where they are.
        run_id: whose rows they have.
        files: of each kind that it has rows of, in the order of these.
        rows: how many, of each kind.
        is_new: some have just been made.
    """

    place: Place
    run_id: str
    files: dict[str, list[Path]]
    rows: dict[str, int]
    is_new: bool

    @property
    def key(self) -> str:
        """Differs where the tables do."""
        return " ".join(path.name for paths in self.files.values() for path in paths)


class _Piece(NamedTuple):
    """The tables of a stretch of a run file."""

    name: str
    size_bytes: int
    tables: list[list[Any]]  # kind, rows, and by what the file is known again


class _List(NamedTuple):
    """What is kept of the tables of a run file."""

    made_of: list[Any]
    run_id: str
    below: str
    part: Part
    line_begin: int
    lines: int
    is_cut: bool  # its reading ended before the file did
    pieces: list[_Piece]

    @classmethod
    def of(cls, content: bytes) -> _List:
        """Raises many errors for what is none."""
        made = cls(*json.loads(content))
        made = made._replace(part=Part.of(made.part), pieces=[_Piece(*each) for each in made.pieces])
        if not all(_BELOW.fullmatch(f"{made.below}-{each.name}") for each in made.pieces):
            raise ValueError("no names of ours")
        return made

    def path(self, place: Place, piece: _Piece, kind: str) -> Path:
        """Of a table."""
        return place.path / f"kind={kind}/{self.below}-{piece.name}.parquet"

    def sealed(self, place: Place, is_new: bool) -> Sealed:
        """The tables."""
        made = Sealed(place, self.run_id, {}, {}, is_new)
        for piece in self.pieces:
            for kind, rows, _ in piece.tables:
                made.files.setdefault(kind, []).append(self.path(place, piece, kind))
                made.rows[kind] = made.rows.get(kind, 0) + rows
        return made


def seal(path: Path, tables: Tables, place: Place | None = None, replaced: Replaced | None = None) -> Sealed:
    """The tables of a run file, made where they are not there, or not those of the file as it is now; always
    at a `place` that is given. `replaced` removes those that they replace; without it they go at once. Raises
    PerfError where the file cannot be read and without pyarrow, OSError where they can be written nowhere.
    """
    arrow("a table of a run file")
    if replaced is None:
        with Replaced() as alone:
            return seal(path, tables, place, alone)
    if place is not None:
        run = RunFile(path)
        return _sealed(place, _made(place, run, tables, None), _below(run).rpartition("/")[2], replaced)
    found = {each: _found(each, path, tables) for each in places(path.parent)}
    for each, listed in found.items():
        if listed and (listed.is_cut or path.stat().st_size == listed.part.size_bytes):
            return listed.sealed(each, is_new=False)
    trouble = OSError("there is no place for its tables")
    for each, listed in found.items():
        try:
            made = _made(each, RunFile(path), tables, listed)
            _keep(each, path, made)
            return _sealed(each, made, f"part={_name(path)}", replaced)
        except OSError as error:
            trouble = error
    raise trouble


def _sealed(place: Place, made: _List, whose: str, replaced: Replaced) -> Sealed:
    sealed = made.sealed(place, is_new=True)
    replaced.by(place, whose, chain(*sealed.files.values()))
    return sealed


def beside(sealed: Sealed, kind: str, key: str) -> Path:
    """The path of a table of another kind, about the same run; `key` differs where its content may."""
    name = sealed.files["header"][0].name.removesuffix(".parquet")
    host = sealed.files["header"][0].parent.name
    return sealed.place.path / f"kind={kind}" / host / f"{name}-{key}.parquet"


def add_tables(place: Place, tables: Mapping[Path, pyarrow.Table], replaced: Replaced) -> None:
    """Writes tables of `beside` below a place, instead of those that were made of the same tables and others.
    Raises OSError.
    """
    for path, table in tables.items():
        with (
            new_file(place, str(path.relative_to(place.path))) as file,
            parquet_writer(file, table.schema) as writer,
        ):
            writer.write_table(table)
    for name, paths in groupby(tables, lambda path: path.stem):
        replaced.by(place, name.rpartition("-")[0], paths)


class Columns:
    """What is in tables of one kind, whatever takes the place of their files meanwhile. Columns of `RUN` come
    as dictionaries, as each has one value for all rows of a file.

    Attributes:
        rows: how many there are.
    """

    def __init__(self, paths: Sequence[Path], schema: pyarrow.Schema) -> None:
        """Raises FileNotFoundError where a file has just been replaced."""
        import pyarrow.parquet

        self._files = [pyarrow.parquet.ParquetFile(path, read_dictionary=RUN) for path in paths]
        self.rows = sum(each.metadata.num_rows for each in self._files)
        run = [pyarrow.field(name, pyarrow.dictionary("int32", "string")) for name in RUN]
        self._none = pyarrow.schema([*run, *list(schema)[len(RUN) :]]).empty_table()

    def table(self) -> pyarrow.Table:
        """All columns."""
        import pyarrow

        return pyarrow.concat_tables([self._none, *(each.read() for each in self._files)])

    def type(self, name: str) -> pyarrow.DataType:
        """Of a column's values."""
        return self._none.schema.field(name).type

    def column(self, name: str) -> Iterator[pyarrow.Array]:
        """A column in pieces of `PIECE_ROWS`."""
        for each in self._files:
            for batch in each.iter_batches(PIECE_ROWS, columns=[name], use_threads=False):
                yield batch.column(0)


def _name(path: Path) -> str:
    """Of a file's tables; no other file's begins with it and a hyphen: what begins so is replaced."""
    name = _quoted(path.name.removesuffix(".jsonl").removeprefix("perf_records_")).replace("-", "%2D")
    return name if len(name) <= _MAX_NAME else f"{name[:_MAX_NAME]}~{zlib.crc32(name.encode()):08x}"


def _quoted(text: str) -> str:
    """As part of a name, in the way of other programs that have partitions in directories."""
    data = text.encode(errors="backslashreplace")
    return "".join(chr(byte) if chr(byte) in _PLAIN else f"%{byte:02X}" for byte in data)


def below(header: RunHeader, name: str) -> str:
    """How tables are called, which tells runs apart where those of many are in one directory; `name`: of the
    file that they are made of.
    """
    host = _quoted(header.host)[:_MAX_NAME] if header.host else _NO_HOST
    return f"host={host}/part={name}-{run_id_of(header).rpartition('-')[2]}"


def _below(run: RunFile) -> str:
    return below(run.header, _name(run.path))


def _list(path: Path) -> str:
    return f"parts/{_name(path)}.json"


def state_of(path: Path, owners: Collection[int]) -> list[int]:
    """Size and time, by which a table is known again. Raises OSError, also for no file of these users."""
    found = path.lstat()
    if not stat.S_ISREG(found.st_mode) or found.st_uid not in owners:
        raise OSError(f"{path} is not ours")
    return [found.st_size, found.st_mtime_ns]


def _found(place: Place, path: Path, tables: Tables) -> _List | None:
    with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OSError, RecursionError):
        owners = path.stat().st_uid, os.geteuid()
        listed = _List.of(read(place, _list(path), owners) or b"")
        still = listed.part.still(path) if listed.made_of == _made_of(tables) else None
        are_there = all(
            kind in KINDS and state_of(listed.path(place, piece, kind), owners) == state
            for piece in listed.pieces
            for kind, _, state in piece.tables
        )
        if still is None or not are_there:
            return None
        if still != listed.part:  # so that its bytes need not be read again
            listed = listed._replace(part=still)
            with contextlib.suppress(OSError):
                _keep(place, path, listed)
        return listed
    return None


def _keep(place: Place, path: Path, listed: _List) -> None:
    with new_file(place, _list(path)) as file:
        file.write(dump(listed).encode())


def _made_of(tables: Tables) -> list[Any]:
    return [code(), tables.digest]


def _made(place: Place, run: RunFile, tables: Tables, before: _List | None) -> _List:
    """Makes the tables of all that is not in those of the file's beginning, which are `before`."""
    name, stay = secrets.token_hex(4), list(before.pieces) if before else []
    with ExitStack() as opened, os.fdopen(files.open_regular(run.path), "rb") as file:
        reader = Reader(file)
        rest = reader.go_on(before.part, before.line_begin) if before else b""
        lines = WholeLines(reader, before.lines if before else 0, rest)
        size_bytes, joined = os.fstat(file.fileno()).st_size - reader.size_bytes, list[_Piece]()
        while stay and stay[-1].size_bytes <= _SMALL * size_bytes:
            joined.insert(0, stay.pop())
            size_bytes += joined[0].size_bytes
        writers = _Writers(place, f"{_below(run)}-{name}", run.header, tables, opened)
        if before:
            writers.go_on(before.sealed(place, False), before._replace(pieces=joined).sealed(place, False))
        is_cut = writers.take(lines)
        part, line_begin = reader.part(), reader.size_bytes - len(lines.rest)
    whose = run_id_of(run.header), _below(run)
    made = _List(_made_of(tables), *whose, part, line_begin, lines.number, is_cut, stay)
    piece = _Piece(name, size_bytes, [])
    for kind, rows in writers.rows.items():
        piece.tables.append([kind, rows, state_of(made.path(place, piece, kind), (os.geteuid(),))])
    stay.append(piece)
    return made


class _Writers:
    """Writes tables, each from its first row on.

    Attributes:
        rows: of each kind.
    """

    def __init__(
        self, place: Place, below: str, header: RunHeader, tables: Tables, opened: ExitStack
    ) -> None:
        self._place, self._below, self._opened, self._names = place, below, opened, Names()
        self._makers = {each: Maker(each, tables, header, self._names) for each in KINDS.values()}
        self._writers: dict[str, Any] = {}
        self._held_bytes = Counter[str]()
        self._held = defaultdict[str, list["pyarrow.RecordBatch"]](list)
        self.rows: dict[str, int] = {}

    def go_on(self, before: Sealed, joined: Sealed) -> None:
        """Goes on behind tables, and begins with the rows of some of them. Raises OSError."""
        import pyarrow.parquet

        for path in before.files.get("name", ()):
            names = pyarrow.parquet.ParquetFile(path).read(["process", "number", "text"])
            self._names.learn([column.to_pylist() for column in names.columns])
        for kind, paths in joined.files.items():
            for path in paths:
                self._hold(kind, pyarrow.parquet.ParquetFile(path).iter_batches())

    def take(self, lines: WholeLines) -> bool:
        """All records of these lines. Returns whether their reading ended before they did."""
        is_cut = False
        for chunk in read_chunks(lines):
            is_cut |= isinstance(chunk, Joined)
            if isinstance(chunk, Chunk):
                self._add(chunk)
        for maker in self._makers.values():
            self._hold(maker.kind, maker.rest())
        for kind in list(self._held):
            self._write(kind)
        for writer in self._writers.values():
            writer.close()
        return is_cut

    def _add(self, chunk: Chunk) -> None:
        if NameRecord in chunk.columns:  # first: other records of the chunk have their numbers
            self._names.learn(chunk.columns[NameRecord])
        for record_type, columns in chunk.columns.items():
            maker = self._makers[record_type]
            self._hold(maker.kind, maker.add(columns))

    def _hold(self, kind: str, batches: Iterable[pyarrow.RecordBatch]) -> None:
        for batch in batches:
            self._held[kind].append(batch)
            self._held_bytes[kind] += batch.nbytes
            if self._held_bytes[kind] >= ROW_GROUP_BYTES:
                self._write(kind)

    def _write(self, kind: str) -> None:
        import pyarrow

        self._held_bytes[kind] = 0
        if held := self._held.pop(kind, []):
            table = pyarrow.Table.from_batches(held)
            if kind not in self._writers:
                name = f"kind={kind}/{self._below}.parquet"
                file = self._opened.enter_context(new_file(self._place, name))
                self._writers[kind] = parquet_writer(file, table.schema)
            self._writers[kind].write_table(table, row_group_size=len(table))
            self.rows[kind] = self.rows.get(kind, 0) + len(table)


def parquet_writer(file: BinaryIO, schema: pyarrow.Schema) -> Any:
    """A writer of tables: integers as their differences, which are small, all else by dictionaries."""
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
