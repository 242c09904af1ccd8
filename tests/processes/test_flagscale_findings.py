"""Real runs with planted causes: they are found, and what removing one would gain is what was planted, by
what the processes say that they slept.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.training.analysis.fold import read_report
from tests.processes import flagscale as fs
from tests.processes import padded_stages
from tests.processes.planted_runs import UNPLANTED
from tests.processes.slept import Said, said, slept

pytestmark = pytest.mark.host

SLOWED_PARTS = Path(__file__).with_name("slowed_parts.py")
# Rates need 20 settled steps, and on a busy machine a slow start may take half of them (`training.settled`).
ITERATIONS = 42
SAMPLES, SAVE_EVERY, SLOW_UNTIL = 4, 21, 11
SAMPLE_S, CHECKPOINT_S, START_S, PACE_S = 0.025, 0.8, 0.35, 0.16
MICROBATCHES, EXCESS_S = 12, 0.02  # so many that the bubble is within its limit
RANK_EXCESS_S = 0.12
PADS = {"PADDED_FORWARD_S": "0.01", "PADDED_BACKWARD_S": "0.02"}
STAGE_PADS = {"PADDED_FORWARD_S": "0.002", "PADDED_BACKWARD_S": "0.004"}
MONITOR = ("--enable-perf-monitor", "--perf-breakdown", "--perf-max-overhead", 100, "--perf-log-dir", "perf")


@dataclass(frozen=True)
class Run:
    """One that has ended.

    Attributes:
        findings: without those that a busy machine may make on its own, the costliest first.
        host_share: of the steps' time, what the host was short of; no loader and no rank is blamed for that.
        logged: what the host itself printed of each iteration.
    """

    directory: Path
    findings: list[Finding]
    told: list[Said]
    host_share: float
    logged: list[fs.Logged]

    def finding(self, name: str) -> Finding:
        """The one that is called so."""
        (found,) = [each for each in self.findings if each.name == name]
        return found

    def slept_ns(self, what: str, step: int) -> int:
        """In that part of that step."""
        return slept(self.told, lambda each: (each.what, each.step) == (what, step))

    @property
    def settled(self) -> list[dict[str, Any]]:
        """Its steps without the first one and those of a slow start: what rates and gains are of. A run that
        has not settled, as on a busy machine, is judged by all but the first.
        """
        first = fs.summary(self.directory / "perf")["settled"]["first_iteration"] or 2
        return [step for step in fs.records(self.directory / "perf") if step["iteration"] >= first]


def is_gain_of(
    found: Finding, slept_ns: Sequence[float], steps: Sequence[dict[str, Any]], host_share: float = 0.0
) -> bool:
    """Whether it is that of removing what was slept, step by step, from these steps: the usual one for each
    of them less what the host was short of, all of it where a busy machine made some sleep for longer, or
    anything between. Its cost is that to a tenth, and its gain's interval has it.
    """
    steps_ns = sum(step["iteration_ns"] for step in steps)
    usual_ns, all_ns = len(slept_ns) * statistics.median(slept_ns), sum(slept_ns)
    least = 0.9 * (min(usual_ns, all_ns) / steps_ns - host_share)
    most = 1.1 * max(usual_ns, all_ns) / steps_ns
    gains = (found.gain if found.least_gain is None else found.least_gain, found.gain)
    shares = [(gain or 0.0) / (1 + (gain or 0.0)) for gain in gains]
    print(found.cost_of_steps, shares, least, most)
    return least <= (found.cost_of_steps or 0.0) <= most and shares[0] <= most and shares[1] >= least


def train(tmp_path: Path, plants: str, *more: object, ranks: int = 1, **env: str) -> Run:
    padded = [padded_stages.__file__] if env else []
    script = [SLOWED_PARTS, plants, *padded, fs.train_gpt(), *fs.SMALL, "--vocab-size", 4200]
    words = [*script, *more, *MONITOR]
    finished = fs.run(fs.workers(ranks, *fs.launched(*map(str, words))), tmp_path, **env)
    assert finished.returncode == 0, finished.output[-3000:]
    (path,) = (tmp_path / "perf").glob("perf_records_*.jsonl")
    findings = read_report(open_session(path)).findings
    print([(finding.name, finding.gain) for finding in findings])
    planted = [each for each in findings if each.name not in UNPLANTED and not each.name.startswith("host_")]
    gains = [each.gain or 0.0 for each in findings if each.name.startswith("host_")]
    host_share = sum(gain / (1 + gain) for gain in gains)
    return Run(tmp_path, planted, said(tmp_path), host_share, finished.logged)


@pytest.fixture(scope="module")
def slow_parts(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Samples are loaded slowly, checkpoints are written slowly, and the first steps are slow."""
    directory = tmp_path_factory.mktemp("slow_parts")
    save = ["--save", directory / "ckpt", "--save-interval", SAVE_EVERY, "--ckpt-format", "torch"]
    plants = f"sample:{SAMPLE_S},checkpoint:{CHECKPOINT_S}"
    plants += f",pace:{PACE_S},train_step:{START_S}:until {SLOW_UNTIL}"
    return train(directory, plants, "--train-iters", ITERATIONS, *save)


