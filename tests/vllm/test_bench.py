"""Experiments on a real vLLM: its own bench's files are read, and a profiled step has its collectives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flagscale_perf.bench.analysis.parallelism import steps_of
from flagscale_perf.cli import main
from tests.serving import only_bench

SMALL = ["--repeats", "2", "--eager", "--max-model-len", "256", "--vllm-python", sys.executable]


def test_latency_has_a_first_token_and_further_ones(tmp_path: Path) -> None:
    sizes = ["--batch-sizes", "1", "--seq-lens", "32", "--output-lens", "8"]
    assert main(["bench", "latency", "-o", str(tmp_path), *SMALL, *sizes]) == 0
    part = only_bench(tmp_path).parts["latency"]
    assert part.is_complete and part.settings["vllm"]
    assert len(part.of("latency", arm="single")) == 2
    assert [one.value for one in part.values("preemptions")] == [0.0]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a rank is a core")
def test_two_ranks_are_profiled_and_what_they_communicate_is_said(tmp_path: Path) -> None:
    typed = ["bench", "parallelism", "-o", str(tmp_path), *SMALL, "--case", "64,1,16", "--try-pipeline"]
    assert main(typed) == 0
    part = only_bench(tmp_path).parts["parallelism"]
    found = {(step.arm, step.phase): step for step in steps_of(part)}
    assert set(found) >= {(arm, phase) for arm in ("single", "TP 2") for phase in ("prefill", "decode")}
    for phase in ("prefill", "decode"):
        one, two = found["single", phase], found["TP 2", phase]
        assert one.communication == 0 and two.transfer > 0
        assert one.seen is not None and two.communication < two.total
    (pipeline,) = part.values("duration", arm="PP 2")
    assert pipeline.value is None and "vLLM" in pipeline.why
