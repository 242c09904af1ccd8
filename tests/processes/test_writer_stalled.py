"""A real writer process whose trainer is killed: as it is started, or with a disk that takes its time or
never answers again. No record is lost.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.records import EventRecord, RunEnd
from flagscale_perf.spine.ring import Ring
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.writer.task import WriterTask
from tests.fakes import make_facts, make_header, make_step
from tests.processes.flagscale import wait_until
from tests.processes.trainer import DEADLINE_S, records_in, steps_in

STEPS = 3000  # more than a batch
# A writer whose writes below DIRECTORY take so many seconds once records come; what waits for a minute
# elsewhere waits for PATIENCE here from then on, and an orphan with nothing to save for 0.02 s.
WRITER = """
import os, sys, time
from flagscale_perf.perf_logger import make_pipeline
from flagscale_perf.spine import companion
from flagscale_perf.writer.process import serve
directory, delay_s, patience_s = sys.argv[2], float(sys.argv[3]), float(sys.argv[4])
companion.ORPHAN_LIMIT_S = companion.ORPHAN_CHECK_S = 0.02
write = os.write
def stalled(fd, data):
    if b'"kind":"step"' in bytes(data) and os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
        companion.PATIENCE_S = patience_s
        time.sleep(delay_s)
    return write(fd, data)
os.write = stalled
serve(make_pipeline)
"""

# A writer whose disk takes so many bytes of each file below DIRECTORY, and then what stands in the place of
# others; it is patient for PATIENCE.
FULL = """
import errno, os, sys
from flagscale_perf.perf_logger import make_pipeline
from flagscale_perf.writer import drain
from flagscale_perf.writer.process import serve
directory, room, drain.PATIENCE_S = sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
write = os.write
def full(fd, data):
    if not os.readlink(f"/proc/self/fd/{fd}").startswith(directory):
        return write(fd, data)
    if (left := room - os.fstat(fd).st_size) <= 0:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    return write(fd, data[:left])
os.write = full
serve(make_pipeline)
"""


@pytest.fixture
def ring() -> Iterator[Ring]:
    made = Ring.create()
    for number in range(1, STEPS + 1):
        made.put(make_step(number))
    yield made
    made.release()


def written(
    ring: Ring, directory: Path, delay_s: float, patience_s: float, writer: str = WRITER
) -> subprocess.CompletedProcess:
    """A writer of the ring from start to end, its trainer gone since before."""
    with subprocess.Popen(["true"]) as gone:
        gone.wait()
    task = WriterTask.of(make_header().config, asdict(make_facts()), str(directory / "logs"), None)
    environment = {"TMPDIR": str(directory), "PYTHONPATH": companion._PACKAGE_ROOT}
    assert ring.fd is not None
    with replace(task, pid=gone.pid).handed_over(ring.fd) as task_fd:
        words = [str(task_fd), str(directory / "logs"), str(delay_s), str(patience_s)]
        return subprocess.run(
            [sys.executable, "-c", writer, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=(ring.fd, task_fd),
            env=environment,
            check=False,
            timeout=DEADLINE_S,
        )


def test_a_disk_that_stalls_after_the_trainers_death_costs_no_record(ring: Ring, tmp_path: Path) -> None:
    written(ring, tmp_path, delay_s=0.4, patience_s=companion.PATIENCE_S)
    assert steps_in(tmp_path / "logs") == list(range(1, STEPS + 1))
    assert not list(tmp_path.glob("flagscale_perf_*"))


def test_what_a_disk_never_takes_is_saved_below_tmpdir(ring: Ring, tmp_path: Path) -> None:
    result = written(ring, tmp_path, delay_s=10 * DEADLINE_S, patience_s=0.1)
    (directory,) = tmp_path.glob("flagscale_perf_*")
    assert (result.returncode, steps_in(directory)) == (1, list(range(1, STEPS + 1)))
    assert isinstance(records_in(directory)[-1], RunEnd)
    assert directory.stat().st_mode & 0o777 == 0o700
    assert f"{tmp_path}/logs takes no more: what waited is in {directory}" in result.stdout.decode()


def test_what_no_directory_ever_took_is_saved_below_tmpdir(ring: Ring, tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("in the way of the directory")
    result = written(ring, tmp_path, delay_s=0, patience_s=0.1)
    (directory,) = tmp_path.glob("flagscale_perf_*")
    assert steps_in(directory) == list(range(1, STEPS + 1))
    assert isinstance(records_in(directory)[-1], RunEnd)
    assert f"{tmp_path}/logs takes no more: what waited is in {directory}" in result.stdout.decode()


def test_a_run_file_on_a_full_disk_ends_as_the_run_did_and_says_where_the_rest_is(
    ring: Ring, tmp_path: Path
) -> None:
    room = 50_000
    ring.close("completed", monotonic_ns())
    written(ring, tmp_path, room, patience_s=0.3, writer=FULL)
    (directory,) = tmp_path.glob("flagscale_perf_*")
    *kept, told, end = records_in(tmp_path / "logs")
    assert isinstance(told, EventRecord) and isinstance(end, RunEnd)
    last = kept[-1].iteration
    here, there = steps_in(tmp_path / "logs"), steps_in(directory)
    assert (here, sorted({*here, *there})) == (list(range(1, last + 1)), list(range(1, STEPS + 1)))
    assert (end.reason, end.last_iteration) == ("completed", STEPS)
    where = f"{os.uname().nodename}:{directory}, from iteration {last + 1} on"
    assert told.text == f"records are not here but in {where}: No space left on device"
    session = open_session(tmp_path / "logs")
    report = read_report(session)
    assert (report.overview.end_reason, report.reading.remarks) == ("completed", [told.text])
    (run_file,) = (tmp_path / "logs").glob("perf_records_*")
    assert room - 3000 < run_file.stat().st_size < room


# Killed when its writer process has just been made, and nothing else has been done with it.
KILLED_AT_START = """
import os, signal, sys, threading
from dataclasses import asdict
from flagscale_perf import perf_logger
from flagscale_perf.spine import companion
from flagscale_perf.spine.ring import Ring
from flagscale_perf.writer.console import Console
from flagscale_perf.writer.supervisor import Supervisor
from flagscale_perf.writer.task import WriterTask
from tests.fakes import make_facts, make_header, make_step
start = companion.start
def start_and_die(*words, **options):
    start(*words, **options)
    os.kill(os.getpid(), signal.SIGKILL)
companion.start = start_and_die
ring = Ring.create()
for number in range(1, 4):
    ring.put(make_step(number))
task = WriterTask.of(make_header().config, asdict(make_facts()), sys.argv[1], None)
Supervisor(ring, task, perf_logger.__name__, perf_logger.make_pipeline, Console(print, False)).start()
threading.Event().wait()
"""


def has_ended(directory: Path) -> bool:
    found = records_in(directory) if any(directory.glob("*.jsonl")) else []
    return found != [] and isinstance(found[-1], RunEnd)


def test_a_trainer_killed_as_its_writer_starts_loses_no_record(tmp_path: Path) -> None:
    command = [sys.executable, "-c", KILLED_AT_START, str(tmp_path)]
    killed = subprocess.run(command, env={"PYTHONPATH": companion._PACKAGE_ROOT}, check=False)
    assert killed.returncode == -signal.SIGKILL
    wait_until(lambda: has_ended(tmp_path), "the run's end")
    assert steps_in(tmp_path) == [1, 2, 3]
