"""The ranks of a job on this machine, for a model that is made here: one process each.

Each one runs `python -m flagscale_perf.hosts.profiling.own_ranks JOB`, a JSON object that `run_ranks` makes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.hosts.profiling.own_model import OwnRun, profile_own
from flagscale_perf.spine.errors import PerfError

PERIOD_S, GRACE_S = 0.05, 10.0
REFUSED = 2  # exit code of a rank that a user's mistake has ended


def run_ranks(run: OwnRun) -> None:
    """Runs and profiles it on `run.ranks` processes. Raises PerfError where one of them fails, with what it
    said; the others are ended.
    """
    with tempfile.TemporaryDirectory(prefix="flagscale_perf_") as name:
        _run(run, Path(name))


def _run(run: OwnRun, scratch: Path) -> None:
    with _started(run, scratch) as ranks:
        while None in (codes := [rank.poll() for rank in ranks]) and not any(codes):
            time.sleep(PERIOD_S)
        failed = next((rank for rank, code in enumerate(codes) if code), None)
        if failed is not None:
            said = _errors(scratch, failed).read_text(errors="replace").strip()
            if codes[failed] != REFUSED:
                said = f"rank {failed} has ended with exit code {codes[failed]}; it said: {said[-2000:]}"
            raise PerfError(said)


@contextmanager
def _started(run: OwnRun, scratch: Path) -> Iterator[Sequence[subprocess.Popen[bytes]]]:
    """The processes; none is left behind."""
    cores = len(os.sched_getaffinity(0))
    threads = {"OMP_NUM_THREADS": str(max(1, cores // run.ranks))} | dict(os.environ)
    ranks: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(run.ranks):
            job = {"run": asdict(run), "store": str(scratch / "store")}
            place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run.ranks)}
            with _errors(scratch, rank).open("wb") as errors:
                ranks.append(
                    subprocess.Popen(
                        [sys.executable, "-m", __name__, json.dumps(job, default=str)],
                        env=threads | place, stdin=subprocess.DEVNULL, stderr=errors,
                    )
                )  # fmt: skip
        yield ranks
    finally:
        for each in ranks:
            if each.poll() is None:
                each.terminate()
        for each in ranks:
            try:
                each.wait(GRACE_S)
            except subprocess.TimeoutExpired:
                each.kill()
                each.wait()


def _errors(scratch: Path, rank: int) -> Path:
    return scratch / f"rank{rank}.stderr"


@dataclass(frozen=True)
class _Job:
    """What a rank is told."""

    run: OwnRun
    store: str

    @classmethod
    def of(cls, text: str) -> _Job:
        given: dict[str, Any] = json.loads(text)
        run = given["run"]
        run["model"] = None if run["model"] is None else Path(run["model"])
        return cls(OwnRun(**run | {"directory": Path(run["directory"])}), given["store"])


def main() -> int:
    """One rank."""
    from torch import cuda, distributed

    job, rank = _Job.of(sys.argv[1]), int(os.environ["RANK"])
    if cuda.is_available():
        cuda.set_device(rank)
    backend = "nccl" if cuda.is_available() else "gloo"
    distributed.init_process_group(
        backend, init_method=f"file://{job.store}", rank=rank, world_size=job.run.ranks
    )
    try:
        profile_own(job.run)
        distributed.barrier()  # who ends first would close what the others still send over
    except PerfError as error:
        print(error, file=sys.stderr)
        return REFUSED
    finally:
        distributed.destroy_process_group()
    return 0


if __name__ == "__main__":
    sys.exit(main())
