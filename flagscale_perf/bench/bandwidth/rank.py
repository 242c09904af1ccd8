"""One rank of a bandwidth test. Run as a module it is the rank's process: the job on stdin, points on a file
descriptor.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flagscale_perf.bench.bandwidth.job import Job, Measured
from flagscale_perf.bench.bandwidth.operations import (
    COLLECTIVES,
    DTYPE,
    EXECUTED,
    ITEM_BYTES,
    Operation,
    World,
    locals_of,
    message,
)
from flagscale_perf.spine import companion
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.packages import missing

WARMUP = 5
MAX_RUNS = 100_000


@dataclass(frozen=True)
class Timer:
    """How to time on this device.

    Attributes:
        wait: until the device has done all that it was given.
        barrier: until all ranks are here.
        longest: the largest of all ranks' values, the same on each; of every value of a list.
    """

    wait: Callable[[], None]
    barrier: Callable[[], None]
    longest: Callable[[list[float]], list[float]]


def timer_of(torch: Any, dist: Any, device: str, group: Any) -> Timer:
    """A timer for ranks; their group communicates through the processor, apart from what is measured."""

    def longest(values: list[float]) -> list[float]:
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=group)
        found: list[float] = tensor.tolist()
        return found

    return Timer(_wait_for(torch, device), lambda: dist.barrier(group=group), longest)


def alone(torch: Any, device: str) -> Timer:
    """A timer for what one rank does by itself."""
    return Timer(_wait_for(torch, device), _nothing, list)


def _wait_for(torch: Any, device: str) -> Callable[[], None]:
    return torch.cuda.synchronize if device.startswith("cuda") else _nothing


def seconds_per_run(run: Callable[[], Any], timer: Timer, loops: int, loop_s: float) -> list[float]:
    """The slowest rank's time for each loop. All ranks call it with the same operation. A barrier for
    each run would measure the barrier where messages are small, and hide how ranks drift apart.

    Args:
        run: the operation.
        timer: of the ranks that run it.
        loops: each of them a repetition.
        loop_s: seconds that each takes at least.
    """
    for _ in range(WARMUP):
        run()
    timer.wait()
    runs = _enough(run, timer, loop_s)
    return timer.longest([_loop(run, timer, runs) / runs for _ in range(loops)])


def _enough(run: Callable[[], Any], timer: Timer, seconds: float) -> int:
    """Number of runs that make a loop long enough, the same on all ranks."""
    runs = 1
    while True:
        took = timer.longest([_loop(run, timer, runs)])[0]
        if took >= seconds or runs >= MAX_RUNS:
            return runs
        growth = seconds / took * 1.1 if took > seconds / 20 else 10
        runs = min(MAX_RUNS, max(runs + 1, int(runs * growth)))


def _loop(run: Callable[[], Any], timer: Timer, runs: int) -> float:
    timer.barrier()
    timer.wait()
    start = time.perf_counter()
    for _ in range(runs):
        run()
    timer.wait()
    return time.perf_counter() - start


TIMEOUT = timedelta(seconds=120)  # of one operation; so long the others wait for a rank that died
JOB = "flagscale_perf job"  # its key in the store
Send = Callable[[Measured], None]


@dataclass(frozen=True)
class Place:
    """This rank's number on its machine and in the job, and torch's store where the ranks meet."""

    rank: int
    local_rank: int
    store: Any


class Rank:
    """Measures everything together with the other ranks, in the same order on all."""

    def __init__(self, world: World, job: Job, timer: Timer, send: Send) -> None:
        """`send` takes the points; every rank calls it with the same ones."""
        self._world, self._job, self._timer, self._send = world, job, timer, send
        self._loops = job.loops, job.loop_s

    def measure(self) -> None:
        """Measures the whole job. Raises PerfError if wrong data arrived."""
        self._local()
        self._messages()
        self._collectives()

    def _collectives(self) -> None:
        for name in self._job.operations:
            executed = EXECUTED.get((self._job.backend, name), name)
            for size in self._job.sizes:
                operation = COLLECTIVES[name](self._world, size // ITEM_BYTES)
                whole = max(operation.given_bytes, operation.made_bytes)
                case = {
                    "op": name,
                    "executed": executed,
                    "ranks": self._job.ranks,
                    "size_bytes": whole,
                    "dtype": DTYPE,
                }
                self._timed(case, operation)

    def _messages(self) -> None:
        for size in self._job.message_sizes:
            for pair in self._job.pairs:
                for both in (False, True) if pair[0] < pair[1] else (False,):
                    operation = message(self._world, size // ITEM_BYTES, pair, both)
                    way = "both ways" if both else "one way"
                    case = {
                        "op": "send_recv",
                        "src": pair[0],
                        "dst": pair[1],
                        "way": way,
                        "size_bytes": size,
                        "dtype": DTYPE,
                    }
                    self._timed(case, operation if self._world.rank in pair else None)

    def _local(self) -> None:
        """Measures each rank in turn, while the others wait."""
        world, size = self._world, self._job.copy_bytes
        for rank in range(self._job.ranks):
            for name, local in locals_of(world.device).items():
                start_ns, samples = monotonic_ns(), [0.0] * self._job.loops
                if rank == world.rank:
                    run = local.make(world, size // ITEM_BYTES)
                    samples = seconds_per_run(run, alone(world.torch, world.device), *self._loops)
                case = {"op": name, "rank": rank, "size_bytes": size, "moved_bytes": local.times * size}
                self._put(case, start_ns, self._timer.longest(samples))

    def _timed(self, case: dict[str, Any], operation: Operation | None) -> None:
        """Measures an operation; a rank that takes no part has none and waits with the others."""
        start_ns = monotonic_ns()
        run = _nothing if operation is None else operation.run
        run()
        self._timer.wait()
        is_wrong = operation is not None and not operation.is_right()
        if max(self._timer.longest([float(is_wrong)])):
            raise PerfError(f"{case}: wrong data arrived; a link or a driver is broken")
        self._put(case, start_ns, seconds_per_run(run, self._timer, *self._loops))

    def _put(self, case: dict[str, Any], start_ns: int, samples: list[float]) -> None:
        self._send(Measured(case, start_ns, monotonic_ns() - start_ns, samples))


def _nothing() -> None:
    """The operation of a rank that takes no part, and the wait where there is nothing to wait for."""


def measure(torch: Any, job: Job, place: Place, send: Send) -> None:
    """Joins the other ranks and measures with them. Raises PerfError."""
    dist = torch.distributed
    device = job.device
    if device == "cuda":
        torch.cuda.set_device(place.local_rank)
        device = f"cuda:{place.local_rank}"
    dist.init_process_group(
        job.backend, store=place.store, rank=place.rank, world_size=job.ranks, timeout=TIMEOUT
    )
    try:
        group = None if job.backend == "gloo" else dist.new_group(backend="gloo", timeout=TIMEOUT)
        world = World(torch, dist, place.rank, job.ranks, device)
        Rank(world, job, timer_of(torch, dist, device, group), send).measure()
    finally:
        dist.destroy_process_group()


def measure_joined(job: Job | None, send: Send) -> None:
    """Measures, on a rank that torchrun started, the job that the first rank was given. Raises PerfError."""
    torch = import_torch()
    rank = int(os.environ["RANK"])
    try:
        store, rank, _ = next(torch.distributed.rendezvous("env://"))
        if job is not None:
            store.set(JOB, job.encode())
        shared = Job.decode(store.get(JOB).decode())
        place = Place(
            rank, int(os.environ.get("LOCAL_RANK", rank)), torch.distributed.PrefixStore(JOB, store)
        )
        measure(torch, shared, place, send)
    except (RuntimeError, ValueError, OSError) as error:
        first = str(error).strip().split("\n")[0]
        raise PerfError(f"rank {rank} failed: {type(error).__name__}: {first}") from None


def import_torch() -> Any:
    """Raises PerfError if torch is missing."""
    try:
        torch: Any = importlib.import_module("torch")
        importlib.import_module("torch.distributed")
    except ImportError as error:
        raise missing("torch", error, "bench bandwidth") from None
    return torch


def _end_with_starter() -> None:
    """Ends this process when the other end of stdin is closed: the process that started the ranks is gone."""
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def main(words: Sequence[str]) -> int:
    """The process of a rank started by `ranks.run`; words: rank, address, descriptor; the job on stdin."""
    companion.settle()
    rank, address, fd = int(words[0]), words[1], int(words[2])
    job = Job.decode(sys.stdin.readline())
    threading.Thread(target=_end_with_starter, daemon=True).start()
    with os.fdopen(fd, "w", encoding="utf-8", buffering=1) as out:

        def send(point: Measured) -> None:
            """Only the first rank sends: all have the same points."""
            if rank == 0:
                out.write(json.dumps(point._asdict()) + "\n")

        try:
            torch = import_torch()
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // job.ranks))
            store, _, _ = next(torch.distributed.rendezvous(address, rank, job.ranks, timeout=TIMEOUT))
            measure(torch, job, Place(rank, rank, store), send)
        except (PerfError, RuntimeError, ValueError, OSError) as error:
            out.write(json.dumps({"rank": rank, "error": f"{type(error).__name__}: {error}"}) + "\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
