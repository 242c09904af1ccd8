"""Profiled ranks for tests, without torch: run as a module, one that puts records of its own.

RANK=0 python -m tests.profiled DIRECTORY ORDERS    with ORDERS such as `window 2 10; say; wait; kill`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from flagscale_perf.profile.options import ProfileOptions, Steps
from flagscale_perf.profile.records import (
    CollectiveRecord,
    RankRecord,
    RowRecord,
    Sort,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.profile.task import job_of
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import Record
from flagscale_perf.writer.membership import Membership
from tests.members import Ordered

HOST, MODEL, TRAIN, FORWARD, MODULE, OP, GROUP, REASON = range(1, 9)
NAMES = {
    HOST: "torch",
    MODEL: "Qwen3ForCausalLM",
    TRAIN: "train",
    FORWARD: "forward",
    MODULE: "model.layers.0.mlp.down_proj",
    OP: "aten::mm",
    GROUP: "TENSOR_MODEL_PARALLEL_GROUP",
    REASON: "no module ran",
}
MS = 1_000_000


def rank(number: int, **changes: Any) -> RankRecord:
    """Rank 0 of 2, tensor parallel."""
    record = RankRecord(
        process=0,
        number=number,
        rank=0,
        world_size=2,
        tensor=0,
        tensor_size=2,
        pipeline=0,
        pipeline_size=1,
        data=0,
        data_size=1,
        expert=None,
        expert_size=None,
        host=HOST,
        model=MODEL,
        device=0,
        mode=0,
        modules=5,
    )
    return record._replace(**changes)


def step(number: int, **changes: Any) -> StepRecord:
    """A profiled step of 100 ms: 60 in operators, 10 outside, 12 host, 5 engine, 12 communication, 1 left."""
    record = StepRecord(
        process=0,
        number=number,
        window=0,
        iteration=20,
        phase=TRAIN,
        is_profiled=1,
        start_ns=1000 * MS,
        total_ns=100 * MS,
        operators_ns=60 * MS,
        outside_ns=10 * MS,
        host_ns=12 * MS,
        engine_ns=5 * MS,
        communication_ns=12 * MS,
        residual_ns=1 * MS,
        device_busy_ns=None,
        samples=4,
        tokens=128,
        events=900,
    )
    return record._replace(**changes)


def clean(number: int, **changes: Any) -> StepRecord:
    """One of 95 ms that is not profiled."""
    parts = dict.fromkeys(
        ("operators_ns", "outside_ns", "host_ns", "engine_ns", "communication_ns", "residual_ns", "events")
    )
    return step(number, is_profiled=0, iteration=21, total_ns=95 * MS, **parts)._replace(**changes)


def row(number: int, **changes: Any) -> RowRecord:
    """50 ms in a matrix product, 10 times over."""
    record = RowRecord(
        process=0,
        number=number,
        window=0,
        step_phase=TRAIN,
        phase=FORWARD,
        module=MODULE,
        sort=int(Sort.OPERATOR),
        op=OP,
        steps=1,
        runs=10,
        self_ns=50 * MS,
        total_ns=50 * MS,
        device_ns=None,
        flops=1_000_000,
        moved_bytes=2_000,
    )
    return record._replace(**changes)


def collective(number: int, **changes: Any) -> CollectiveRecord:
    """An all-reduce of 4 KiB in 12 ms."""
    record = CollectiveRecord(
        process=0,
        number=number,
        window=0,
        step=0,
        phase=FORWARD,
        module=MODULE,
        start_ns=1010 * MS,
        total_ns=12 * MS,
        op=OP,
        call=OP,
        group=GROUP,
        group_size=2,
        sequence=1,
        ordinal=0,
        peer=None,
        is_send=None,
        size_bytes=4096,
        exposed_ns=12 * MS,
    )
    return record._replace(**changes)


def window(number: int, **changes: Any) -> WindowRecord:
    """One step profiled, one clean."""
    record = WindowRecord(
        process=0,
        number=number,
        start_ns=1000 * MS,
        total_ns=195 * MS,
        steps=1,
        clean_steps=1,
        events=900,
        dropped_events=0,
        begin_ns=1 * MS,
        end_ns=2 * MS,
        reduce_ns=3 * MS,
        reason=0,
        calls=0,
    )
    return record._replace(**changes)


def made(rows: int, first: int = 1) -> list[Record]:
    """What a rank makes of one window: two steps, so many rows and a collective."""
    last = first + 3 + rows
    return [
        step(first, window=last),
        clean(first + 1, window=last),
        *(row(first + 2 + number, window=last) for number in range(rows)),
        collective(last - 1, window=last, step=first),
        window(last),
    ]


class Profiled(Ordered):
    """Runs the orders of a profiled rank."""

    def __init__(self, directory: Path) -> None:
        own = int(os.environ.get("RANK", "0"))
        self.membership = Membership.join(
            job_of(ProfileOptions(Steps(1, 2), directory, job="a")), f"rank {own}"
        )
        for number, text in NAMES.items():
            self.membership.put(NameRecord(0, number, text))
        self.membership.put(rank(1, rank=own, tensor=own))
        self._next = 2

    def window(self, rows: str, wait_s: str = "60") -> None:
        """A window with so many rows; says how many records were lost."""
        records = made(int(rows), self._next)
        self._next += len(records)
        lost = self.membership.put_all(records, float(wait_s))
        print("lost", lost, flush=True)


def counts(records: list[Record]) -> dict[int, int]:
    """Pid to how many rows there are of it."""
    pids = {record.number: record.pid for record in records if isinstance(record, ProcessRecord)}
    found = dict.fromkeys(pids.values(), 0)
    for record in records:
        if isinstance(record, RowRecord):
            found[pids[record.process]] += 1
    return found


def main() -> None:
    """As a process."""
    directory, orders = sys.argv[1:]
    Profiled(Path(directory)).run(orders)


if __name__ == "__main__":
    main()
