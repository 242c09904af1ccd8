"""Parts of run files as Parquet, beside them in `cache/kind=KIND/host=HOST/part=NAME.parquet`: made once, believed
only as long as the run file has the very bytes they were made of.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple
from urllib.parse import quote
from zlib import crc32

from flagscale_perf.spine import files
from flagscale_perf.spine.jsonl import BadLine, dump
from flagscale_perf.spine.records import KINDS, RunHeader
from flagscale_perf.store.cache import Place, kept, new_file, places
from flagscale_perf.store.decoder import Joined, read_chunks
from flagscale_perf.store.part import Part, Reader
from flagscale_perf.store.run_file import RunFile
from flagscale_perf.store.tables import Maker, arrow

if TYPE_CHECKING:
    import pyarrow

FORMAT = 1
ROW_GROUP_BYTES = 16 << 20  # in memory, of each kind
_NO_HOST = "__HIVE_DEFAULT_PARTITION__"  # as other programs read "not known"
_MAX_NAME = 200


class Sealed(NamedTuple):
    """A run file's tables.

    Attributes:
        files: of each kind that it has.
        rows: of each kind.
        is_new: they have just been made.
    """

    files: dict[str, Path]
    rows: dict[str, int]
    is_new: bool


def seal(run: RunFile) -> Sealed:
    """The tables of a run file, made where they are not there or not those of the file as it is. Raises OSError
    where they cannot be kept, PerfError where the file cannot be read or without pyarrow.
    """
    found = _found(run)
    return found if found is not None else _made(run)


def run_id_of(header: RunHeader) -> str:
    """Tells a run file's session from every other, also from one of another machine that began in its second."""
    identity = header.host, header.boot_id, header.pid, header.start_wall_ns, header.start_mono_ns
    return f"{header.session_id}-{crc32(repr(identity).encode(errors='backslashreplace')):08x}"


def _schemas(run: RunFile) -> str:
    """Changes with the columns of any kind, so that no table of another version is taken."""
    texts = [f"{kind} {maker.schema}" for kind, maker in _makers(run).items()]
    return f"{FORMAT}-{hashlib.sha256('|'.join(texts).encode()).hexdigest()[:32]}"


def _makers(run: RunFile) -> dict[str, Maker]:
    run_id = run_id_of(run.header)
    return {kind: Maker(record_type, run.header, run_id) for kind, record_type in KINDS.items()}


def _name(run: RunFile) -> str:
    return quote(run.path.name.removesuffix(".jsonl").removeprefix("perf_records_"), safe="")[:_MAX_NAME]


def _table(run: RunFile, kind: str) -> str:
    host = quote(run.header.host or _NO_HOST, safe="")[:_MAX_NAME]
    return f"kind={kind}/host={host}/part={_name(run)}.parquet"


def _list(run: RunFile) -> str:
    return f"parts/{_name(run)}.json"


def _state(path: Path) -> list[int]:
    """By which a table that we wrote is known again. Raises OSError."""
    found = path.lstat()
    return [found.st_ino, found.st_size, found.st_mtime_ns]


def _found(run: RunFile) -> Sealed | None:
    for content in kept(run.path, _list(run)):
        with contextlib.suppress(ValueError, LookupError, TypeError, AttributeError, OSError):
            listed = json.loads(content)
            part = Part(*listed["part"][:3], tuple(listed["part"][3]))
            tables = {kind: Path(listed["place"], _table(run, kind)) for kind in listed["tables"]}
            if (
                listed["schemas"] == _schemas(run)
                and (listed["is_whole"] or run.path.stat().st_size == part.size_bytes)
                and part.still(run.path)
                and all(_state(tables[kind]) == own[0] for kind, own in listed["tables"].items())
            ):
                return Sealed(tables, {kind: own[1] for kind, own in listed["tables"].items()}, False)
    return None


