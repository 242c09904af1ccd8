"""`flagscale-perf profile`: its files, its predictions, and what it refuses."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path

import pytest

from flagscale_perf.bench.serving import profiled
from flagscale_perf.cli import main
from flagscale_perf.cli import profile as profile_command
from flagscale_perf.cli.profile import add_run_options, chosen
from flagscale_perf.profile.analysis import extend
from flagscale_perf.profile.standalone import run
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import encode
from tests.fakes import make_header
from tests.profile_runs import Profiled, make_profile

CHART = """
from flagscale_perf.analysis.blocks import Lane, Stripe, Waterfall
from flagscale_perf.profile.analysis.extend import chart

@chart
def mine(report):
    return Waterfall("mine", "Mine", "ms", [Lane("a", 0.0, [Stripe("b", 1.0, None, "blue")])], 1.0)
"""


def test_every_file_by_the_requirements_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_profile().write(tmp_path)
    (tmp_path / "profile_chart.py").write_text(CHART)
    monkeypatch.syspath_prepend(str(tmp_path))
    out = tmp_path / "out"
    try:
        code = main(["profile", "report", str(tmp_path), "--out", str(out), "--extend", "profile_chart"])
    finally:
        extend.forget()
    assert code == 0
    assert sorted(path.name for path in out.iterdir()) == [
        *("README.md", "analysis_report.json", "bandwidth_analysis.png", "comm_analysis.json"),
        *("comprehensive_report.json", "compute_vs_communication.png", "detailed_timings.csv"),
        *("layer_performance_heatmap.png", "memory_usage_analysis.png", "mine.png"),
        *("operation_time_distribution.png", "operator_sums.csv", "performance_bottlenecks.png"),
        "report.html",
    ]
    assert all(path.read_bytes()[:4] == b"\x89PNG" for path in out.glob("*.png"))
    assert json.loads((out / "analysis_report.json").read_text())["layer_breakdown"]
    assert "7 pictures, report.html, README.md" in capsys.readouterr().out


def test_without_plotly_all_but_the_page_is_written_which_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    make_profile().write(tmp_path)
    monkeypatch.setattr("flagscale_perf.report.html.library", lambda: _missing("plotly"))
    monkeypatch.setattr(profile_command, "pictures_of", lambda pictures: {})
    assert main(["profile", "report", str(tmp_path), "--out", str(tmp_path / "out")]) == 0
    said = capsys.readouterr()
    assert said.err.startswith("plotly is not installed\n")
    assert "0 pictures, README.md" in said.out and "report.html" not in said.out
    assert (tmp_path / "out" / "README.md").exists() and not (tmp_path / "out" / "report.html").exists()


def _missing(name: str) -> str:
    raise PerfError(f"{name} is not installed")


def test_0_rows_are_a_failure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Profiled().write(tmp_path)
    assert main(["profile", "report", str(tmp_path)]) == 1
    assert capsys.readouterr().err.startswith("0 rows: no process has joined the job")
    assert not (tmp_path / "report.html").exists()


def test_a_run_file_of_a_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "perf_records_20240129_103000.jsonl").write_bytes(encode(make_header()))
    assert main(["profile", "report", str(tmp_path)]) == 2
    assert "was recorded by the instrument 'training', not by 'profile'" in capsys.readouterr().err


def test_a_place_where_no_file_can_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_profile().write(tmp_path)
    (tmp_path / "file").write_text("")
    assert main(["profile", "report", str(tmp_path), "--out", str(tmp_path / "file" / "out")]) == 2
    assert "cannot be written (Not a directory); give another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pp", "2", "--mode", "train"], "--pp 2 --mode train: transformers' pipeline only generates"),
        (["--num-tokens", "3000"], "--num-tokens 3000 is more than --max-seq-len 2048; raise the latter"),
        (["--model", "Qwen/Qwen3-8B"], "--model Qwen/Qwen3-8B: there is no Qwen/Qwen3-8B/config.json"),
    ],
)
def test_what_cannot_be_profiled(
    tmp_path: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile", "run", "--dir", str(tmp_path), *words]) == 2
    assert capsys.readouterr().err.startswith(said)
    assert not list(tmp_path.iterdir())


def test_a_directory_that_takes_no_files_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for option in ("--dir", "--out"):
        given = ["--dir", str(tmp_path / "run"), option, str(tmp_path / "file" / "below")]
        assert main(["profile", "run", *given]) == 2
        said = capsys.readouterr()
        assert said.err.startswith(
            f"{option} {tmp_path}/file/below: takes no files ({tmp_path}/file is a file)"
        )
        assert said.out == ""


@pytest.mark.parametrize("has_vllm", [True, False])
def test_vllm_is_profiled_where_this_python_has_it_and_the_other_engine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], has_vllm: bool
) -> None:
    ran: list[object] = []
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr(profile_command.importlib.util, "find_spec", lambda name: name if has_vllm else None)
    monkeypatch.setattr(profile_command, "written", lambda directory, before: pytest.fail("nothing is run"))
    for module in (run, profiled):
        monkeypatch.setattr(module, "check", lambda _: None)
        monkeypatch.setattr(module, "profile", lambda asked, module=module: ran.append((module, asked.mode)))
    with pytest.raises(pytest.fail.Exception):
        main(["profile", "run", "--dir", str(tmp_path), "--engine", "auto"])
    assert ran == [(profiled, "generate") if has_vllm else (run, "train")]
    said = "profiling vLLM" if has_vllm else "vLLM is not in this Python: profiling transformers instead"
    assert said in capsys.readouterr().err


def test_vllm_that_is_asked_for_and_not_there_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(profile_command.importlib.util, "find_spec", lambda name: None)
    assert main(["profile", "run", "--dir", str(tmp_path), "--engine", "vllm"]) == 2
    assert capsys.readouterr().err.startswith("--engine vllm: this Python has no vllm")


def _chosen(*words: str) -> tuple[int, int, int]:
    parser = ArgumentParser()
    add_run_options(parser)
    return chosen(parser.parse_args(words))


def test_presets_and_what_is_given_besides() -> None:
    assert _chosen() == (3, 20, 1)
    assert _chosen("--preset", "production") == (20, 200, 5)
    assert _chosen("--preset", "detailed", "--num-tokens", "50") == (10, 50, 3)


def test_no_number(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        _chosen("--tp", "0")
    assert "'0' is not a whole number, 1 or more" in capsys.readouterr().err


def test_predict_says_what_a_step_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # or torch sets it
    given = ["profile", "predict", "--batch-size", "2", "--seq-length", "64", "--dtype", "fp32"]
    assert main([*given, "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["setup"]["tokens"] == 64
    assert made["memory_bytes"]["gradients"] == 4 * made["parameters"]
    assert main([*given, "--device", "H200"]) == 0
    text = capsys.readouterr().out
    assert "a training step of 2 x 64 tokens in float32, predicted" in text
    assert "as on a GPU" in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--device", "H100"], "--device 'H100': several are called so"),
        (["--model", "Qwen/Qwen3-8B"], "--model Qwen/Qwen3-8B: does not exist"),
    ],
)
def test_what_cannot_be_predicted(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["profile", "predict", *words]) == 2
    assert said in capsys.readouterr().err
