"""Communication of the real FlagScale and Megatron-LM, held against the clock of those who call it: a wrapper
around torch.distributed in the ranks. One run has all of it: tensor and sequence parallelism with the
vocabulary-parallel loss, and data parallelism that overlaps its collectives with the passes.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis import files
from flagscale_perf.profile.analysis.communication import label_of
from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Rank, read_profile
from flagscale_perf.profile.operations import operation_of
from flagscale_perf.spine.clock import NS_PER_S
from tests.processes import flagscale as fs
from tests.processes.profiled_shapes import MONITOR, OPTIMIZER, TENSOR
from tests.processes.timed_collectives import COALESCED

pytestmark = pytest.mark.host

RANKS = 4
SCRIPT = Path(__file__).with_name("timed_collectives.py")
PYTHON_NS = 200_000  # of a call before torch has an event for it, and after; when it has a processor
GATHER, SCATTER, LOSS = "TP all_gather", "TP reduce_scatter", "TP all_reduce"


@pytest.fixture(name="run", scope="module")
def _run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("collectives")
    script = [SCRIPT, fs.train_gpt(), *fs.SMALL, "--train-iters", "6", "--sequence-parallel"]
    words = fs.launched(*map(str, script), *TENSOR, *OPTIMIZER, *MONITOR)
    done = fs.run(fs.workers(RANKS, *words), directory)
    assert done.returncode == 0, done.output[-3000:]
    return directory


@pytest.fixture(name="found", scope="module")
def _found(run: Path) -> ProfileReport:
    (path,) = (
        path
        for path in (run / "perf").glob("perf_records_*.jsonl")
        if json.loads(path.open().readline())["instrument"] == "profile"
    )
    return report_of(read_profile(open_session(path)))


def said(run: Path, rank: Rank) -> tuple[Counter[str], Counter[str], Counter[str], Counter[str]]:
    """What the rank says of its profiled steps: time by what is called, what of it was without a processor,
    how long it was without one before those calls, and the number of calls.
    """
    took, delayed, before, calls = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    steps = [
        (begin, begin + total)
        for begin, total in zip(
            rank.profiled["start_ns"].tolist(), rank.profiled["total_ns"].tolist(), strict=True
        )
    ]
    for name, begin_ns, end_ns, delay_ns, before_ns in json.loads(
        (run / f"timed_{rank.rank}.json").read_text()
    ):
        if any(begin <= begin_ns < end for begin, end in steps):
            group, _, operation = name.rpartition(" ")
            for key in (f"{label_of(group)} {operation}".strip(), ""):
                took[key] += end_ns - begin_ns
                delayed[key] += delay_ns
                before[key] += before_ns
                calls[key] += 1
    return took, delayed, before, calls


def measured(rank: Rank) -> Counter[str]:
    """Exposed time of the same, as recorded."""
    exposed: Counter[str] = Counter()
    for record in rank.collectives.records():
        is_coalesced = "tensor_coalesced" in record["call"]
        kind = f"{label_of(record['group'])} {operation_of(record['call'])}"
        for key in (COALESCED if is_coalesced else kind, ""):
            exposed[key] += record["exposed_ns"]
    return exposed


@pytest.mark.parametrize("kind", [GATHER, SCATTER, LOSS, COALESCED, ""])
def test_a_ranks_communication_is_what_its_callers_clock_says(
    run: Path, found: ProfileReport, kind: str
) -> None:
    """To 10 %. When an operation is over, its caller goes on as soon as it has a processor: what it waits for
    that is not the operation's, and what Python takes of each call is Python. A wait that follows other work
    without an operator of torch between them begins for us where that work ends.
    """
    for rank in found.profile.ranks:
        took, delayed, before, calls = (one[kind] for one in said(run, rank))
        exposed_ns = measured(rank)[kind]
        assert calls > 0
        assert exposed_ns <= 1.1 * took + before + calls * PYTHON_NS, (rank.rank, exposed_ns, took, before)
        assert exposed_ns >= 0.9 * took - delayed - calls * PYTHON_NS, (rank.rank, exposed_ns, took)


def test_each_steps_parts_have_the_same_as_its_collectives(found: ProfileReport) -> None:
    """To the nanosecond."""
    assert len(found.profile.ranks) == RANKS
    for rank in found.profile.ranks:
        exposed: Counter[int] = Counter()
        for record in rank.collectives.records():
            exposed[record["step"]] += record["exposed_ns"]
        steps, parts = (rank.profiled[name].tolist() for name in ("number", "communication_ns"))
        assert exposed == dict(zip(steps, parts, strict=True)) and len(steps) == 2


def test_no_two_figures_of_the_run_contradict_each_other(found: ProfileReport) -> None:
    """The sum of the operations, the file's total, and the part of the mean step."""
    said = files.comm_analysis(found)["communication_analysis"]
    books = found.sums["train"].mean
    assert said["total_comm_time"] == pytest.approx(books.communication * books.steps / NS_PER_S)
    parts = said["by_operation_type"].values()
    assert sum(one["total_time"] for one in parts) == pytest.approx(said["total_comm_time"])
    assert said["comm_percentage"] == pytest.approx(100 * books.communication / books.total)