def _made(run: RunFile) -> Sealed:
    arrow("a table of a run file")
    trouble = OSError("there is no place for it")
    for place in places(run.path):
        try:
            return _made_in(place, run)
        except OSError as error:
            trouble = error
    raise trouble


def _made_in(place: Place, run: RunFile) -> Sealed:
    with ExitStack() as opened:
        writers = _Writers(place, run, opened)
        with os.fdopen(files.open_regular(run.path), "rb") as file:
            reader = _Rewound(file)
            is_whole = writers.take(reader)
            part = reader.part()
    tables = {kind: place.path / _table(run, kind) for kind in writers.rows}
    listed = {
        "part": part,
        "is_whole": is_whole,
        "schemas": _schemas(run),
        "place": str(place.path),
        "tables": {kind: [_state(path), writers.rows[kind]] for kind, path in tables.items()},
    }
    _remove_others(place, run, tables)
    with new_file(place, _list(run)) as file:
        file.write(dump(listed).encode())
    return Sealed(tables, writers.rows, True)


def _remove_others(place: Place, run: RunFile, tables: Mapping[str, Path]) -> None:
    for path in place.path.glob(f"kind=*/host=*/part={_name(run)}.parquet"):
        if path not in tables.values():
            path.unlink(missing_ok=True)


class _Rewound(Reader):
    def seek(self, _place: int) -> None:
        self._file.seek(0)
        self.size_bytes = self.crc32 = 0


class _Writers:
    """Writes the tables of a run file, each as soon as there is a row for it.

    Attributes:
        rows: of each kind.
    """

    def __init__(self, place: Place, run: RunFile, opened: ExitStack) -> None:
        self._place, self._run, self._opened = place, run, opened
        self._makers = {maker._type: maker for maker in _makers(run).values()}
        self._writers: dict[str, Any] = {}
        self._held: dict[str, list[pyarrow.RecordBatch]] = {}
        self.rows: dict[str, int] = {}

    def take(self, file: BinaryIO) -> bool:
        """All records of the file; whether its reading ended before it did."""
        for chunk in read_chunks(file):
            if isinstance(chunk, Joined):
                break
            if not isinstance(chunk, BadLine):
                for record_type, columns in chunk.columns.items():
                    maker = self._makers[record_type]
                    self._hold(maker, maker.add(columns))
        else:
            chunk = None
        for maker in self._makers.values():
            self._hold(maker, maker.rest())
            self._write(maker, least=0)
        for writer in self._writers.values():
            writer.close()
        return chunk is not None

    def _hold(self, maker: Maker, batches: Iterator[pyarrow.RecordBatch]) -> None:
        for batch in batches:
            self._held.setdefault(maker.kind, []).append(batch)
            self._write(maker, least=ROW_GROUP_BYTES)

    def _write(self, maker: Maker, least: int) -> None:
        import pyarrow

        held = self._held.get(maker.kind, [])
        if not held or sum(batch.nbytes for batch in held) < least:
            return
        if maker.kind not in self._writers:
            file = self._opened.enter_context(new_file(self._place, _table(self._run, maker.kind)))
            self._writers[maker.kind] = _writer(file, maker.schema)
        table = pyarrow.Table.from_batches(held)
        self._writers[maker.kind].write_table(table, row_group_size=len(table))
        self.rows[maker.kind] = self.rows.get(maker.kind, 0) + len(table)
        held.clear()


def _writer(file: BinaryIO, schema: pyarrow.Schema) -> Any:
    import pyarrow.parquet
    import pyarrow.types as types

    paths = {
        field.name: f"{field.name}.list.element" * types.is_list(field.type) or field.name for field in schema
    }
    integers = [
        paths[field.name]
        for field in schema
        if types.is_int64(field.type.value_type if types.is_list(field.type) else field.type)
    ]
    return pyarrow.parquet.ParquetWriter(
        file,
        schema,
        compression="zstd",
        use_dictionary=[path for path in paths.values() if path not in integers],
        column_encoding=dict.fromkeys(integers, "DELTA_BINARY_PACKED"),
    )
