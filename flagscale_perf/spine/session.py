"""Names of a session's files, and the times of its labels."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import lru_cache
from pathlib import Path

from flagscale_perf.spine.clock import NS_PER_S, Anchor
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import TICK_NS, open_regular
from flagscale_perf.spine.jsonl import MAX_LINE_BYTES, recall
from flagscale_perf.spine.records import RunHeader

REALTIME_FILE = "perf_realtime.log"
CACHE = "cache"  # a directory beside run files, of what was made of them and can be made again
COLUMNS_PREFIX, COLUMNS_SUFFIX = "perf_calls_", ".npz"  # beside a run file, of which a record names it
_TIME_FORMAT = "%Y%m%d_%H%M%S"
_TIME_LENGTH = len("20240129_103000")
_ID = r"(\d{8}_\d{6}(?:_[1-9]\d{0,3})?)"
_RECORDS = re.compile(rf"perf_records_{_ID}\.jsonl", re.ASCII)
_RANKS = re.compile(r"perf_ranks_(0|[1-9]\d*)\.(0|[1-9]\d{0,8})\.jsonl", re.ASCII)
_VIEWS = re.compile(
    rf"perf_(?:summary_{_ID}\.json|metrics_{_ID}(?:\.\d+)?\.log|intervals_{_ID}\.csv|report_{_ID}\.html)",
    re.ASCII,
)


def new_session_id(start: datetime, attempt: int) -> str:
    """`20240129_103000`, and `20240129_103000_2` for the second attempt to claim that second."""
    return start.strftime(_TIME_FORMAT) + (f"_{attempt}" if attempt > 1 else "")


def file_names(session_id: str) -> dict[str, str]:
    """Names of a session's files in the log directory: "records", "metrics", "summary", "realtime"."""
    return {
        "records": f"perf_records_{session_id}.jsonl",
        "metrics": f"perf_metrics_{session_id}.log",
        "summary": f"perf_summary_{session_id}.json",
        "realtime": REALTIME_FILE,
    }


def intervals_name(session_id: str) -> str:
    """The table of the session's intervals, there with `--perf-csv` only."""
    return f"perf_intervals_{session_id}.csv"


def page_name(session_id: str) -> str:
    """The report of the session as a page, which run.py has written when the job has ended."""
    return f"perf_report_{session_id}.html"


def capture_request_name(start_wall_ns: int) -> str:
    """Name of the file by which `flagscale-perf capture` asks the run that began then for a capture; its
    writer removes it."""
    return f"perf_capture_{start_wall_ns}.json"


def rotated_name(session_id: str, part: int) -> str:
    """An older part of the text log; part 1 is the newest of them."""
    return f"perf_metrics_{session_id}.{part}.log"


def ranks_name(start_wall_ns: int, part: int) -> str:
    """A part of what every rank of the session that began then has sent; 0 is the oldest."""
    return f"perf_ranks_{start_wall_ns}.{part}.jsonl"


def ranks_parts(directory: Path, start_wall_ns: int) -> list[int]:
    """Numbers of the parts that are there, ascending. Raises OSError."""
    changed_ns = os.stat(directory).st_mtime_ns
    is_proven = changed_ns < time.time_ns() - TICK_NS
    return (_ranks_in if is_proven else _ranks_in.__wrapped__)(directory, changed_ns).get(start_wall_ns, [])


@lru_cache(maxsize=8)
def _ranks_in(directory: Path, changed_ns: int) -> dict[int, list[int]]:
    """The parts of all sessions: who asks for one of many asks for the others, too."""
    found: dict[int, list[int]] = {}
    for match in filter(None, map(_RANKS.fullmatch, os.listdir(directory))):
        found.setdefault(int(match[1]), []).append(int(match[2]))
    return {start_wall_ns: sorted(parts) for start_wall_ns, parts in found.items()}


def session_of(name: str) -> str | None:
    """The session whose run file has exactly this name; None if it is not a run file's name."""
    match = _RECORDS.fullmatch(name)
    return match[1] if match else None


def session_shown_by(name: str) -> str | None:
    """The session of which a file of this name is a view, such as its summary; None if it is none."""
    match = _VIEWS.fullmatch(name)
    return next(filter(None, match.groups()), None) if match else None


def by_age(directory: Path, session_ids: Iterable[str]) -> list[str]:
    """The sessions of a directory from old to new, as `age_of` their run files says."""
    return sorted(session_ids, key=lambda each: age_of(directory / file_names(each)["records"]))


def age_of(path: Path, header: RunHeader | None = None) -> tuple[int, str, int, str]:
    """Sorts run files from old to new: by the Unix time of their start. A name does not: it is in local time,
    which a container may have another of, and which goes back once a year. A file without a header that can
    be read is as old as its last change. `header`: where it has been read.
    """
    try:
        found = path.stat()
    except OSError:  # removed meanwhile
        return 0, "", 0, path.name
    try:
        start_ns = (header or read_header(path, (found.st_dev, found.st_ino))).start_wall_ns
    except (OSError, ValueError, RecursionError):
        start_ns = found.st_mtime_ns
    session_id = session_of(path.name) or path.name
    return start_ns, session_id[:_TIME_LENGTH], len(session_id), session_id


@lru_cache(maxsize=4096)
def read_header(path: Path, _file: tuple[int, int]) -> RunHeader:
    """The first record of the run file with this device and inode, whose header never changes; only its start
    is known to be of the right type. Raises OSError, ValueError or RecursionError.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        header = recall(file.readline(MAX_LINE_BYTES))
    if not isinstance(header, RunHeader) or type(header.start_wall_ns) is not int:
        raise ValueError("no header")
    return header


class Labels:
    """Turns Unix time into the writer's local time, also on a machine in another time zone.

    The offset is the one at the session's start, so that labels never jump within a session.
    """

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        start = datetime.strptime(header.session_id[:_TIME_LENGTH], _TIME_FORMAT)
        self._offset = start - _utc(header.start_wall_ns)

    def at(self, wall_ns: int) -> datetime:
        """Naive local time, whole seconds. Raises OverflowError outside the years 1 to 9999."""
        return _utc(wall_ns) + self._offset


class Starts:
    """When something began, in the local time of its writer."""

    def __init__(self, header: RunHeader) -> None:
        """Raises ValueError for a header whose session id is none."""
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._labels = Labels(header)

    def label(self, start_ns: int) -> str:
        """Text such as `2024-01-29T10:30:00.000123`."""
        wall_ns = self._anchor.wall_of(start_ns)
        return f"{self._labels.at(wall_ns).isoformat()}.{wall_ns % NS_PER_S // 1000:06d}"


def labels_of(header: RunHeader) -> Labels:
    """The labels of a file's session. Raises PerfError if the header's session id is not one."""
    try:
        return Labels(header)
    except ValueError:
        raise PerfError(
            f"{header.session_id!r} is not a session id such as 20240129_103000; this is not a run"
            " file of flagscale_perf"
        ) from None


def _utc(wall_ns: int) -> datetime:
    return datetime(1970, 1, 1) + timedelta(seconds=wall_ns // NS_PER_S)