def test_a_slow_data_loader_is_found(slow_parts: Run) -> None:
    found = slow_parts.findings[0]
    assert (found.name, found.phase) == ("data_stall", "data_loading")
    slept_ns = [slow_parts.slept_ns("sample", step["iteration"]) for step in slow_parts.settled]
    assert is_gain_of(found, slept_ns, slow_parts.settled, slow_parts.host_share)


def test_slow_data_is_data_loading_and_a_data_stall_in_every_settled_step(slow_parts: Run) -> None:
    rows = {row["iteration"]: row for row in fs.records(slow_parts.directory / "perf", "phases")}
    assert len(rows) == ITERATIONS
    for iteration in range(2, ITERATIONS + 1):
        planted_ns = slow_parts.slept_ns("sample", iteration)
        assert rows[iteration]["data_loading_ns"] >= planted_ns >= SAMPLES * SAMPLE_S * 1e9
    goodput = fs.summary(slow_parts.directory / "perf")["goodput"]
    loading_ns = [rows[step["iteration"]]["data_loading_ns"] for step in slow_parts.settled]
    assert goodput["data_stall_s"] == pytest.approx(sum(loading_ns) / 1e9)


def test_a_slow_checkpoint_is_found(slow_parts: Run) -> None:
    goodput = fs.summary(slow_parts.directory / "perf")["goodput"]
    saving = [each for each in slow_parts.told if each.what == "checkpoint"]
    planted_s, wall_s = sum(each.end_ns - each.begin_ns for each in saving) / 1e9, goodput["wall_s"]
    assert len(saving) == ITERATIONS // SAVE_EVERY
    assert slow_parts.finding("checkpoint").gain == pytest.approx(planted_s / (wall_s - planted_s), rel=0.2)


def test_a_slow_checkpoint_is_checkpoint_time_and_no_iterations(slow_parts: Run) -> None:
    summary = fs.summary(slow_parts.directory / "perf")
    saving = [each for each in slow_parts.told if each.what == "checkpoint"]
    took_ns = {step["iteration"]: step["checkpoint_ns"] for step in fs.records(slow_parts.directory / "perf")}
    assert [step for step, ns in took_ns.items() if ns] == [SAVE_EVERY, 2 * SAVE_EVERY]
    for step, each in zip((SAVE_EVERY, 2 * SAVE_EVERY), saving, strict=True):
        assert took_ns[step] >= each.end_ns - each.begin_ns >= CHECKPOINT_S * 1e9
    goodput = summary["goodput"]
    assert goodput["checkpoint_s"] == pytest.approx(sum(took_ns.values()) / 1e9)
    parts = [value for name, value in goodput.items() if name not in ("wall_s", "ettr")]
    assert sum(parts) == pytest.approx(goodput["wall_s"])


