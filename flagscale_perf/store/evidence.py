"""Whether a run file is still written, from what can be known where it is read.

A lock that is free proves nothing by itself: there are file systems without locks, a copy has none, and
another machine's may not be seen here. A pid means something on its own machine, in its own namespace.
"""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path
from typing import BinaryIO

from flagscale_perf.spine import files
from flagscale_perf.spine.clock import NS_PER_S, Anchor, boot_id, monotonic_ns
from flagscale_perf.spine.measured import trainer_lives
from flagscale_perf.spine.records import RunEnd, RunHeader, kind_of, place_of
from flagscale_perf.spine.units import duration
from flagscale_perf.store.decoder import decode

GRACE_NS = 3 * NS_PER_S  # a writer that died is replaced within it, and one whose trainer died ends its file
HEARTBEAT_NS = 150 * NS_PER_S  # every writer records the clocks once a minute, whatever its run does
_MAX_LOOKS = 256
_END_BYTES, _END = 1 << 18, f'{{"kind":"{kind_of(RunEnd)}"'.encode()
# Of the files last looked at, by device and inode: the size, and when it was seen to have grown.
_looks: dict[tuple[int, int], tuple[int, int | None]] = {}


def is_written(path: Path, header: RunHeader) -> bool | None:
    """Whether a writer still has the run file with this header; None where that cannot be known. Raises
    OSError.

    True: it is locked, or was seen to grow (between two calls), or its trainer lives on this machine and
    there are no locks. False: it has its end, or none of these holds and its trainer was on this machine and
    is gone, with an earlier start of the machine at the latest.
    """
    with os.fdopen(files.open_regular(path), "rb") as file:
        found, is_locked = os.fstat(file.fileno()), files.is_locked(file.fileno())
        has_end = not is_locked and any(line.startswith(_END) for line in _last_lines(file))
    grew_ns = _ns_since_growth(found)
    if is_locked or has_end:
        return not has_end
    lives = trainer_lives(header, is_locked) if header.inode in (None, found.st_ino) else None
    if lives is False:
        if grew_ns < GRACE_NS:
            return True
        is_hidden = is_locked is None or header.boot_id != boot_id()
        return None if is_hidden and _is_fresh(found, header) else False
    if (lives and is_locked is None) or grew_ns < HEARTBEAT_NS:
        return True
    return None


def _is_fresh(found: os.stat_result, header: RunHeader) -> bool:
    """Whether a writer that cannot be seen may yet have it: it writes for others of its job, too, and of
    another boot it may be that of another machine of this name.
    """
    is_near = "job" not in header.facts and header.boot_id == boot_id()
    patience_ns = GRACE_NS if is_near else HEARTBEAT_NS
    return abs(time.time_ns() - found.st_mtime_ns) < patience_ns


def _ns_since_growth(found: os.stat_result) -> float:
    """Since the file was seen to grow; infinite where it was not."""
    file = found.st_dev, found.st_ino
    size, grown_ns = _looks.get(file, (found.st_size, None))
    if found.st_size > size:
        grown_ns = monotonic_ns()
    _looks.pop(file, None)  # so that the newest is last
    _looks[file] = found.st_size, grown_ns
    for oldest in list(_looks)[:-_MAX_LOOKS]:
        _looks.pop(oldest, None)  # another thread may have
    return float("inf") if grown_ns is None else monotonic_ns() - grown_ns


def last_record(path: Path, header: RunHeader) -> tuple[int, bool]:
    """Unix time of the last record, and whether that is the end. Raises OSError.

    The file's own time is used only where its end cannot be read, as copying a file may change that.
    """
    with os.fdopen(files.open_regular(path), "rb") as file:
        changed_ns, lines = os.fstat(file.fileno()).st_mtime_ns, _last_lines(file)
    for line in reversed(lines):
        with contextlib.suppress(ValueError):
            record = decode(line)
            place = place_of(record, header)
            if place is not None:
                mono_ns = place.start_ns + place.duration_ns
                wall_ns = Anchor(header.start_wall_ns, header.start_mono_ns).wall_of(mono_ns)
                return wall_ns, isinstance(record, RunEnd)
    return changed_ns, False


def _last_lines(file: BinaryIO) -> list[bytes]:
    file.seek(max(0, os.fstat(file.fileno()).st_size - _END_BYTES))
    return file.read().splitlines()


def not_known(last_wall_ns: int, now_wall_ns: int) -> str:
    """What to say now of a run of which the last record is from then (Unix times)."""
    age_s = max(0, now_wall_ns - last_wall_ns) / NS_PER_S
    return f"no end recorded, last record {duration(age_s)} ago; whether it still runs cannot be known here"
