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


@dataclass(frozen=True)
class Run:
    """One that has ended.

    Attributes:
        told: what its ranks slept.
    """

    report: TrainingReport
    told: list[Said]

    def late_ns(self, cause: str) -> tuple[float, float]:
        """What the late ranks cost in computing, and what of it is of this cause, in a mean step."""
        (ledger,) = self.report.ledgers
        rows = [row for row in ledger.late if row.phase in COMPUTING]
        assert {row.ranks for row in rows} <= {(1,)}
        cost_ns, more_ns = sum(row.cost_ns for row in rows), sum(row.more_work_ns or 0 for row in rows)
        return cost_ns / ledger.steps, (more_ns if cause == "work" else cost_ns - more_ns) / ledger.steps

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


def computing(run: Run) -> set[str | None]:
    """The causes that findings name of what ranks wait for in computing, of the first rank alone."""
    found = [one for one in run.report.findings if one.name == "straggler" and one.phase in COMPUTING]
    assert [one.ranks for one in found] == [[1]] * len(found) and found
    return {one.cause for one in found}


@pytest.mark.parametrize("ranks", [2, 4])
def test_longer_batches_on_one_rank_are_more_work(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.5, 0.75, 0.5, 0.5][:ranks])
    cost_ns, more_ns = run.late_ns("work")
    assert more_ns >= 0.8 * cost_ns > 0
    assert computing(run) <= {"work", None} != {None}
    advice = str([one.changes for one in run.report.findings if one.cause == "work"])
    assert "batches of equal cost" in advice and "leave" not in advice


@pytest.mark.parametrize("ranks", [2, 4])
def test_the_same_lateness_by_a_sleep_is_slower(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.5] * ranks, SLOW)
    cost_ns, slower_ns = run.late_ns("speed")
    assert slower_ns >= 0.8 * cost_ns > 0
    assert computing(run) <= {"speed", None} != {None}


@pytest.mark.parametrize("ranks", [2, 4])
def test_of_both_each_has_its_share(ranks: int, tmp_path: Path) -> None:
    run = train(tmp_path, [0.5, 0.75, 0.5, 0.5][:ranks], SLOW)
    cost_ns, more_ns = run.late_ns("work")
    work_ns = run.slept_ns(1) - run.slept_ns(0)
    plant_ns = run.slept_ns(1, "forward") + run.slept_ns(1, "backward")
    assert more_ns / cost_ns == pytest.approx(work_ns / (work_ns + plant_ns), abs=0.2)
    assert computing(run) <= {"both", None}


@pytest.mark.parametrize("ranks", [2, 4])
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
    run = train(tmp_path, [0.5] * 2, spread=0.0)
    (ledger,) = run.report.ledgers
    assert (ledger.late, ledger.uneven.cost_ns) == ([], 0)
