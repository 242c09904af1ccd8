"""A real `vllm serve`, its command line as it is: two tensor-parallel ranks, compiled; its own profiler."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis.instrument import read_report
from flagscale_perf.profile.profiler import BUSY
from flagscale_perf.profile.records import Sort
from tests.vllm.conftest import Serve
from tests.vllm.generate import CONFIG, LAYERS, PROMPT_TOKENS
from tests.vllm.served import Server
from tests.vllm.test_generate import ATTENTION, Profiled

STEPS, FIRST = "1-2/20", 6  # requests with which the first window of each phase is over
DEADLINE_S = 300


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Of our run file, and of vLLM's traces."""
    return tmp_path_factory.mktemp("profile"), tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def server(serve: Serve, places: tuple[Path, Path]) -> Iterator[Server]:
    ours, theirs = places
    given = json.dumps({"profiler": "torch", "torch_profiler_dir": str(theirs)})
    variables = {"FLAGSCALE_PERF_PROFILE_STEPS": STEPS, "FLAGSCALE_PERF_PROFILE_DIR": str(ours)}
    yield from serve(["--tensor-parallel-size", "2", "--profiler-config", given], variables)


def test_tables_of_both_ranks_and_phases_are_there_before_vllms_own_trace_would_be(
    server: Server, places: tuple[Path, Path]
) -> None:
    ours, theirs = places
    server.complete(FIRST, 12)
    answered_s = time.monotonic()
    while not {"prefill", "decode"} <= _phases(ours):
        assert time.monotonic() < answered_s + DEADLINE_S, "waited in vain for the windows of both phases"
        time.sleep(0.02)
    report = read_report(open_session(next(ours.glob("perf_records_*.jsonl"))))
    tables_s = time.monotonic() - answered_s
    assert set(report.sums) == {"prefill", "decode"}
    for sums in report.sums.values():
        layers = [place.name for place in sums.places if place.number is not None]
        assert layers == [f"layer {number}" for number in range(LAYERS)]

    server.post("/start_profile")
    server.complete(4, 12)  # 44 decodes, which have at least one window of ours
    began_s = time.monotonic()
    server.post("/stop_profile")
    stop_s = time.monotonic() - began_s
    server.complete(1, 2)
    print(f"tables {tables_s:.2f} s after the last answer; vLLM's stop_profile took {stop_s:.2f} s")
    assert tables_s < stop_s

    found = Profiled.read(ours)
    reasons = {
        found.text(process, window.reason) for process in found.ranks for window in found.windows[process]
    }
    assert reasons == {"", BUSY}
    traces = [gzip.decompress(path.read_bytes()).decode() for path in theirs.glob("*rank*.gz")]
    assert len(traces) == 2
    for trace in traces:  # whole, and without anything of ours
        assert trace.count(ATTENTION) >= 44 * LAYERS
        assert "flagscale_perf step" not in trace


def test_operators_and_attention_of_compiled_layers_on_two_ranks(
    server: Server, places: tuple[Path, Path]
) -> None:
    server.complete(FIRST, 12)
    found = Profiled.read(places[0])
    assert sorted(rank.rank for rank in found.ranks.values()) == [0, 1]
    heads = CONFIG["num_attention_heads"] // 2 * CONFIG["head_dim"]
    for process, rank in found.ranks.items():
        assert found.text(process, rank.mode) == "compiled"
        found.check_books(process)
        rows = [row for row in found.rows[process] if row[0] == "prefill"]
        attention = {module: row for _, module, op, row in rows if op == ATTENTION}
        assert set(attention) == {f"model.layers.{n}.self_attn.attn" for n in range(LAYERS)}
        for row in attention.values():  # each token with each, twice: for scores and for values
            assert row.flops == row.runs * PROMPT_TOKENS**2 * 2 * 2 * heads
        reduced = {op for _, _, op, row in rows if row.sort == Sort.COMMUNICATION}
        assert reduced >= {"_C::shm_allreduce"}


def _phases(directory: Path) -> set[str]:
    """Of which all ranks have had a window."""
    if not list(directory.glob("perf_records_*.jsonl")):
        return set()
    found = Profiled.read(directory)
    each = [
        {phase for phase, *_ in found.rows[process]} if found.windows[process] else set()
        for process in found.ranks
    ]
    return set.intersection(*each) if len(each) == 2 else set()
