"""A profiled job whose every figure can be worked out by hand: 2 ranks, 2 layers, 2 profiled steps.

Rank 1 computes 3 ms longer before the first collective of each step, so that rank 0 waits for it. In
milliseconds, both profiled steps together (100 + 102 = 202 ms):

    embedding 4, layer 0: q_proj forward 30 and backward 40, attention 10, layer 1: q_proj 20 and 30, silu 6,
    optimizer 12, host 14, engine 6, communication 26, residual 4

Rank 1 has 36 in place of 30, and 20 in place of 26. Its clean steps take 96 and 98 ms, like those of rank 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flagscale_perf.profile.calls import CallFiles, StepCalls
from flagscale_perf.profile.records import (
    CollectiveRecord,
    MemoryRecord,
    RankRecord,
    RoofRecord,
    RowRecord,
    Sort,
    StepRecord,
    WindowRecord,
)
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.peers.records import NameRecord, ProcessRecord
from flagscale_perf.spine.records import SCHEMA_VERSION, Record, RunEnd, RunHeader

US, MS, SECOND = 1000, 1_000_000, 1_000_000_000
START_WALL_NS = 1_706_524_200 * SECOND
GROUP = "TENSOR_MODEL_PARALLEL_GROUP"
LAYER = "model.layers.{}"
FORWARD, BACKWARD, OPTIMIZER, OTHER = "forward", "backward", "optimizer", "other"
MATMUL, ATTENTION, SILU = "aten::mm", "aten::_scaled_dot_product_flash_attention_for_cpu", "aten::silu"
WAIT_MS = 3
EMBEDDING, Q_PROJ = "model.embed_tokens", "model.layers.{}.self_attn.q_proj"
ROWS: Sequence[tuple[str, str, Sort, str, int, int, int | None, int | None]] = (
    # phase, module, sort, op, runs, ms, FLOPs, bytes
    (FORWARD, EMBEDDING, Sort.OPERATOR, "aten::embedding", 2, 4, None, 4_000_000),
    (FORWARD, Q_PROJ.format(0), Sort.OPERATOR, MATMUL, 2, 30, 1_500_000_000, 30_000_000),
    (BACKWARD, Q_PROJ.format(0), Sort.OPERATOR, MATMUL, 4, 40, 3_000_000_000, 60_000_000),
    (FORWARD, "model.layers.0.self_attn", Sort.OPERATOR, ATTENTION, 2, 10, 200_000_000, 10_000_000),
    (FORWARD, Q_PROJ.format(1), Sort.OPERATOR, MATMUL, 2, 20, 1_500_000_000, 30_000_000),
    (BACKWARD, Q_PROJ.format(1), Sort.OPERATOR, MATMUL, 4, 30, 3_000_000_000, 60_000_000),
    (FORWARD, "model.layers.1.mlp", Sort.OPERATOR, SILU, 2, 6, None, 48_000_000),
    (FORWARD, "model.layers.0.self_attn", Sort.COMMUNICATION, "gloo:all_reduce", 2, 16, None, None),
    (FORWARD, "model.layers.1.self_attn", Sort.COMMUNICATION, "gloo:all_reduce", 2, 10, None, None),
    (OPTIMIZER, "", Sort.OPERATOR, "aten::_foreach_add_", 2, 12, None, None),
    (FORWARD, "model.layers.0", Sort.HOST, "", 2, 10, None, None),
    (OTHER, "", Sort.HOST, "", 2, 4, None, None),
    (BACKWARD, "", Sort.ENGINE, "", 2, 6, None, None),
)
COLLECTIVES_MS = (
    (20, 7),
    (60, 5),
    (120, 9),
    (170, 5),
)  # start and duration on rank 0, the last to arrive aside


def make_profile_header(session_id: str = "20240129_103000", **changed: Any) -> RunHeader:
    """Of a run that began on 2024-01-29 10:30:00 UTC, when the monotonic clock stood at 0."""
    facts = {"job": "pretrain", "versions": {"torch": "2.13.0"}, "machine": "node0"}
    fields: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "session_id": session_id,
        "start_wall_ns": START_WALL_NS,
        "start_mono_ns": 0,
        "facts": facts,
        "config": {},
        "instrument": "profile",
        "host": "node0",
        "boot_id": "5b0f2d5c-8a31-4d1b-9f0e-2f6f3a7c1e42",
        "pid": 1234,
    }
    return RunHeader(**fields | changed)


class Profiled:
    """Records of ranks, as the writer has them."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._names: dict[tuple[int, str], int] = {}
        self._numbers: dict[int, int] = {}
        self._files: dict[Path, CallFiles] = {}

    def rank(self, rank: int, world_size: int = 2, **changed: Any) -> int:
        """The number of its process."""
        process = len(self._numbers) + 1
        self._numbers[process] = 0
        self.records.append(ProcessRecord(process, 4000 + rank, f"rank {rank}", 0, None, 0, None))
        texts = {"host": "megatron", "model": "GPTModel", "device": "cpu", "mode": "eager"}
        places = {
            "tensor": rank,
            "tensor_size": world_size,
            "pipeline": 0,
            "pipeline_size": 1,
            "data": 0,
            "data_size": 1,
            "expert": None,
            "expert_size": None,
        }
        self.add(RankRecord, process, rank=rank, world_size=world_size, modules=9, **texts | places | changed)
        return process

    def name(self, process: int, text: str) -> int:
        """Its number for a text."""
        if not text:
            return 0
        known = self._names.get((process, text))
        if known is None:
            known = 1 + sum(owner == process for owner, _ in self._names)
            self._names[process, text] = known
            self.records.append(NameRecord(process, known, text))
        return known

    def add(self, record_type: Any, process: int, **values: Any) -> Any:
        """A record; its texts become names. Fields that are not given are None."""
        made = {
            name: self.name(process, value) if isinstance(value, str) else value
            for name, value in values.items()
        }
        self._numbers[process] += 1
        fields = dict.fromkeys(record_type._fields) | made
        record = record_type(**fields | {"process": process, "number": self._numbers[process]})
        self.records.append(record)
        return record

    def step(self, process: int, start_ms: int, total_ms: int, *parts_ms: int, **changed: Any) -> StepRecord:
        """A profiled one with the parts: in modules, outside, host, engine, communication, residual; a clean
        one without.
        """
        names = ("operators_ns", "outside_ns", "host_ns", "engine_ns", "communication_ns", "residual_ns")
        parts = {name: part * MS for name, part in zip(names, parts_ms, strict=False)}
        fields = {
            "window": 1,
            "phase": "train",
            "is_profiled": int(bool(parts)),
            "start_ns": start_ms * MS,
            "total_ns": total_ms * MS,
            "events": 500 if parts else None,
            "samples": 4,
            "tokens": 4096,
        }
        made: StepRecord = self.add(StepRecord, process, **fields | parts | changed)
        return made

    def row(self, process: int, row: tuple[Any, ...], **changed: Any) -> RowRecord:
        """One of `ROWS`."""
        phase, module, sort, op, runs, ms, flops, moved = row
        fields = {
            "window": 1,
            "step_phase": "train",
            "phase": phase,
            "module": module,
            "sort": int(sort),
            "op": op,
            "steps": 2,
            "runs": runs,
            "self_ns": ms * MS,
            "total_ns": ms * MS,
            "flops": flops,
            "moved_bytes": moved,
        }
        made: RowRecord = self.add(RowRecord, process, **fields | changed)
        return made

    def collective(self, process: int, start_ms: int, total_ms: int, **changed: Any) -> CollectiveRecord:
        """An all-reduce of 1 MB in the tensor-parallel group."""
        fields = {
            "window": 1,
            "phase": FORWARD,
            "module": LAYER.format(0) + ".self_attn",
            "start_ns": start_ms * MS,
            "total_ns": total_ms * MS,
            "op": "gloo:all_reduce",
            "call": "c10d::allreduce_",
            "group": GROUP,
            "group_size": 2,
            "ordinal": 0,
            "size_bytes": 1_000_000,
            "exposed_ns": total_ms * MS,
        }
        made: CollectiveRecord = self.add(CollectiveRecord, process, **fields | changed)
        return made

    def window(self, process: int, **changed: Any) -> WindowRecord:
        """Of 2 profiled and 2 clean steps."""
        fields = {
            "start_ns": 0,
            "total_ns": 396 * MS,
            "steps": 2,
            "clean_steps": 2,
            "events": 1000,
            "dropped_events": 0,
            "begin_ns": 2 * MS,
            "end_ns": 3 * MS,
            "reduce_ns": 20 * MS,
            "reason": "",
            "calls": "",
        }
        made: WindowRecord = self.add(WindowRecord, process, **fields | changed)
        return made

    def runs(self, directory: Path, steps: Mapping[int, Sequence[Run]]) -> str:
        """The file of these runs by the number of their step, for `window(calls=...)`."""
        files = self._files.setdefault(directory, CallFiles(directory))
        return files.write([(number, _step_runs(runs)) for number, runs in steps.items()])

    def content(self, header: RunHeader | None = None, end: str | None = "completed") -> bytes:
        """Of the run file."""
        header = header or make_profile_header()
        ends = [RunEnd(end, header.start_wall_ns + SECOND, 0, 0)] if end is not None else []
        return b"".join(map(encode, [header, *self.records, *ends]))

    def write(self, directory: Path, header: RunHeader | None = None, end: str | None = "completed") -> Path:
        """The run file."""
        header = header or make_profile_header()
        path = directory / f"perf_records_{header.session_id}.jsonl"
        path.write_bytes(self.content(header, end))
        return path


