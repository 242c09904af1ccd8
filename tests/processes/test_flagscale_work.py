"""The work of each rank of real runs, beside its time, against a book of what the model was given."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.work import UNKNOWN, WORK
from tests.processes import booked_work
from tests.processes import flagscale as fs
from tests.processes.booked_work import Booked, booked

pytestmark = pytest.mark.host

RANKS, STEPS, LONGEST = 2, 36, "40"
MONITOR = (
    "--enable-perf-monitor",
    "--perf-breakdown",
    "--perf-log-dir",
    "perf",
    "--perf-max-overhead",
    "100",
)
TWO_BATCHES = ("--global-batch-size", "8")
PACKED = (*TWO_BATCHES, "--reset-attention-mask", "--reset-position-ids")
MIXTURE = (
    *("--num-experts", "4", "--moe-router-topk", "2", "--moe-ffn-hidden-size", "64", "--disable-bias-linear"),
    *("--moe-token-dispatcher-type", "alltoall", "--expert-model-parallel-size", "2", "--swiglu"),
    *("--recompute-granularity", "full", "--recompute-method", "uniform", "--recompute-num-layers", "1"),
)
Works = dict[tuple[int, int], dict[str, int]]  # by step and rank


def trained(directory: Path, *more: str, **env: str) -> fs.Finished:
    """A run of two data-parallel ranks, with a book."""
    script = [booked_work.__file__, fs.train_gpt(), *fs.SMALL, "--vocab-size", "4200"]
    words = [*script, "--train-iters", str(STEPS), *more]
    finished = fs.run(fs.workers(RANKS, *fs.launched(*words)), directory, BOOKED_LONGEST=LONGEST, **env)
    assert finished.returncode == 0, finished.output[-4000:]
    return finished


def recorded(directory: Path) -> Works:
    """By the run file."""
    found: Works = {}
    for record in fs.records(directory / "perf", "cuts"):
        assert record["sizes"] == [1] * RANKS, "a row for each rank"
        for row, rank in enumerate(record["ranks"]):
            values = record["work"][row * len(WORK) : (row + 1) * len(WORK)]
            found[record["iteration"], rank] = dict(zip(WORK, values, strict=True))
    assert len(found) > STEPS, "most steps of both ranks"
    return found


def by_step(lines: list[Booked]) -> dict[tuple[int, int], list[Booked]]:
    found = defaultdict(list)
    for line in lines:
        found[line.step, line.rank].append(line)
    return found


def test_packed_documents_and_one_micro_batch_more(tmp_path: Path) -> None:
    """Known to the token, while the host trains as it does without a monitor."""
    for name in ("on", "off"):
        (tmp_path / name).mkdir()
    watched = trained(tmp_path / "on", *PACKED, *MONITOR, BOOKED_EXTRA="1")
    alone = trained(tmp_path / "off", *PACKED, BOOKED_EXTRA="1")
    assert watched.lines == alone.lines and len(watched.lines) == STEPS
    book = by_step(booked(tmp_path / "on"))
    for place, work in recorded(tmp_path / "on").items():
        passes = book[place]
        assert work == {
            "tokens": sum(each.tokens for each in passes),
            "squared_lengths": sum(each.squared_lengths for each in passes),
            "expert_tokens": UNKNOWN,
            "microbatches": len(passes),
        }
    assert {len(passes) for passes in book.values()} == {2, 3}
    for step in fs.records(tmp_path / "on" / "perf"):
        mine = book[step["iteration"], 0]
        assert step["rank_squared_lengths"] == sum(each.squared_lengths for each in mine)
        assert step["rank_tokens"] == sum(each.tokens for each in mine)
    facts = read_report(open_session(tmp_path / "on" / "perf")).overview.missing
    assert any("FLOPs count other ranks' as rank 0's" in each and "multiply MFU" in each for each in facts)


def test_tokens_that_hot_experts_receive(tmp_path: Path) -> None:
    """By what the routers of both ranks chose; layers that are recomputed route the same tokens again."""
    trained(tmp_path, *MIXTURE, *MONITOR)
    received: Counter[tuple[int, int]] = Counter()
    for line in booked(tmp_path):
        if line.what.startswith("expert"):
            received[line.step, int(line.what.removeprefix("expert ")) // 2] += line.tokens
    for place, work in recorded(tmp_path).items():
        squared = 128 * fs.SEQ_LENGTH
        assert work == {
            "tokens": 128,
            "squared_lengths": squared,
            "expert_tokens": received[place],
            "microbatches": 1,
        }
    assert max(received.values()) > 1.05 * min(received.values()), "uneven"
