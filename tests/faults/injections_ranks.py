"""How the faults of the other ranks' path are brought about, and what has to be known of the ranks after
them.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from flagscale_perf.training.ranks.collector import COLLECTOR
from flagscale_perf.training.ranks.exchange import BEACON, directory_of
from flagscale_perf.training.ranks.place import Place
from tests.faults.injections import VICTIM, Act, Prepare, stop
from tests.faults.job import LOG_DIRECTORY, Job
from tests.faults.mounts import mounted
from tests.faults.ranks import TWO_NODES, environment_of
from tests.faults.shim import Shim
from tests.faults.surroundings import BALLAST, DISK_BYTES
from tests.processes import flagscale as fs

Check = Callable[[Job], None]


def trouble(kind: str) -> Prepare:
    """Of rank 1, see `tests.faults.ranks`."""
    return lambda directory, shim: {"TROUBLE": kind}


def exchange_of(directory: Path) -> Path:
    """Where the nodes of a loop's job exchange their files."""
    place = Place.of(environment_of(0, TWO_NODES, directory))
    assert place is not None
    return directory_of(directory / LOG_DIRECTORY, place.key)


def exchange_is_a_file(directory: Path, shim: Shim) -> dict[str, str]:
    """Planted before the start."""
    (directory / LOG_DIRECTORY).mkdir()
    exchange_of(directory).write_text("in the way")
    return {}


def exchange_is_a_link(directory: Path, shim: Shim) -> dict[str, str]:
    """To somebody's directory."""
    (directory / LOG_DIRECTORY).mkdir()
    (directory / "elsewhere").mkdir()
    (directory / VICTIM).write_text("precious")
    (directory / "elsewhere" / BEACON).symlink_to(directory / VICTIM)
    exchange_of(directory).symlink_to(directory / "elsewhere")
    return {}


def remove_planted(until: int) -> Act:
    """What was planted is removed at that iteration."""

    def act(running: Job) -> None:
        running.read_until(until)
        exchange_of(running.directory).unlink()

    return act


def remove_exchange(running: Job) -> None:
    """rm -rf, once both sides have written."""
    exchange = exchange_of(running.directory)
    read_on(running, (exchange / "node_1.json").exists)
    subprocess.run(["rm", "-rf", exchange], check=True)


def full_exchange(until: int) -> Act:
    """Both sides have written; then the disk with their files is full, until that iteration."""

    def act(running: Job) -> None:
        exchange = exchange_of(running.directory)
        read_on(running, (exchange / "node_1.json").exists)
        with mounted(exchange, f"size={DISK_BYTES},mode=700"):
            (exchange / BALLAST).write_bytes(bytes(DISK_BYTES))
            running.read_until(until)
            assert not (exchange / "node_1.json").exists(), "the disk was not full"

    return act


def foreign_files(running: Job) -> None:
    """A pipe that nobody writes into, in the place of a node's file, and a hostile beacon."""
    exchange = exchange_of(running.directory)
    read_on(running, (exchange / BEACON).exists)
    os.mkfifo(exchange / "node_0.json")
    (exchange / "later").write_text("[" * 100_000)
    (exchange / "later").rename(exchange / BEACON)


def kill_rank(running: Job) -> None:
    """SIGKILL to rank 1, once rank 0 knows of it. The training is held until then; on a busy machine it would
    otherwise have ended first.
    """
    fs.wait_until(lambda: 1 in met(running), "rank 0 to know of rank 1")
    os.kill(_pid(running), signal.SIGKILL)


def stop_rank(seconds: float) -> Act:
    """SIGSTOP to rank 1, once rank 0 knows of it, and SIGCONT."""

    def act(running: Job) -> None:
        fs.wait_until(lambda: 1 in met(running), "rank 0 to know of rank 1")
        process = psutil.Process(_pid(running))
        running.go_on()
        stop(process, seconds)

    return act


def kill_collector(running: Job) -> None:
    """SIGKILL, once it has been heard."""
    read_on(running, lambda: 1 in met(running))
    running.process_of(COLLECTOR).kill()


def stop_collector(running: Job) -> None:
    """SIGSTOP until the training has ended."""
    read_on(running, lambda: 1 in met(running))
    collector = running.process_of(COLLECTOR)
    collector.suspend()
    running.read_until(0)
    running.process.wait()
    collector.resume()


def read_on(running: Job, condition: Callable[[], bool]) -> None:
    """Reads what it prints until the condition holds."""
    while not condition():
        last = running.printed[-1][0]
        running.read_until(last + 1)
        assert running.printed[-1][0] > last, "the job has ended before"


def met(running: Job) -> list[int]:
    """Ranks that rank 0 has heard of."""
    return sorted(rank for node in _records(running, "node") for rank in node["ranks"])


def ranks_are(silent: list[int], known: list[int]) -> Check:
    """Of two ranks: those missing in the end, and those that were ever known; the directory of the exchange
    is gone.
    """

    def check(running: Job) -> None:
        (summary,) = running.logs.glob("perf_summary_*.json")
        ranks = json.loads(summary.read_text())["ranks"]
        assert (ranks["silent"], ranks["silent_count"], ranks["heard"]) == (
            silent,
            len(silent),
            2 - len(silent),
        )
        assert met(running) == known
        assert [
            path.name for path in running.logs.glob(".ranks_*") if path.is_dir() and not path.is_symlink()
        ] == []

    return check


def elsewhere_is_untouched(running: Job) -> None:
    """Nothing was made or removed behind the link."""
    assert [path.name for path in (running.directory / "elsewhere").iterdir()] == [BEACON]
    ranks_are([1], [0])(running)


def _pid(running: Job) -> int:
    """Of rank 1."""
    return next(
        pid
        for node in _records(running, "node")
        for rank, pid in zip(node["ranks"], node["pids"], strict=True)
        if rank == 1
    )


def _records(running: Job, kind: str) -> Iterator[dict]:
    for path in running.logs.glob("perf_records_*"):
        for line in path.read_text().splitlines(keepends=True):
            if line.endswith("\n") and f'"kind":"{kind}"' in line:
                yield json.loads(line)
