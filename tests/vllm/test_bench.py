"""Experiments on a real vLLM: its own bench's files are read, and a profile has its collectives."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.profile.analysis.instrument import read_report
from tests.serving import only_bench

SMALL = ["--repeats", "2", "--eager", "--max-model-len", "256", "--vllm-python", sys.executable]


def test_latency_has_a_first_token_and_further_ones(tmp_path: Path) -> None:
    sizes = ["--batch-sizes", "1", "--seq-lens", "32", "--output-lens", "8"]
    assert main(["bench", "latency", "-o", str(tmp_path), *SMALL, *sizes]) == 0
    part = only_bench(tmp_path).parts["latency"]
    assert part.is_complete and part.settings["vllm"]
    assert len(part.of("latency", arm="single")) == 2
    assert [one.value for one in part.values("preemptions")] == [0.0]


TWO_CORES = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a rank is a core")


@TWO_CORES
def test_two_ranks_have_an_efficiency_and_a_pipeline_says_why_it_has_none(tmp_path: Path) -> None:
    typed = ["bench", "parallelism", "-o", str(tmp_path), *SMALL, "--case", "64,1,16", "--pp", "2"]
    assert main(typed) == 0
    part = only_bench(tmp_path).parts["parallelism"]
    assert len(part.of("duration", arm="TP 2", job="batch")) == 2
    (pipeline,) = part.values("duration", arm="PP 2")
    assert pipeline.value is None and "vLLM" in pipeline.why


@TWO_CORES
def test_a_profile_of_two_ranks_says_what_they_communicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # the command sets it for its own process, which is this one
    typed = ["profile", "run", "--engine", "vllm", "--tp", "2", "--max-seq-len", "64", "--dir", str(tmp_path)]
    assert main(typed) == 0
    found = read_report(open_session(tmp_path))
    assert set(found.sums) == {"prefill", "decode"}
    assert all(sums.mean.communication > 0 for sums in found.sums.values())
