"""Tables of sidecars: files beside a run file that are no run files themselves. Each file has one table,
believed as long as the file is not touched and what its rows depend on in the files before it is the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from zlib import crc32

from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import dump
from flagscale_perf.spine.records import RunHeader
from flagscale_perf.store.cache import Place, code, new_file
from flagscale_perf.store.part import whole_parts
from flagscale_perf.store.replaced import Replaced
from flagscale_perf.store.seal import below, parquet_writer, state_of
from flagscale_perf.store.tables import RUN, Columns, Tables, of_run, run_id_of

_ABOUT = "flagscale_perf"  # in a table's own metadata


class NoSidecar(PerfError):
    """A session has no such files."""


class SidecarReader(Protocol):
    """Rows from files of which each goes on where the one before ended; each can be read alone.

    Attributes:
        paths: from old to new.
    """

    paths: list[Path]

    def part(self, path: Path, before: str) -> SidecarReader:
        """One of the files; `before`: the `state` of the one before it, empty for the first."""

    def columns(self) -> Iterator[Columns]:
        """Some rows at a time: as many as are good for a group of rows in a file."""

    @property
    def is_whole(self) -> bool:
        """Whether all could be read that the file has."""

    @property
    def state(self) -> str:
        """What the next file's rows depend on, once all of this one were read."""

    def remarks(self) -> list[str]:
        """What has to be said of what was read."""


class Sidecar(NamedTuple):
    """What has files of its own beside a session's run files, and its table.

    Attributes:
        columns: the type hints of its rows.
        open: reads those of a session. Raises NoSidecar where it has none, PerfError where that cannot be
            told.
    """

    columns: Mapping[str, Any]
    open: Callable[[Any], SidecarReader]


class _About(NamedTuple):
    """What a table says of itself.

    Attributes:
        key: of what it was made; empty where it lacks what could not be read just then.
        state: what the rows of the next file depend on.
        remarks: on its file.
    """

    key: str
    state: str
    remarks: list[str]


class SidecarSealer:
    """Makes the tables of one kind, of one session."""

    def __init__(self, place: Place, header: RunHeader, kind: str, tables: Tables) -> None:
        self._place, self._kind, self._header = place, kind, header
        self._columns, self._schema = tables.sidecar_columns(kind), tables.sidecar_schemas[kind]

    def seal(self, reader: SidecarReader | None, replaced: Replaced) -> tuple[list[Path], list[str]]:
        """The tables of its files, made where they are not there, and what is missing in them; those of files
        that are gone go, too. `reader`: None without any file. Raises OSError where they cannot be written.
        """
        found, remarks, state = list[Path](), list[str](), ""
        if reader is not None:
            for path in reader.paths:
                key = self._key(path, state)
                name = f"kind={self._kind}/{below(self._header, path.stem)}-{key}.parquet"
                found.append(self._place.path / name)
                about = _about(found[-1], path, key) or self._write(name, key, reader.part(path, state))
                state = about.state
                remarks += [f"{path}: {each}" for each in about.remarks]
        replaced.by_run(self._place, self._kind, run_id_of(self._header).rpartition("-")[2], found)
        return found, remarks

    def _key(self, path: Path, before: str) -> str:
        """Another one for other rows, and always where the file's times do not prove that it is the same."""
        parts = [part for part in whole_parts([path]) if any(part.found)]
        made_of = [code(), str(self._schema), parts, before]
        return hashlib.sha256(repr(made_of).encode()).hexdigest()[:16] if parts else secrets.token_hex(8)

    def _write(self, name: str, key: str, part: SidecarReader) -> _About:
        import pyarrow

        whose = [pyarrow.scalar(text, "string") for text in of_run(self._header)]
        with new_file(self._place, name) as file, parquet_writer(file, self._schema) as writer:
            for columns in part.columns():
                arrays = [pyarrow.repeat(text, len(columns[0])) for text in whose]
                own = zip(self._columns[len(RUN) :], columns, strict=True)
                arrays += [column.array(values) for column, values in own]
                writer.write_batch(pyarrow.record_batch(arrays, schema=self._schema))
            about = _About(key if part.is_whole else "", part.state, part.remarks())
            text = dump(about)
            writer.add_key_value_metadata({_ABOUT: f"{crc32(text.encode()):08x}{text}"})
        return about


def _about(table: Path, path: Path, key: str) -> _About | None:
    """None where it is not there, or is none of ours."""
    import pyarrow.parquet

    with contextlib.suppress(OSError, ValueError, LookupError, TypeError, RecursionError):
        state_of(table, (path.stat().st_uid, os.geteuid()))
        metadata: Any = pyarrow.parquet.read_metadata(table).metadata
        sum_, text = metadata[_ABOUT.encode()][:8], metadata[_ABOUT.encode()][8:]
        about = _About(*json.loads(text))
        return about if about.key == key and int(sum_, 16) == crc32(text) else None
    return None
