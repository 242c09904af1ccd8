"""A traced job of real Ray actors that put into a real queue and get from it, and what they know themselves
of how many calls they have made.
"""

from __future__ import annotations

import itertools
import mmap
import os
import signal
import struct
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import ray
import torch
import transfer_queue
from tensordict import TensorDict
from torch.utils.data import DataLoader, IterableDataset
from transfer_queue.client import TransferQueueClient

from tests.members import wait_for

ROWS = 4
_PAIR = struct.Struct("qq")


class Tally:
    """Calls begun and calls done, in a file: SIGKILL takes nothing of it away."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_PAIR.size))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    @property
    def counts(self) -> tuple[int, int]:
        """Begun, done."""
        return _PAIR.unpack_from(self._memory)

    def begin(self) -> None:
        """One more."""
        begun, done = self.counts
        _PAIR.pack_into(self._memory, 0, begun + 1, done)

    def end(self) -> None:
        """It came back."""
        begun, done = self.counts
        _PAIR.pack_into(self._memory, 0, begun, done + 1)


def work(client: TransferQueueClient, tally: Tally, partition: str, count: int) -> None:
    """So many calls, half of them puts, each followed by a get, which has to return the same."""
    for number in range(count // 2):
        rows = torch.arange(ROWS * 2).reshape(ROWS, 2) + number
        tally.begin()
        made = client.put(data=TensorDict({"prompt": rows}, batch_size=ROWS), partition_id=partition)
        tally.end()
        tally.begin()
        found = client.get_data(made)["prompt"]
        tally.end()
        assert [row.tolist() for row in found.unbind()] == rows.tolist()


class _Calls(IterableDataset[int]):
    """What a worker of a DataLoader does: a client of its own, as in StreamingDataset."""

    def __init__(self, directory: Path, config: Any, count: int) -> None:
        self._directory, self._config, self._count = directory, config, count

    def __iter__(self) -> Iterable[int]:
        tally = Tally(self._directory / f"{os.getpid()}.tally")
        client = TransferQueueClient(f"worker {os.getpid()}", self._config.controller.zmq_info)
        kind = self._config.backend.storage_backend
        client.initialize_storage_manager(manager_type=kind, config=self._config.backend[kind])
        work(client, tally, f"worker {os.getpid()}", self._count)
        yield os.getpid()


@ray.remote(num_cpus=0)
class Client:
    """One process of the job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._tally = Tally(directory / f"{os.getpid()}.tally")
        transfer_queue.init()

    def pid(self) -> int:
        return os.getpid()

    def work(self, count: int) -> None:
        """Makes so many calls."""
        work(transfer_queue.get_client(), self._tally, f"actor {os.getpid()}", count)

    def fork(self, count: int, workers: int) -> list[int]:
        """Makes so many calls in each of so many forked workers of a DataLoader. Returns their pids."""
        config = ray.get(transfer_queue.interface._TQ_CONTROLLER.get_config.remote())
        loader = DataLoader(
            _Calls(self._directory, config, count),
            num_workers=workers,
            batch_size=None,
            multiprocessing_context="fork",
        )
        return list(loader)


@dataclass
class Job:
    """Actors at work.

    Attributes:
        directory: the tallies; the traces are below it in `trace`.
        log: where Ray keeps what its workers print.
        count: calls that each actor is to make.
        children: pids of forked workers.
        killed: pids of processes that were ended in the middle.
    """

    directory: Path
    log: Path
    count: int
    actors: list[Any] = field(default_factory=list)
    pids: list[int] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    killed: set[int] = field(default_factory=set)
    _running: list[Any] = field(default_factory=list)

    @classmethod
    def start(cls, directory: Path, log: Path, actors: int, count: int, **variables: str) -> Job:
        """They are there, and nothing is traced yet."""
        job = cls(directory, log, count)
        environment = {
            "TQ_TRACE_ENABLED": "1",
            "TQ_TRACE_DETAIL_ENABLED": "1",
            "VERL_LOGGING_LEVEL": "INFO",
            "TQ_TRACE_DIR": str(job.trace),
        }
        options = {"runtime_env": {"env_vars": environment | variables}}
        job.actors = [Client.options(**options).remote(directory) for _ in range(actors)]
        job.pids = ray.get([actor.pid.remote() for actor in job.actors])
        return job

    @property
    def trace(self) -> Path:
        """`TQ_TRACE_DIR`."""
        return self.directory / "trace"

    @property
    def tallies(self) -> dict[int, tuple[int, int]]:
        """Pid to calls begun and done."""
        return {int(path.stem): Tally(path).counts for path in self.directory.glob("*.tally")}

    def work(self) -> None:
        """All begin."""
        self._running = [actor.work.remote(self.count) for actor in self.actors]

    def fork(self, number: int, workers: int) -> None:
        """Of this actor, whose turn it then is."""
        self.children += ray.get(self.actors[number].fork.remote(self.count, workers))

    def wait_until(self, number: int, done: int) -> None:
        """This actor has done so many."""
        wait_for(lambda: self.tallies[self.pids[number]][1] >= done)

    def kill(self, number: int) -> None:
        """By SIGKILL."""
        self.killed.add(self.pids[number])
        os.kill(self.pids[number], signal.SIGKILL)

    def ray_kill(self, number: int) -> None:
        """As Ray ends an actor."""
        self.killed.add(self.pids[number])
        ray.kill(self.actors[number])

    def join(self) -> None:
        """Those that live have done their work."""
        for pid, running in zip(self.pids, self._running, strict=True):
            if pid not in self.killed:
                ray.get(running)

    def end(self) -> None:
        """In order."""
        ending = [
            actor.__ray_terminate__.remote()
            for pid, actor in zip(self.pids, self.actors, strict=True)
            if pid not in self.killed
        ]
        for each in itertools.chain(ending, self._running):
            try:
                ray.get(each)
            except ray.exceptions.ActorDiedError:  # which is how an orderly end looks from here, too
                continue
        self.actors.clear()
        wait_for(lambda: not any(map(psutil.pid_exists, self.pids)))  # they may still have something to say

    @property
    def said(self) -> list[str]:
        """What was said of trouble, by any of the processes."""
        lines = [
            line
            for path in self.log.glob("worker-*")
            if any(path.stem.endswith(f"-{pid}") for pid in self.pids)
            for line in path.read_text(errors="replace").splitlines()
        ]
        return [line.partition("flagscale_perf: ")[2] for line in lines if "flagscale_perf: " in line]
