"""The order in which stages take their micro-batches, beside Megatron-Core's own functions."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from flagscale_perf.whatif.schedules import Shape, order_of
from tests.processes import flagscale as fs

pytestmark = pytest.mark.host

ASK = """
import json, sys, types
from megatron.core.pipeline_parallel import schedules

def order_of(stages, batches, chunks, group, stage):
    of_stage = types.SimpleNamespace(size=lambda: stages, rank=lambda: stage)
    virtual = chunks if chunks > 1 else None
    talks = types.SimpleNamespace(pp_group=of_stage, virtual_pipeline_model_parallel_size=virtual)
    table = schedules.get_schedule_table(batches, chunks, group if chunks > 1 else batches)
    *_, ahead, _ = schedules.get_pp_rank_microbatches(batches, chunks, group, p2p_communicator=talks)
    return ahead, table, schedules.convert_schedule_table_to_order(ahead, chunks, table)

json.dump([order_of(*shape) for shape in json.load(sys.stdin)], sys.stdout)
"""
SHAPES = [
    Shape(stages, batches, chunks, group)
    for stages in (2, 3, 4, 8, 16)
    for chunks in (1, 2, 3, 4)
    for group in ({1} if chunks == 1 else {stages, stages + 1, 2 * stages})
    for batches in (*range(1 if chunks == 1 else group, 2 * stages + 2), 8 * stages, 256)
    if chunks == 1 or group <= batches and not 0 < batches % group < stages
]


def test_the_order_is_that_of_megatron() -> None:
    """By the chunk of each pass, and, of the table, by the micro-batch."""
    every = [(*shape, stage) for shape in SHAPES for stage in range(shape.stages)]
    paths = [str(fs.root() / "third_party" / "Megatron-LM"), str(fs.root())]
    code = f"import sys; sys.path[:0] = {paths!r}{ASK}"
    asked = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(every),
        capture_output=True,
        text=True,
        timeout=fs.DEADLINE_S,
    )
    assert asked.returncode == 0, asked.stderr[-2000:]
    answers = json.loads(asked.stdout[asked.stdout.index("[[") :])
    assert len(answers) == len(every) > 1000
    for (*shape, stage), (ahead, table, order) in zip(every, answers, strict=True):
        ours = order_of(Shape(*shape), stage)
        chunks = shape[2]
        assert [one.chunk + 1 if one.is_forward else -one.chunk - 1 for one in ours] == order, (shape, stage)
        forward = [[one.batch, one.chunk] for one in ours if one.is_forward]
        backward = [[one.batch, chunks - 1 - one.chunk] for one in ours if not one.is_forward]
        assert forward == backward == table, (shape, stage)
        assert all(one.is_forward for one in ours[:ahead])