class Run(NamedTuple):
    """One of an operator, or of a module where `op` is ""; its time is its own."""

    part: str
    module: str
    op: str
    self_ns: int
    device_ns: int = 0


def _step_runs(runs: Sequence[Run]) -> StepCalls:
    texts = [list(dict.fromkeys(column)) for column in list(zip(*runs, strict=True))[:3]]
    own, device = (np.array([run[place] for run in runs], np.int64) for place in (3, 4))
    part, module, op = (
        np.array([texts[place].index(str(run[place])) for run in runs], np.int64) for place in range(3)
    )
    return StepCalls(
        *texts,
        part,
        module,
        op,
        np.arange(len(runs)),
        np.cumsum(own) - own,
        own,
        own,
        device_ns=device if device.any() else None,
    )


def make_profile(scale: float = 1.0, **rank_changed: Any) -> Profiled:
    """The job of this module's text; layer 1 takes `scale` times as long."""
    job = Profiled()
    for rank in (0, 1):
        add_rank(job, rank, scale, **rank_changed)
    return job


def add_rank(job: Profiled, rank: int, scale: float = 1.0, **changed: Any) -> None:
    """One rank with all its records."""
    process = job.rank(rank, **changed)
    shift = WAIT_MS * rank
    more = round(56 * (scale - 1) / 2)  # of layer 1 in each step
    starts = (0, 110, 210, 320)
    steps = [
        job.step(process, starts[0], 100 + more, 70 + more + shift, 6, 7, 3, 12 - shift, 2, iteration=20),
        job.step(process, starts[1], 96 + more, iteration=21),
        job.step(process, starts[2], 102 + more, 70 + more + shift, 6, 7, 3, 14 - shift, 2, iteration=22),
        job.step(process, starts[3], 98 + more, iteration=23),
    ]
    for row in ROWS:
        job.row(process, _of_rank(row, rank, scale))
    for place, (start, took) in enumerate(COLLECTIVES_MS):
        late = shift if place % 2 == 0 else 0
        module = LAYER.format(place % 2) + ".self_attn"
        job.collective(
            process,
            start + late,
            took - late,
            sequence=place + 1,
            ordinal=place,
            module=module,
            step=steps[place // 2 * 2].number,
        )
    for layer, held in ((0, 3_000_000), (1, 1_000_000)):
        memory = {
            "window": 1,
            "step_phase": "train",
            "phase": FORWARD,
            "module": LAYER.format(layer),
            "op": "",
            "allocations": 10,
            "allocated_bytes": 8_000_000,
            "retained_bytes": held,
            "transient_bytes": 2_000_000,
            "largest_bytes": 1_000_000,
            "peak_bytes": 6_000_000 + held,
        }
        job.add(MemoryRecord, process, **memory)
    for roof, per_second in (("matmul.float32", 200_000_000_000), ("copy", 10_000_000_000)):
        job.add(RoofRecord, process, roof=roof, per_second=per_second)
    job.window(process)


def _of_rank(row: tuple[Any, ...], rank: int, scale: float) -> tuple[Any, ...]:
    phase, module, sort, op, runs, ms, flops, moved = row
    if rank == 1 and (phase, module) == (FORWARD, Q_PROJ.format(0)):
        ms += 2 * WAIT_MS
    if rank == 1 and sort is Sort.COMMUNICATION and ".0." in module:
        ms -= 2 * WAIT_MS
    if ".1." in module and sort is Sort.OPERATOR:
        ms = round(ms * scale)
    return phase, module, sort, op, runs, ms, flops, moved
