"""Two real runs, one of them with a slower backward, compared as in continuous integration."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.cli import main
from tests.processes import flagscale as fs
from tests.processes import padded_stages

pytestmark = pytest.mark.host

ITERATIONS, WARMUP, MICROBATCHES = 32, 5, 2
LIMIT = 0.03
FORWARD_S, BACKWARD_S = 0.005, 0.01
PLANTED_S = 0.15  # a step, several times the whole of it: beyond what any neighbour on the machine can do


def trained(directory: Path, backward_s: float) -> str:
    """The log directory of a run whose micro-batches sleep for so long in the backward."""
    directory.mkdir()
    monitor = [
        "--enable-perf-monitor",
        "--perf-breakdown",
        "--perf-max-overhead",
        5,
        "--perf-log-dir",
        "perf",
    ]
    words = [padded_stages.__file__, fs.train_gpt(), *fs.SMALL, "--train-iters", ITERATIONS, *monitor]
    pads = {"PADDED_FORWARD_S": str(FORWARD_S), "PADDED_BACKWARD_S": str(backward_s)}
    finished = fs.run(fs.workers(1, *fs.launched(*map(str, words))), directory, **pads)
    assert finished.returncode == 0, finished.output[-3000:]
    return str(directory / "perf")


def answered(words: Sequence[str], capsys: pytest.CaptureFixture[str], outcome: str) -> dict[str, Any]:
    """What `compare` says. The gate answers so, and is open only where a busy machine may be all there is."""
    code = main(["compare", *words, "--fail-if-slower", f"{LIMIT:.0%}"])
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    side = "NEW" if outcome == "slower" else "BASE"
    left = 1 - min(1.0, sum(one["share"] for one in result["disturbed"] if one["side"] == side))
    whole = result["whole"]
    may_be_all = (
        (1 + whole["share_low"]) * left <= 1 + LIMIT
        if side == "NEW"
        else 1 + whole["share_high"] >= (1 + LIMIT) * left
    )
    # all of it may lie in one stretch of a run that changed within itself
    is_open = left < 1 and (may_be_all or bool(result["stretches"]))
    expected = {outcome} if not is_open else {"undecided", outcome} if result["stretches"] else {"undecided"}
    assert result["gate"]["outcome"] in expected, result
    assert code == {"slower": 1, "not slower": 0, "undecided": 3}[result["gate"]["outcome"]]
    return result


def test_a_slower_backward_is_found_and_named_and_fails_the_build(tmp_path, capsys) -> None:
    runs = [
        trained(tmp_path / name, BACKWARD_S + more_s)
        for name, more_s in (("base", 0), ("new", PLANTED_S / MICROBATCHES))
    ]
    words = ["--noise", "1%", "--warmup", str(WARMUP), "--format", "json"]
    result = answered([*runs, *words], capsys, "slower")
    # settled ones, and a busy machine may make more than the warm-up slow, or leave it open: then all count
    settled = [fs.summary(Path(run))["settled"]["first_iteration"] or 1 for run in runs]
    assert result["iterations"] == ITERATIONS - max(WARMUP, *(first - 1 for first in settled))
    assert result["culprits"][0] == "backward"
    assert [one["name"] for one in result["differences"]] == []
    answered([*reversed(runs), *words], capsys, "not slower")
    assert main(["compare", runs[0], runs[0], *words, "--fail-if-slower", "3%"]) == 3
    assert json.loads(capsys.readouterr().out)["same_run"]
    assert main(["runs", str(tmp_path), "--format", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)["runs"]
    assert [(one["directory"], one["iterations"]) for one in listed] == [
        ("base/perf", ITERATIONS),
        ("new/perf", ITERATIONS),
    ]
    assert listed[0]["iteration_ms"] < listed[1]["iteration_ms"]
