"""`bench latency` on a vLLM whose times are planted, as a user types it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.source import spread
from flagscale_perf.cli import main
from tests.serving import fake_python, only_bench

SIZES = ["--batch-sizes", "1,2", "--seq-lens", "100,200", "--output-lens", "11", "--repeats", "2"]


def test_every_size_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    python = fake_python(tmp_path)
    out = tmp_path / "out"
    assert main(["bench", "latency", "--quick", "-o", str(out), "--vllm-python", python, *SIZES]) == 0
    shown, said = capsys.readouterr()
    part = only_bench(out).parts["latency"]
    assert (part.state, part.count) == ("complete", "48 points")  # 6 figures, 4 sizes, 2 repetitions
    (point,) = part.of("ttft", arm="single", batch=2, seq=200, repetition=1)
    assert point.samples == [0.2, 0.2]
    assert spread(part.of("tpot", arm="single")[0].samples).median == pytest.approx(0.006)
    assert [one.value for one in part.values("preemptions")] == [0.0]
    line = next(
        line.split() for line in shown.splitlines() if line.split()[:4] == ["single", "2", "200", "11"]
    )
    assert line[4:10] == ["200.00", "200.00", "6.00", "6.00", "260.00", "260.00"]
    assert "single, 2: batch 2, 200 + 11 tokens, 2 in flight: first token 200.00 ms" in said
    served = json.loads((out / "vllm/model/config.json").read_text())
    assert served["model_type"] == "qwen3"


def test_a_request_that_fails_ends_it_and_keeps_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, sizes = tmp_path / "out", ["--seq-lens", "13", "--batch-sizes", "2", "--output-lens", "4"]
    python = fake_python(tmp_path)
    assert main(["bench", "latency", "-o", str(out), "--vllm-python", python, *sizes]) == 2
    assert "latency: 1 of 2 requests failed: Bad Request" in capsys.readouterr().err
    assert only_bench(out).parts["latency"].state == "partial: 1 of 2 requests failed: Bad Request"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (["--model", "nowhere"], "--model nowhere: there is no nowhere/config.json; give a local directory"),
        (
            ["--seq-lens", "9000"],
            "9000 tokens and 16 of output are 9016, and a small Qwen3 (built in)",
        ),
        (["--tp", "512"], "--tp 512: needs 512 "),
        ([], f"{sys.executable} has no package vllm; give --vllm-python PROGRAM, the Python of an environ"),
    ],
)
def test_what_cannot_be_measured_is_said_in_one_line(
    options: list[str], why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "latency", "--quick", "-o", str(tmp_path / "out"), *options]) == 2
    shown, said = capsys.readouterr()
    assert said.startswith(why) and said.count("\n") == 1 and not shown
    assert not (tmp_path / "out").exists()
