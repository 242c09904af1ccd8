"""A job's trace with traces of other programs beside it, in one archive that Perfetto opens: each as it is,
with a manifest that says of which machine it is and how its clock lies to the job's.

The manifest: https://perfetto.dev/docs/reference/perfetto-manifest
"""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any, NamedTuple

from flagscale_perf.analysis.drawing import Drawing
from flagscale_perf.report import pftrace
from flagscale_perf.spine.errors import PerfError

OWN, MANIFEST = "job.pftrace", "perfetto_manifest.json"
# Perfetto passes over what lies in such a directory; in another one it would refuse the archive for it.
UNREAD = ".not_drawn"
_LOOKED_AT, _PIECE = 1 << 18, 1 << 20  # bytes
_UNIX_US = 1e15  # the year 2001, in microseconds
_BASE = re.compile(rb'"baseTimeNanoseconds"\s*:\s*(\d+)')
_HOST = re.compile(rb'"host_name"\s*:\s*"([^"\\]+)"')
_TS = re.compile(rb'"ts"\s*:\s*(\d+(?:\.\d*)?(?:[eE]\+?\d+)?)')
_LINES = (b'"time_us"', b'"resourceSpans"')  # torchtitan's records; OTLP, as vLLM and SGLang send it


class Foreign(NamedTuple):
    """A trace of another program.

    Attributes:
        path: of the file.
        host: machine that it is of; None for that of the job.
        base_ns: Unix time at which its clock stands at 0; None where it says itself what its clock is.
        is_drawn: Perfetto reads this format.
    """

    path: Path
    host: str | None
    base_ns: int | None
    is_drawn: bool


def foreign_of(path: Path, host: str | None) -> Foreign:
    """What is in that file. Raises PerfError where its times cannot be brought to the job's."""
    try:
        head, tail = _ends(path)
        if head.startswith(b"SQLite format 3\0"):
            return Foreign(path, host, _nsys_base(path), False)
    except (OSError, EOFError, sqlite3.Error) as error:
        raise PerfError(f"--with {path}: cannot be read ({error})") from None
    if head[:1] == b"\n" and head.lstrip()[:1] not in (b"{", b"["):
        return Foreign(path, host, None, True)  # Perfetto's protobuf has its clocks
    found = _HOST.search(head)
    said = found[1].decode(errors="replace") if found else None
    is_events = b'"traceEvents"' in head or head.lstrip().startswith(b"[")
    base_ns = _base_of_events(head, tail) if is_events else _base_of_lines(head)
    if base_ns is not None:
        return Foreign(path, host or said, base_ns, is_events)
    raise PerfError(
        f"--with {path}: nothing in it says what its times count from; it can be a trace of PyTorch's"
        " profiler (baseTimeNanoseconds), Chrome's JSON with Unix times, Perfetto's protobuf, nsys export -t"
        " sqlite, torchtitan's JSONL, or OTLP as JSON"
    )


def _base_of_events(head: bytes, tail: bytes) -> int | None:
    """Of Chrome's JSON."""
    if found := _BASE.search(head) or _BASE.search(tail):
        return int(found[1])
    return 0 if any(float(at) >= _UNIX_US for at in _TS.findall(head)) else None


def _base_of_lines(head: bytes) -> int | None:
    """Of JSON that Perfetto does not read; what is known of it has Unix times."""
    return 0 if any(sign in head for sign in _LINES) else None


def _ends(path: Path) -> tuple[bytes, bytes]:
    with path.open("rb") as file:
        head = file.read(_LOOKED_AT)
        if head.startswith(b"\x1f\x8b"):
            with gzip.open(path) as inner:
                return inner.read(_LOOKED_AT), b""
        file.seek(max(0, path.stat().st_size - _LOOKED_AT))
        return head, file.read()


def _nsys_base(path: Path) -> int:
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as found:
        row = found.execute("select utcEpochNs from TARGET_INFO_SESSION_START_TIME").fetchone()
    if row is None:
        raise sqlite3.DataError("TARGET_INFO_SESSION_START_TIME is empty")
    return int(row[0])


def manifest_of(drawing: Drawing, beside: Sequence[Foreign]) -> dict[str, Any]:
    """How the files lie to one another. An offset is what a file's clock has to gain to be the monotonic one
    of the job.
    """
    header = drawing.whole.lead.header
    machine = str(header.host or "job")
    files: list[dict[str, Any]] = [{"path": OWN, "machine": {"name": machine}}]
    names = _names(beside)
    for name, each in zip(names, beside, strict=True):
        entry: dict[str, Any] = {"path": name, "machine": {"name": each.host or machine}}
        if each.base_ns is not None:
            offset_ns = each.base_ns - (drawing.wall_ns - drawing.zero_ns)
            entry["clocks"] = {"sync_to": {"file": OWN, "clock": "MONOTONIC"}, "offset_ns": offset_ns}
        files.append(entry)
    return {
        "perfetto_manifest": {
            "version": 1,
            "trace_time": {"clock": "MONOTONIC", "file": OWN},
            "files": files,
            "attributes": {"flagscale_perf.session": header.session_id},
        }
    }


def _names(beside: Sequence[Foreign]) -> list[str]:
    """Names of the members: those of the files, each one's own, and none that Perfetto would pass over."""
    made: list[str] = []
    for each in beside:
        name = each.path.name.lstrip(".") or "trace"
        name = name if each.is_drawn else f"{UNREAD}/{name}"
        while name in (OWN, MANIFEST, *made):
            first, _, last = name.rpartition("/")
            name = f"{first}/_{last}" if first else f"_{last}"
        made.append(name)
    return made


def pieces(drawing: Drawing, beside: Sequence[Foreign]) -> Iterator[bytes]:
    """The bytes of the archive, made while they are read. Raises OSError."""
    manifest = json.dumps(manifest_of(drawing, beside), indent=1).encode()
    yield from _member(MANIFEST, len(manifest), [manifest])
    with tempfile.TemporaryFile() as file:  # its length has to be known before
        file.writelines(pftrace.pieces(drawing))
        size_bytes = file.tell()
        file.seek(0)
        yield from _member(OWN, size_bytes, _read(file))
    for name, each in zip(_names(beside), beside, strict=True):
        with each.path.open("rb") as file:
            yield from _member(name, each.path.stat().st_size, _read(file))
    yield bytes(2 * tarfile.BLOCKSIZE)


def _member(name: str, size_bytes: int, content: Iterator[bytes] | list[bytes]) -> Iterator[bytes]:
    info = tarfile.TarInfo(name)
    info.size = size_bytes
    yield info.tobuf(tarfile.PAX_FORMAT)
    left = size_bytes
    for piece in content:
        yield piece[:left]  # of a file that still grows no more than was announced
        left -= len(piece[:left])
    yield bytes(left + -size_bytes % tarfile.BLOCKSIZE)


def _read(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece
