"""`bench parallelism` on a vLLM whose times are planted, as a user types it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from flagscale_perf.bench.serving.vllm_python import Devices
from flagscale_perf.cli import main
from tests.serving import fake_python, only_bench

CASE = ["--case", "100,2,11", "--repeats", "2"]


@pytest.fixture(autouse=True)
def four_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever this machine has."""
    monkeypatch.setattr(
        "flagscale_perf.bench.serving.options.devices", lambda: Devices("core", tuple("0123"))
    )


def run(directory: Path, *options: str) -> int:
    out, python = str(directory / "out"), fake_python(directory)
    return main(["bench", "parallelism", "-o", out, "--vllm-python", python, *CASE, *options])


def test_two_ranks_against_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path) == 0
    capsys.readouterr()
    assert main(["report", str(tmp_path / "out"), "--full"]) == 0
    shown = capsys.readouterr().out
    part = only_bench(tmp_path / "out").parts["parallelism"]
    # 2 arms, 2 repetitions and one more of the first arm, a batch and in flow, 6 figures
    assert (part.state, part.count) == ("complete", "60 points")
    assert "the single device takes +0.0% longer" in " ".join(shown.split())
    rows = [line.split() for line in shown.splitlines()]
    # a batch: 100 + 10 * 6 = 160 ms on one, 50 + 10 * 5 = 100 ms on two; 160 / 2 / 100
    times = "TP 2 a batch: batch 2, 100 + 11 tokens 160.0 ms 100.0 ms 20.0 ms 1.60 80.0 % 0.0 %"
    assert times.split() in rows
    assert next(row for row in rows if row[:4] == ["TP", "efficiency", "80.0", "%"])[4] == "(excellent)"
    assert next(row for row in rows if row[:3] == ["PP", "efficiency", "-"])[3:5] == ["not", "known"]
    assert "has no pipeline that works" in shown
    assert "TP 2: vLLM preempted 3 requests" in shown
    (point,) = part.of("duration", arm="TP 2", job="flow", repetition=0)
    assert point.samples == [pytest.approx(0.2)] and point.case["in_flight"] == 8  # two waves


def test_an_arm_that_does_not_come_up_is_not_measured_and_the_others_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "--tp", "1", "--pp", "2") == 0
    part = only_bench(tmp_path / "out").parts["parallelism"]
    (missing,) = part.values("duration", arm="PP 2")
    assert missing.value is None
    assert missing.why.startswith("vLLM ended while it started: AssertionError: no tensors (")
    assert part.of("duration", arm="single") and not part.of("duration", arm="PP 2")
    assert "PP 2 is not measured: vLLM ended while it started" in capsys.readouterr().err


def test_a_server_that_ends_while_it_is_measured_says_its_own_reason(tmp_path: Path) -> None:
    assert run(tmp_path, "--tp", "1", "--pp", "3") == 0
    (missing,) = only_bench(tmp_path / "out").parts["parallelism"].values("duration", arm="PP 3")
    assert missing.why.startswith("vLLM's server has failed: ValueError: a request has killed it (")


def test_without_vllm_nothing_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "parallelism", "--quick", "-o", str(tmp_path / "other")]) == 2
    assert "has no package vllm; give --vllm-python PROGRAM" in capsys.readouterr().err


def test_a_case_that_is_too_long_for_the_model_is_refused_by_its_own_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["--case", "9000,1,16", "--vllm-python", fake_python(tmp_path)]
    assert main(["bench", "parallelism", "-o", str(tmp_path / "out"), *words]) == 2
    assert capsys.readouterr().err.endswith("is made for 8448; give a shorter --case\n")


def test_no_server_is_left(tmp_path: Path) -> None:
    assert run(tmp_path) == 0
    left = [pid for pid in os.listdir("/proc") if pid.isdigit() and _is_of(tmp_path, pid)]
    assert left == []
    assert json.loads((tmp_path / "out/vllm/bench_0001.json").read_text())["completed"] == 2


def _is_of(directory: Path, pid: str) -> bool:
    try:
        return str(directory).encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
