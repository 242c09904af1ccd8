"""A job of two machines is compared as the job: where the second machine becomes slower by 60 %, all of it
does by 30 %.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.cli import main
from flagscale_perf.profile.records import Sort
from flagscale_perf.spine.jsonl import encode
from flagscale_perf.store.decoder import decode
from tests.profile_runs import FORWARD, MATMUL, Profiled
from tests.trace_runs import MS, Job

CALLS, CALL_MS, SLOWER = 60, 100, 1.6


def times_ns(slower: float, seed: int) -> list[int]:
    """Of the calls, give or take 1 %."""
    source = random.Random(seed)
    return [round(CALL_MS * slower * source.lognormvariate(0, 0.01) * MS) for _ in range(CALLS)]


def traced(directory: Path, rank: int, times: list[int]) -> Path:
    job = Job()
    process = job.process("Train", rank + 1)
    for number, took in enumerate(times):
        parts = {"get_ns": took // 4, "compute_ns": took // 2, "put_ns": took - took // 4 - took // 2}
        job.call(process, "train", number * 400 * MS, **parts, total_ns=took)
    return job.write(directory)


def profiled(directory: Path, rank: int, times: list[int]) -> Path:
    job = Profiled()
    process = job.rank(rank)
    job.step(process, 0, CALL_MS, CALL_MS, iteration=19)
    for number, took in enumerate(times, start=1):
        job.step(process, 400 * number, 0, total_ns=took, is_profiled=0, iteration=20 + number)
    row = (FORWARD, "model.layers.0", Sort.OPERATOR, MATMUL, 1, times[0] // MS, None, None)
    job.row(process, row, step_phase="train", steps=1)
    job.window(process, steps=1, clean_steps=CALLS)
    return job.write(directory)


def job_of(directory: Path, write: Callable[[Path, int, list[int]], Path], slower: float, seed: int) -> Path:
    """The directory of a job whose second machine is so much slower."""
    for rank, factor in enumerate((1.0, slower)):
        made = directory / f"made{rank}"
        made.mkdir(parents=True)
        lines = write(made, rank, times_ns(factor, seed + rank)).read_bytes().splitlines()
        header, *records = map(decode, lines)
        own = {"host": f"node{rank}", "boot_id": str(rank), "session_id": f"20240129_10300{rank}"}
        start = {"start_wall_ns": header.start_wall_ns, "pid": 100 * seed + rank}
        header = replace(header, **own, **start, facts={**header.facts, "job": "grpo"})
        path = directory / f"perf_records_{header.session_id}.jsonl"
        path.write_bytes(b"".join(map(encode, (header, *records))))
    return directory


@pytest.mark.parametrize("write", [traced, profiled])
def test_a_job_of_two_machines_is_compared_as_the_job(write, tmp_path: Path, capsys) -> None:
    base = job_of(tmp_path / "base", write, 1.0, 1)
    new = job_of(tmp_path / "new", write, SLOWER, 3)
    words = ["--noise", "1%", "--warmup", "0", "--fail-if-slower", "5%", "--format", "json"]
    found = []
    for name in ("", "perf_records_20240129_103000.jsonl", "perf_records_20240129_103001.jsonl"):
        assert main(["compare", str(base / name), str(new / name), *words]) == 1
        found.append(json.loads(capsys.readouterr().out))
    for result in found:
        assert result["whole"]["share"] == pytest.approx(0.3, abs=0.01)
        assert (result["whole"]["verdict"], result["iterations"]) == ("slower", CALLS)
        assert result["stretches"] == []


def test_a_job_counts_once_whichever_of_its_files_is_named_and_a_missing_machine_is_said(
    tmp_path: Path, capsys
) -> None:
    base, new = (job_of(tmp_path / name, traced, 1.0, 1) for name in ("base", "new"))
    first, second = sorted(base.glob("*.jsonl"))
    assert main(["compare", str(first), str(new), "--more-base", str(second)]) == 2
    assert "are the same run, and a run counts once; leave one of them out" in capsys.readouterr().err
    (lost,) = new.glob("*1.jsonl")
    lost.write_bytes(b"")
    os.utime(lost, (0, 0))
    assert main(["compare", str(base), str(new), "--warmup", "0", "--format", "json"]) == 0
    said = capsys.readouterr()
    assert {"name": "machines", "base": 2, "new": 1} in json.loads(said.out)["differences"]
    assert "that cannot be read and may be of further machines: 1, the first " + lost.name in said.err