def test_a_slow_start_is_found(slow_parts: Run) -> None:
    """Steps 2 to 10 take longer, by the host's own clock; what a busy machine adds to that is part of it."""
    (path,) = (slow_parts.directory / "perf").glob("perf_records_*.jsonl")
    (found,) = [each for each in read_report(open_session(path)).findings if each.name == "slow_start"]
    summary = fs.summary(slow_parts.directory / "perf")
    settled, wall_s = summary["settled"], summary["goodput"]["wall_s"]
    planted_s = slept(slow_parts.told, lambda each: each.what == "train_step") / 1e9
    assert found.first_iteration == 2
    assert SLOW_UNTIL - 1 <= found.iteration <= ITERATIONS // 2
    start = [each for each in slow_parts.logged if 2 <= each.iteration <= found.iteration]
    usual_ms = statistics.median(each.elapsed_ms for each in slow_parts.logged[found.iteration :])
    excess_s = sum(each.elapsed_ms - usual_ms for each in start) / 1e3
    print(planted_s, excess_s, settled["excess_s"], wall_s, found.gain)
    assert excess_s > 0.8 * planted_s
    assert found.gain == pytest.approx(excess_s / (wall_s - excess_s), rel=0.2)
    assert settled["excess_s"] == pytest.approx(excess_s, rel=0.2)
    assert settled["avg_iteration_ms"] < summary["final_statistics"]["avg_iteration_ms"]
    # The advice is of this run: it has phases, no dataset, and a CPU, for which nothing is compiled.
    assert [change.text for change in found.changes] == [
        "train longer between restarts: each of them starts like this again"
    ]


def test_the_arguments_of_the_run_are_in_its_header(slow_parts: Run) -> None:
    (header,) = fs.records(slow_parts.directory / "perf", "header")
    arguments = header["facts"]["arguments"]
    assert (arguments["num_workers"], arguments["mock_data"], arguments["train_iters"]) == (
        0,
        True,
        ITERATIONS,
    )
    assert len(arguments) > 400


def test_the_patch_is_what_the_findings_advise_the_host_takes_it_and_compare_says_so(
    slow_parts: Run, tmp_path: Path
) -> None:
    base = slow_parts.directory / "perf"
    patch = yaml.safe_load(printed("report", base, "--patch"))["train"]["data"]
    (path,) = base.glob("perf_records_*.jsonl")
    advised = [change for each in read_report(open_session(path)).findings for change in each.changes]
    assert patch == yaml.safe_load("\n".join(key for change in advised for key in change.keys))
    assert patch["async_save"] is True  # loaders, too, where cores are free
    flags = [f"--{key.replace('_', '-')}" + f" {value}" * (value is not True) for key, value in patch.items()]
    words = [word for flag in flags for word in flag.split()]
    run = train(tmp_path, f"sample:{SAMPLE_S}", "--train-iters", ITERATIONS, *words)
    said = " ".join(printed("compare", base, run.directory / "perf").split())
    assert f"of what BASE's findings advise NEW has {', '.join(flags)}" in said
    back = " ".join(printed("compare", base, base).split())
    assert f"of what BASE's findings advise NEW has not {', '.join(flags)}" in back


def printed(*words: object) -> str:
    command = [sys.executable, "-m", "flagscale_perf", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=fs.DEADLINE_S)
    assert done.returncode in (0, 3), done.stderr  # 3: a run compared with itself
    return done.stdout


