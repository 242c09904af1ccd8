"""vLLM's own result file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.bench.serving.driver import read_result
from flagscale_perf.bench.serving.measure import Result
from flagscale_perf.spine.errors import PerfError

# As vLLM 0.32.0 wrote it for two requests of 128 tokens, 3 of output, shortened.
VLLM: dict[str, Any] = {
    "backend": "vllm",
    "max_concurrency": 2,
    "duration": 0.5,
    "completed": 2,
    "failed": 0,
    "total_input_tokens": 256,
    "total_output_tokens": 6,
    "output_lens": [3, 3],
    "ttfts": [0.125, 0.25],
    "itls": [[0.0625, 0.0625], [0.125]],
    "latencies": [0.25, 0.5],
    "errors": ["", ""],
    "median_ttft_ms": 187.5,
    "median_tpot_ms": 93.75,
}


def read(directory: Path, requests: int = 2, output: int = 3, **changed: Any) -> Result:
    path = directory / "result.json"
    path.write_text(json.dumps(VLLM | changed))
    return read_result(path, requests, output)


def test_first_and_further_tokens_are_told_apart(tmp_path: Path) -> None:
    made = read(tmp_path)
    assert made == Result(
        ttft=[0.125, 0.25],
        tpot=[0.0625, 0.125],
        in_few_pieces=0,
        latency=[0.25, 0.5],
        duration_s=0.5,
        prompt_tokens=256,
        output_tokens=6,
    )
    assert (made.output_per_s, made.tokens_per_s) == (12.0, 524.0)
    assert sum(made.ttft) / 2 == VLLM["median_ttft_ms"] / 1e3
    assert sum(made.tpot) / 2 == VLLM["median_tpot_ms"] / 1e3


def test_tokens_that_came_in_few_pieces_tell_no_first_one(tmp_path: Path) -> None:
    made = read(tmp_path, itls=[[0.0625, 0.0625], []])
    assert (made.ttft, made.tpot, made.latency, made.in_few_pieces) == ([0.125], [0.0625], [0.25, 0.5], 1)


def test_one_token_has_no_further_ones(tmp_path: Path) -> None:
    made = read(tmp_path, output=1, output_lens=[1, 1], itls=[[], []])
    assert (made.ttft, made.tpot, made.in_few_pieces) == ([0.125, 0.25], [], 0)


def test_what_is_not_as_asked_for_is_no_result(tmp_path: Path) -> None:
    with pytest.raises(PerfError, match="^1 of 2 requests failed: Bad Request$"):
        read(tmp_path, completed=1, errors=["a trace\nBad Request\n", ""])
    with pytest.raises(PerfError, match=r"^requests made \[2, 3\] tokens where 3 were asked for$"):
        read(tmp_path, output_lens=[3, 2])
    with pytest.raises(PerfError, match="no result that is known here .KeyError"):
        (tmp_path / "other.json").write_text("{}")
        read_result(tmp_path / "other.json", 2, 3)
    with pytest.raises(PerfError, match="no result"):
        read_result(tmp_path / "none.json", 2, 3)
