"""Real actors, ended in every way that Ray has: their records are all there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import ray

from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.peers.rings import UNSAID
from flagscale_perf.trace.options import TraceOptions
from tests.members import ends, finished
from tests.traced import NAMES, counts, operation

CALLS = 1000
ENVIRONMENT = {"TQ_TRACE_ENABLED": "1", "TQ_TRACE_DETAIL_ENABLED": "1"}
pytestmark = pytest.mark.usefixtures("ray_session")


@ray.remote(num_cpus=0)
class Producer:
    """Puts so many operations, and a forked worker of it the same."""

    def __init__(self) -> None:
        from flagscale_perf.trace.task import job_of
        from flagscale_perf.writer.membership import Membership

        self._membership = Membership.join(job_of(TraceOptions.of(os.environ)), "a worker")
        self._next = 1
        self._name()

    def _name(self) -> None:
        for number, text in NAMES.items():
            self._membership.put(NameRecord(0, number, text))

    def put(self, count: int) -> int:
        for _ in range(count):
            self._membership.put(operation(self._next))
            self._next += 1
        return os.getpid()

    def fork(self, count: int) -> int:
        pid = os.fork()
        if not pid:
            self._next = 1
            self._name()
            self.put(count)
            os._exit(0)
        os.waitpid(pid, 0)
        return pid

    def fall(self) -> None:
        os._exit(1)


def test_eight_actors_of_a_thousand_calls(trace_directory: Path) -> None:
    actors: list[Any] = [Producer.remote() for _ in range(8)]
    # The actor whose process has started the writer is one of those that are killed.
    pids = ray.get([actor.put.remote(CALLS - 10) for actor in actors])
    child = ray.get(actors[0].fork.remote(CALLS))
    ray.get([actor.put.remote(10) for actor in actors])
    for actor in actors[:4]:
        ray.kill(actor)
    for actor in actors[4:6]:
        actor.fall.remote()
    with pytest.raises(ray.exceptions.ActorDiedError):  # which is how an orderly end looks from here
        ray.get(actors[6].__ray_terminate__.remote())
    del actor, actors  # the last one ends as nobody refers to it any more
    records = finished(trace_directory)
    assert counts(records) == dict.fromkeys([*pids, child], CALLS)
    ended = ends(records)
    assert {(dropped, lost) for _, dropped, lost in ended.values()} == {(0, 0)}
    assert [ended[pid][0] for pid in [*pids[:6], child]] == [UNSAID] * 7
    titles = {record.pid: record.title for record in records if isinstance(record, ProcessRecord)}
    assert titles == dict.fromkeys([*pids, child], "Producer")