def test_a_slow_stage(tmp_path: Path) -> None:
    batch = ["--micro-batch-size", 1, "--global-batch-size", MICROBATCHES]
    more = ["--pipeline-model-parallel-size", 2, *batch, "--train-iters", ITERATIONS]
    run = train(tmp_path, f"backward:{EXCESS_S}:calls:1", *more, ranks=2, **STAGE_PADS)
    # By each stage's own clock: half of what the last one works longer would go to the first, for every
    # micro-batch but one.
    blocks = fs.records(tmp_path / "perf", "ranks")
    first_ns, last_ns = map(statistics.median, zip(*(block["work_ns"] for block in blocks), strict=True))
    usual_ns = statistics.median(ns for block in blocks for ns in block["iteration_ns"])
    saved_share = (last_ns - first_ns) / 2 * (MICROBATCHES - 1) / MICROBATCHES / usual_ns
    found = run.findings[0]
    print(first_ns, last_ns, usual_ns, saved_share, found.gain)
    assert last_ns - first_ns > MICROBATCHES * EXCESS_S / 2 * 1e9
    assert found.name == "slow_stage"
    assert found.least_gain is not None and found.gain is not None
    least, most = (gain / (1 + gain) for gain in (found.least_gain, found.gain))
    assert 0.6 * saved_share < least < 1.2 * saved_share < 1.5 * most


@pytest.fixture(scope="module")
def slow_rank(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Rank 1 works longer in its forward pass."""
    more = ["--train-iters", ITERATIONS, "--perf-log-interval", 5]
    plants = f"forward:{RANK_EXCESS_S}:calls:1"
    return train(tmp_path_factory.mktemp("slow_rank"), plants, *more, ranks=2, **PADS)


def excesses_ns(run: Run, steps: Iterable[int]) -> list[int]:
    """By how much longer rank 1 slept in its forward pass than rank 0, in each of these steps."""
    forward = [each for each in run.told if each.what == "forward"]
    return [
        sum(each.slept_ns * (1 if each.rank else -1) for each in forward if each.step == step)
        for step in steps
    ]


def test_a_slow_rank_is_found(slow_rank: Run) -> None:
    found = slow_rank.findings[0]
    assert (found.name, found.ranks, found.phase) == ("straggler", [1], "forward")
    (path,) = (slow_rank.directory / "perf").glob("perf_records_*.jsonl")
    ledger = read_report(open_session(path)).ledgers[0]
    bounds = range(ledger.first_iteration, ledger.iteration + 1)
    judged = [step for step in fs.records(slow_rank.directory / "perf") if step["iteration"] in bounds]
    assert len(judged) == ledger.steps + ledger.left_out
    planted_ns = excesses_ns(slow_rank, (step["iteration"] for step in judged))
    assert is_gain_of(found, planted_ns, judged, slow_rank.host_share)


def test_a_slow_rank_is_named_while_the_run_lasts(slow_rank: Run) -> None:
    perf = slow_rank.directory / "perf"
    planted_ns = statistics.median(excesses_ns(slow_rank, range(2, ITERATIONS + 1)))
    named, *_ = fs.records(perf, "straggler")
    assert (named["ranks"], named["phase"], named["against"]) == ([1], "forward", "peers")
    assert not named["is_over"]
    # 20 steps from iteration 5 on; the block of the warm-up, 1 to 4, tells nothing
    assert named["iteration"] <= 24
    assert named["excess_ns"] == pytest.approx(planted_ns, rel=0.3)
    assert {stragglers["ranks"][0] for stragglers in fs.records(perf, "straggler")} == {1}
    nodes = fs.records(perf, "node")
    assert sorted(rank for node in nodes for rank in node["ranks"]) == [0, 1]
    assert len({pid for node in nodes for pid in node["pids"]}) == 2
    blocks = fs.records(perf, "ranks")
    assert (len(blocks[-1]["work_ns"]), blocks[-1]["silent"]) == (2, [])
    # Rank 0 waits for as long as rank 1 works longer.
    for name, later in (("work_ns", 1), ("wait_ns", 0)):
        apart = [block[name][later] - block[name][1 - later] for block in blocks]
        assert statistics.median(apart) == pytest.approx(planted_ns, rel=0.3)
