"""The runner of examples/tee_gpu over TCP, behind `| head`, and against a server that has another model."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from diagnosis.observed import Observed
from split_inference.traffic import ModelSizes, Pass, pass_traffic, total

from tests.tee_gpu import programs
from tests.tee_gpu.programs import Run, server

TOKENS = 24


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with server("tcp://127.0.0.1:*") as lines:
        yield lines[1].removeprefix("GPU server listening at ")


@pytest.fixture
def run(tmp_path: Path, endpoint: str) -> Run:
    return partial(programs.run, "tee_runner_optimized.py", cwd=tmp_path, LLAMA_IPC_PATH=endpoint)


def test_the_workload_runs_over_tcp_and_gives_the_same(run, endpoint, tmp_path) -> None:
    made = run("--check", "--tokens", TOKENS)
    assert (made.returncode, made.stderr) == (0, "")
    assert f"✓ Connected to GPU server at {endpoint}\n  Transport type: TCP\n" in made.stdout
    assert "  Payload: frames\n" in made.stdout
    assert "Check: equal to the monolithic model, bit for bit\n" in made.stdout
    log = tmp_path / "zmq_performance.log"
    assert log.read_text().startswith("ZeroMQ Performance Log - Transport: TCP\n")
    (records,) = (tmp_path / "logs" / "rpc").glob("perf_records_*.jsonl")
    seen = Observed.of_session(records).whole
    calls = total(pass_traffic(ModelSizes(16, 256, 8, 2, 32, 768, 4096), Pass(tokens=TOKENS)))
    init = seen.received_bytes - calls.received_bytes  # what the first call, Init, brought
    assert (seen.calls, seen.sent_bytes, 0 < init < 1 << 20) == (99, calls.sent_bytes, True)


def test_a_model_that_is_not_the_servers_is_refused(run) -> None:
    made = run("--config", "small")
    assert (made.returncode, made.stdout.count("Logits")) == (2, 0)
    assert made.stderr == (
        "tee_runner_optimized.py: the server has another model, tiny, random by seed 0: layers 2 here, "
        "16 there; hidden 512 here, 256 there; head_dim 64 here, 32 there; ffn 2048 here, 768 there; "
        "vocab 8192 here, 4096 there; give --config, --model, --layers and --seed as the server has them, "
        "or leave them out\n"
    )


def test_random_weights_of_another_seed_are_refused_where_they_are_compared(run) -> None:
    made = run("--seed", 7, "--check")
    assert (made.returncode, "seed 7 here, 0 there" in made.stderr) == (2, True)
    assert run("--seed", 7, "--config", "tiny").returncode == 0  # another prompt


def test_a_reader_that_goes_away_is_no_traceback(endpoint: str, tmp_path: Path) -> None:
    program = ("tee_runner_optimized.py", "--tokens", "4")
    with programs.start(*program, cwd=tmp_path, LLAMA_IPC_PATH=endpoint) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert (process.returncode, said) == (141, "")
