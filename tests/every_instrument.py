"""One session of each instrument as run files, with any end, of one machine or of two."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from flagscale_perf.analysis.blocks import Report
from flagscale_perf.analysis.instrument import load
from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import ProcessRecord
from flagscale_perf.spine.records import Record, RunEnd, RunHeader
from flagscale_perf.store.decoder import decode
from tests import bench_runs, profile_runs, rpc_sessions, synthetic, trace_runs
from tests.run_files import NO_PID, left_behind

_BEGUN_NS, _ON = 1_700_000_000_000_000_000, {"host": "node0", "boot_id": "one"}
END_NS, HOUR_NS = 1_000_000_000, 3_600_000_000_000


def _bench(directory: Path) -> Path:
    with bench_runs.book_in(directory) as book, book.part("bandwidth", 1, {}) as part:
        bench_runs.collective(part, "all_reduce", 1 << 20, [0.001, 0.002])
    return book.path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "training": lambda directory: synthetic.write(synthetic.Plan(steps=40), directory),
    "rpc": lambda directory: rpc_sessions.write_run(directory, rpc_sessions.llama_calls()),
    "trace": lambda directory: trace_runs.pipeline().write(directory),
    "profile": lambda directory: profile_runs.make_profile().write(directory),
    "bench": _bench,
}
JOBS = [name for name in WRITERS if name != "training"]  # its one file is of all machines


def records_of(name: str, directory: Path) -> list[Record]:
    """A session of this instrument, without its end."""
    directory.mkdir(exist_ok=True)
    lines = WRITERS[name](directory).read_bytes().splitlines()
    return [record for record in map(decode, lines) if not isinstance(record, RunEnd)]


def write(name: str, directory: Path, end: str | None, **header: Any) -> Path:
    """The run file with this end; None of a killed process of this machine, or of `host`."""
    records = records_of(name, directory / "made")
    records[0] = replace(records[0], **header)
    if end is not None:
        records.append(RunEnd(end, records[0].start_wall_ns + END_NS, 0, 0))
    path = directory / f"perf_records_{records[0].session_id}.jsonl"
    path.write_bytes(b"".join(map(encode, records)))
    return path if end is not None or "host" in header else left_behind(path)


def write_job(
    name: str, directory: Path, ends: tuple[str | None, str | None], hours_later: int = 0
) -> list[Path]:
    """The run files of two machines that ran at the same time, this one and another."""
    first: RunHeader = records_of(name, directory / "made")[0]
    facts, hour = {**first.facts, "job": "pretrain"}, 10 + hours_later
    start_ns = first.start_wall_ns + hours_later * HOUR_NS
    start = {"start_wall_ns": start_ns, "start_mono_ns": first.start_mono_ns, "facts": facts}
    own = start | ({"session_id": f"20240129_{hour}3000"} if hours_later else {})
    other = start | {"session_id": f"20240129_{hour}3007", "host": "node1", "boot_id": "another"}
    return [write(name, directory, ends[0], **own), write(name, directory, ends[1], **other)]


def beside(
    directory: Path, instrument: str, begin_s: float, end_s: float, pids: tuple[int, ...] = (), **header: Any
) -> Path:
    """A session that lasted from and to these seconds and recorded these processes."""
    directory.mkdir(exist_ok=True)
    own, *records = records_of(instrument, directory / ".made")
    own = replace(
        own, session_id=f"20240129_{100000 + int(begin_s)}", start_wall_ns=_BEGUN_NS + int(begin_s * END_NS)
    )
    own = replace(own, **_ON | {"pid": NO_PID} | header)
    others = [record for record in records if not isinstance(record, ProcessRecord)]
    processes = [
        ProcessRecord(1 + place, pid, "rank", own.start_mono_ns, None, 0, 0) for place, pid in enumerate(pids)
    ]
    end = RunEnd("completed", _BEGUN_NS + int(end_s * END_NS), 0, 0)
    path = directory / f"perf_records_{own.session_id}.jsonl"
    path.write_bytes(b"".join(map(encode, [own, *processes, *others, end])))
    return path


@contextmanager
def being_written(path: Path) -> Iterator[None]:
    """As long as its writer lives, the file is locked."""
    with path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def report_of(name: str, path: Path) -> Report:
    """What `flagscale-perf report` shows."""
    return load(name).report(open_session(path))
