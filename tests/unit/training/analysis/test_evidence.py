"""What captured steps say of the clocks of a pipeline's machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.clocks import Clocks
from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.spine.records import Record
from flagscale_perf.training.analysis.evidence import bounds_of
from flagscale_perf.training.rank_records import NodeRecord
from tests.fakes import make_facts, make_header
from tests.pipelines import Schedule

AHEAD_NS = 3_000_000_000


def run_file(path: Path, captured: list[Record], there: list[int], overlap: bool) -> Session:
    """Of two stages of two replicas, these ranks on another machine."""
    facts = make_facts(
        hostname="node0",
        world_size=4,
        pipeline_parallel=2,
        pipeline_schedule="1f1b",
        tensor_parallel=1,
        expert_parallel=1,
        arguments={"overlap_grad_reduce": overlap},
    )
    here = [rank for rank in range(4) if rank not in there]
    nodes = [
        NodeRecord(host, ranks, [1, 2], ["CPU"] * 2, [rank // 2 for rank in ranks])
        for host, ranks in (("node0", here), ("node1", there))
    ]
    moved = [replace(each, start_ns=each.start_ns + AHEAD_NS * (each.rank in there)) for each in captured]
    path.write_bytes(b"".join(map(encode, [make_header(facts=facts), *nodes, *moved])))
    return open_session(path)


@pytest.mark.parametrize(
    ("there", "overlap", "messages"),
    # two steps of two replicas: eight messages each way; or two stages' gradients, once each way in each step
    [([2, 3], True, 64), ([1, 3], False, 8), ([1, 3], True, 0)],
)
def test_the_planted_offset_is_within_the_interval(
    there: list[int], overlap: bool, messages: int, tmp_path: Path
) -> None:
    captured, _ = Schedule(stages=2, replicas=2, batches=8, seed=5).run()
    session = run_file(tmp_path / "perf_records_20240129_103000.jsonl", captured, there, overlap)
    bounds = list(bounds_of([session]))
    assert len(bounds) == messages
    clocks = Clocks([session.header], lambda: bounds)
    uncertainty_ns = clocks.uncertainty_ns("node1", captured[0].start_ns + AHEAD_NS)
    if not messages:
        assert (uncertainty_ns, clocks.mover("node1"), clocks.lines(with_others=True)) == (None, None, [])
        return
    move = clocks.mover("node1")
    assert move is not None and uncertainty_ns is not None
    for step in captured:
        off_ns = abs(move(step.start_ns + AHEAD_NS) - step.start_ns)
        assert off_ns <= (clocks.uncertainty_ns("node1", step.start_ns + AHEAD_NS) or 0)
    assert clocks.lines(with_others=True)[0].startswith("clock of node1: +")
    assert clocks.lines(with_others=True)[0].endswith(f"({messages} messages both ways)")
