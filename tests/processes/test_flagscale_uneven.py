"""Real runs in which ranks have unequal work, are slower, or both: the report says which, as planted."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.training.analysis.fold import read_report
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.rank_records import PHASE_BASE
from tests.processes import flagscale as fs
from tests.processes import uneven_batches
from tests.processes.slept import Said, said, slept

pytestmark = pytest.mark.host

SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
ITERATIONS, MICROBATCHES = 80, 2
SLEEPS = {"UNEVEN_CONSTANT_S": "0.01", "UNEVEN_TOKEN_S": "0.0004"}
MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")
COMPUTING = ("forward", "backward")
FORWARD = PHASES.index("forward")
# Four ranks sleep for longer than two cores compute for them.
RANKS = pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.long)])


@dataclass(frozen=True)
class Run:
    """One that has ended.

    Attributes:
        told: what its ranks slept.
    """

    report: TrainingReport
    told: list[Said]

    def late_ns(self) -> tuple[float, float]:
        """What the late ranks cost in computing, and what of it is more work, in a mean step."""
        (ledger,) = self.report.ledgers
        rows = [row for row in ledger.late if row.phase in COMPUTING]
        assert {row.ranks for row in rows} <= {(1,)}
        cost_ns, more_ns = sum(row.cost_ns for row in rows), sum(row.more_work_ns or 0 for row in rows)
        return cost_ns / ledger.steps, more_ns / ledger.steps

    def slept_ns_in(self, rank: int, step: int) -> int:
        """By its work in one step."""
        return slept(self.told, lambda one: (one.rank, one.step) == (rank, step) and "work" in one.what)

    def slept_ns(self, rank: int, begin: str = "work") -> float:
        """In a mean step."""
        found = [one for one in self.told if one.rank == rank and one.what.startswith(begin) and one.step > 1]
        return sum(one.slept_ns for one in found) / (ITERATIONS - 1)


def train(directory: Path, shares: list[float], plants: str = "", spread: float = 0.3) -> Run:
    ranks = len(shares)
    script = [SLOWED_PARTS, plants, uneven_batches.__file__, fs.train_gpt(), *fs.SMALL, *fs.LLAMA]
    host = ["--reset-position-ids", "--reset-attention-mask", "--train-iters", ITERATIONS]
    batch = ["--global-batch-size", 2 * MICROBATCHES * ranks]
    words = fs.launched(*map(str, [*script, *host, *batch, *MONITOR]))
    uneven = {"UNEVEN_SHARES": ",".join(map(str, shares)), "UNEVEN_SPREAD": str(spread)}
    finished = fs.run(fs.workers(ranks, *words), directory, **SLEEPS, **uneven)
    assert finished.returncode == 0, finished.output[-3000:]
    (path,) = (directory / "perf").glob("perf_records_*.jsonl")
    run = Run(read_report(open_session(path)), said(directory))
    (ledger,) = run.report.ledgers
    rows = [(each.ranks, each.phase, each.cause, each.more_work, each.work_speed) for each in ledger.late]
    print(ledger.step_ms(ledger.total_ns), rows, ledger.uneven)
    print([(one.title, one.cause) for one in run.report.findings])
    print([run.slept_ns(rank) / 1e6 for rank in range(ranks)])
    return run


SLOW = ",".join(f"{phase}:{ms / 1000}:calls:1" for phase, ms in (("forward", 14), ("backward", 28)))


def is_found(run: Run, work_share: float, cause: str) -> bool:
    """Whether rank 1 alone is late in computing, this share of it by more work. Where the host is short of
    CPU a rank's speed is not its own: as much as is known must be so, and no other cause is named.
    """
    (ledger,) = run.report.ledgers
    late = [one for one in run.report.findings if one.name == "straggler" and one.phase in COMPUTING]
    assert [one.ranks for one in late] == [[1]] * len(late)
    named = {one.cause for one in late}
    if any(one.name == "host_short_of_cpu" for one in run.report.findings):
        shares = [row.more_work for row in ledger.late if row.phase in COMPUTING]
        known = [(least, most) for _, least, most in filter(None, shares)]
        within = all(least <= work_share + 0.2 and most >= work_share - 0.2 for least, most in known)
        return within and named <= {cause, None}
    cost_ns, more_ns = run.late_ns()
    return late != [] and abs(more_ns / cost_ns - work_share) <= 0.2 and named <= {cause, None} != {None}


@RANKS
def test_longer_batches_on_one_rank_are_more_work(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.5, 0.75, 0.5, 0.5][:ranks])
    assert is_found(run, 1.0, "work")
    changes = [str(one.changes) for one in run.report.findings if one.cause == "work"]
    assert all("batches of equal cost" in each and "leave" not in each for each in changes)


@RANKS
def test_the_same_lateness_by_a_sleep_is_slower(ranks: int, tmp_path: Path) -> None:
    assert is_found(train(tmp_path, [0.5] * ranks, SLOW), 0.0, "speed")


@RANKS
def test_of_both_each_has_its_share(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.5, 0.75, 0.5, 0.5][:ranks], SLOW)
    work_ns = run.slept_ns(1) - run.slept_ns(0)
    plant_ns = run.slept_ns(1, "forward") + run.slept_ns(1, "backward")
    assert is_found(run, work_ns / (work_ns + plant_ns), "both")


@RANKS
def test_batches_uneven_in_turns_are_one_row(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.6] * ranks, spread=0.6)
    (ledger,) = run.report.ledgers
    gains = []
    for step in fs.records(tmp_path / "perf", "cuts"):
        columns, ns = len(step["columns"]), step["own_ns"]
        if step["sizes"] != [1] * ranks:
            continue  # a rank had not been found yet
        (cut,) = {each // PHASE_BASE for each in step["columns"] if each % PHASE_BASE == FORWARD}
        way = [place for place, each in enumerate(step["columns"]) if each // PHASE_BASE == cut]
        arrivals = [sum(ns[rank * columns + place] for place in way) for rank in range(ranks)]
        slept = [run.slept_ns_in(rank, step["iteration"]) for rank in range(ranks)]
        even = [ns + sum(slept) / ranks - own for ns, own in zip(arrivals, slept, strict=True)]
        gains.append(max(arrivals) - max(even))
    truth_ns = sum(gains) / len(gains)
    print(truth_ns / 1e6)
    assert ledger.late == []
    assert ledger.uneven.cost_ns / ledger.steps == pytest.approx(truth_ns, rel=0.2)
    (found,) = (one for one in run.report.findings if one.name == "uneven_batches")
    assert (found.ranks, found.cause) == ([], "work")
    assert found.title.startswith(f"Uneven batches: the last of {ranks} costs ")


def test_even_batches_are_no_cause(tmp_path: Path) -> None:
    """No more than what the host is short of CPU for, which no rank has by itself."""
    run = train(tmp_path, [0.5] * 2, spread=0.0)
    (ledger,) = run.report.ledgers
    short = [each.cost_of_steps or 0.0 for each in run.report.findings if each.name == "host_short_of_cpu"]
    assert ledger.uneven.cost_ns == 0
    assert all(row.cause != "work" and ledger.share(row.cost_ns) <= sum(short) for row in ledger.late)
