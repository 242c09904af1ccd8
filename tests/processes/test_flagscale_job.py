"""A real FlagScale training of two ranks that profiles twelve of its steps: one job, one report. With a layer
that sleeps on one rank the first finding names it; without there is nothing to name.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from flagscale_perf.cli import main
from tests.processes import flagscale as fs
from tests.processes.slept import said
from tests.traces import Slice, check, of_json

pytestmark = pytest.mark.host

LAYER, RANK, SLEEP_S, STEPS = 2, 1, 0.03, 60
SCRIPT = Path(__file__).with_name("slow_layer.py")
MONITOR = ("--enable-perf-monitor", "--perf-log-dir", "perf", "--perf-log-interval", "5", "--perf-breakdown")


def trained(directory: Path, seconds: float) -> Path:
    """The directory of a run; its layer sleeps so long."""
    directory.mkdir()
    script = [str(SCRIPT), str(seconds), str(LAYER), str(RANK), str(fs.train_gpt()), *fs.SMALL]
    options = ["--num-layers", "4", "--train-iters", str(STEPS), *MONITOR, "--perf-profile-steps", "20-31"]
    done = fs.run(fs.workers(2, *fs.launched(*script, *options)), directory)
    assert done.returncode == 0, done.output[-3000:]
    return directory / "perf"


def reported(perf: Path, capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    assert main(["report", str(perf), "--format", "json", *words]) == 0
    return json.loads(capsys.readouterr().out)


def nodes(tree: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Every one; the parts of each add up to it."""
    known = [one["s"] for one in tree["parts"] if one["s"] is not None]
    assert not known or math.isclose(sum(known), tree["s"], abs_tol=1e-9), tree["name"]
    yield tree
    for part in tree["parts"]:
        yield from nodes(part)


def inside(found: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The findings, and those that explain them."""
    for one in found:
        yield one
        yield from inside([link["finding"] for link in one["links"]])


def test_the_report_of_a_directory_names_the_layer_that_sleeps(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    perf = trained(tmp_path / "slow", SLEEP_S)
    found = reported(perf, capsys)
    job = found["job"]
    assert [one["name"] for one in job["sessions"]] == ["training", "profile"]
    assert "recorded process" in job["sessions"][1]["evidence"] and job["sessions"][1]["is_on_clock"]
    slept_ms = median(one.slept_ns for one in said(tmp_path / "slow")) / 1e6
    found_all = [*inside(job["findings"])]
    cause = next((one for one in found_all if one["name"] == "slow_on_rank"), None)
    late = next((one for one in job["findings"] if one["name"] == "straggler"), None)
    if cause is None or late is None:  # on a machine that gives its ranks no CPU nobody is named
        assert any(one["name"] == "host_short_of_cpu" for one in found_all)
        return
    assert (cause["instrument"], cause["ranks"], cause["phase"]) == ("profile", [RANK], "forward")
    assert cause["where"] == f"layer {LAYER - 1}, Python"
    assert cause["step_ms"] == pytest.approx(slept_ms, rel=0.2)
    assert (cause["first_iteration"], cause["iteration"]) == (20, 42)  # beside each one a clean step
    assert (late["ranks"], late["phase"]) == ([RANK], "forward")
    assert late["links"][0]["is_cause"] and late["links"][0]["finding"] == cause
    assert late["title"].endswith(f": in layer 1, Python: +{cause['step_ms']:.1f} ms, steps 20 to 42")
    named = [node for node in nodes(job["tree"]) if node.get("ranks") == [RANK]]
    assert any(node.get("note", "").startswith("in layer 1, Python") for node in named)
    parts = {part["name"]: part["dur_s"] for part in found["goodput"]["parts"]}
    assert parts["late"] > 0.5 * STEPS * slept_ms / 1000
    summary = fs.summary(perf)["goodput"]
    assert (summary["late_s"], summary["productive_s"]) == (parts["late"], parts["productive"])
    drawn(perf, tmp_path / "trace.json")
    capsys.readouterr()
    alone = reported(perf, capsys, "--instrument", "profile")
    assert alone == job["reports"]["profile"]
    assert "job" not in reported(perf, capsys, "--session", job["sessions"][0]["session"])


def inside_of(one: Slice, others: list[Slice]) -> float:
    """The largest share of it that lies in one of the others."""
    within_ns = max(min(one.end_ns, each.end_ns) - max(one.begin_ns, each.begin_ns) for each in others)
    return within_ns / (one.end_ns - one.begin_ns)


def drawn(perf: Path, output: Path) -> None:
    """Asserts that the job's trace has the layer that sleeps inside of what the training's own marks say: the
    rank's forward pass of the same step; and all phases of a step in that step.
    """
    assert main(["trace-export", str(perf), "-o", str(output)]) == 0
    trace = of_json(output.read_bytes())
    check(trace)
    assert len(trace.processes) == 2 and all(f"rank {rank}" in trace.processes[rank] for rank in (0, 1))
    slow = [one for one in trace.slices if "rank 1" in one.process and one.row == "modules, forward"]
    slow = [one for one in slow if one.name.endswith(f"layers.{LAYER - 1}")]
    forward = [one for one in trace.slices if "rank 1" in one.process and one.name == "forward"]
    assert len(slow) == 12 and min(one.end_ns - one.begin_ns for one in slow) >= 1e9 * SLEEP_S
    # Another rank's phases are laid between its cuts, by their lengths: one that waited for a processor
    # may lie beside its layer.
    shares = sorted(inside_of(one, forward) for one in slow)
    assert shares[0] > 0 and shares[len(shares) // 4] >= 0.5
    steps = {one.name: one for one in trace.slices if one.row == "iterations"}
    phases = [one for one in trace.slices if one.row == "phases, end to end"]
    starts = sorted((each.begin_ns, each.end_ns) for name, each in steps.items() if "iteration" in name)
    assert len(starts) == STEPS and len(phases) > STEPS
    assert all(any(begin <= one.begin_ns and one.end_ns <= end for begin, end in starts) for one in phases)
    assert trace.arrows  # of the collectives


@pytest.mark.long
def test_without_a_plant_nothing_explains_anything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = reported(trained(tmp_path / "even", 0.0), capsys)["job"]
    named = [(one["name"], link["finding"]["name"]) for one in job["findings"] for link in one["links"]]
    assert not [pair for pair in named if pair[1] in ("slow_on_rank", "slow_layer", "python_in_module")], (
        named
    )
