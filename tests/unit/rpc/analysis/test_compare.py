"""Sessions compared: what a change gained."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.analysis.compare.judge import FASTER, UNDECIDED, UNKNOWN
from flagscale_perf.report import html, png, text
from flagscale_perf.rpc.analysis import compare as of_instrument
from flagscale_perf.spine.errors import PerfError
from tests.compared import of_paths
from tests.golden import golden
from tests.rpc_sessions import PREFILL, Moved, fused, llama_calls, make_call, split, write_run

compare = of_paths(of_instrument.compare)


def run_of(directory: Path, name: str, calls, **facts) -> Path:
    (directory / name).mkdir()
    return write_run(directory / name, calls, **facts)


def noisy(moved: Moved, seed: int, share: float = 0.02):
    """Calls whose times vary at random."""
    chance = random.Random(seed)
    calls = []
    for call in llama_calls(moved):
        more = round(call.total_ns * share * chance.gauss(0, 1))
        calls.append(call._replace(total_ns=call.total_ns + more, server_ns=(call.server_ns or 0) + more))
    return calls


def compared(base: Path, new: Path, **options):
    return compare([base], [new], CompareOptions(**{"warmup": 0} | options))


def test_half_the_bytes_are_half_the_time_in_every_stage(tmp_path) -> None:
    base = run_of(tmp_path, "fp32", llama_calls())
    new = run_of(tmp_path, "bf16", llama_calls(split(item=2)))
    result = compared(base, new, noise=0.001)
    assert (result.whole.verdict, round(result.whole.share or 0, 3)) == (FASTER, -0.5)
    rows = {row.name: row for row in result.phases}
    for name in ("serialize", "send", "server", "receive", "deserialize"):
        assert rows[f"stage {name}"].verdict == FASTER, name
    stages = [row.share or 0 for name, row in rows.items() if name.startswith("stage")]
    methods = [row.share or 0 for name, row in rows.items() if name.startswith("method")]
    assert sum(stages) == pytest.approx(result.whole.share)
    assert sum(methods) == pytest.approx(result.whole.share)


def test_the_same_twice_is_no_difference(tmp_path) -> None:
    result = compared(*(run_of(tmp_path, str(seed), noisy(PREFILL, seed)) for seed in (1, 2)))
    assert result.whole.verdict == UNDECIDED
    assert {row.verdict for row in result.phases} == {UNDECIDED}


def test_a_fused_layer_is_compared_layer_by_layer(tmp_path) -> None:
    new = run_of(tmp_path, "fused", llama_calls(fused()))
    result = compared(run_of(tmp_path, "six", llama_calls()), new)
    assert (result.basis, result.iterations, result.whole.verdict) == ("layer", 16, FASTER)
    rows = {row.name: row.verdict for row in result.phases}
    assert rows["method fused_layer"] == rows["method Matmul"] == UNKNOWN  # only one side has it
    calls = next(one for one in result.figures if one.name == "calls")
    assert (calls.base, calls.new) == (6, 1)


def test_as_text_page_and_picture(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    base = run_of(Path(), "fp32", noisy(PREFILL, 1))
    new = run_of(Path(), "bf16", noisy(split(item=2), 2))
    report = report_of(compared(base, new, fail_if_slower=0.03))
    assert text.render(report) == golden("rpc_compare.txt")
    assert "BASE" in html.render(report) and png.render(report).startswith(b"\x89PNG")


def test_a_run_with_itself_is_said(tmp_path) -> None:
    path = run_of(tmp_path, "a", llama_calls())
    assert compared(path, path, fail_if_slower=0.03).same_run == "Calls of session 20240129_103000"
    with pytest.raises(PerfError, match="are the same run, and a run counts once"):
        compare([path, path], [path], CompareOptions())


def test_layers_and_calls_do_not_compare(tmp_path) -> None:
    single = [make_call(n, method=f"m{n * n % 17}") for n in range(1, 13)]
    with pytest.raises(PerfError, match="compare like with like"):
        compared(run_of(tmp_path, "a", llama_calls()), run_of(tmp_path, "b", single))
