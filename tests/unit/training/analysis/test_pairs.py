"""Two trees of runs: each configuration is compared with its own, whatever the trees are called."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.analysis.job import open_session
from flagscale_perf.cli import main
from flagscale_perf.training.analysis.compare import compare
from flagscale_perf.training.analysis.pairs import Change, _gate
from tests import sweeps

Said = Callable[..., str]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sweep")
    sweeps.write(directory, recompute=[None])
    return directory


@pytest.fixture
def compared(sweep: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, dict[str, Any]]]:
    def compare(*words: str, base: str = "week46", new: str = "week47") -> tuple[int, dict[str, Any]]:
        code = main(["compare", str(sweep / base), str(sweep / new), "--format", "json", *words])
        return code, json.loads(capsys.readouterr().out)

    return compare


def test_runs_of_one_configuration_are_paired_over_their_seeds(compared) -> None:
    code, found = compared("--fail-if-slower", "2%")
    assert (code, found["gate"]["outcome"]) == (1, "slower")
    assert len(found["pairs"]) == 4
    for pair in found["pairs"]:
        assert (len(pair["base_runs"]), len(pair["new_runs"])) == (3, 3)
        assert set(pair["settings"]) == {"tensor_parallel", "micro_batch_size"}
        for side in ("base", "new"):
            names = {Path(path).parent.name.rpartition("-")[0] for path in pair[f"{side}_runs"]}
            own = pair["settings"]
            assert names == {f"m{own['micro_batch_size']}-t{own['tensor_parallel']}-none"}
        whole = pair["whole"]
        truth = sweeps.LATE_MS / whole["base"]  # planted in every run of the second week
        assert whole["share_low"] < truth < whole["share_high"]
        assert (whole["verdict"], pair["culprits"][0]) == ("slower", "data_loading")
    assert found["differences"] == [{"name": "num_workers", "base": 8, "new": 2}]
    change, truths = found["change"], [sweeps.LATE_MS / pair["whole"]["base"] for pair in found["pairs"]]
    assert change["low"] < sum(truths) / len(truths) < change["high"]
    assert change["verdict"] == "slower" and change["high"] - change["low"] < 0.01


def test_what_is_no_slower_passes_though_single_configurations_do_not_show_it(compared) -> None:
    assert compared("--fail-if-slower", "10%")[0] == 0
    assert compared("--fail-if-slower", "10%", base="week47", new="week46")[0] == 0


def test_the_text_says_the_whole_then_each(sweep: Path, capsys) -> None:
    assert main(["compare", str(sweep / "week46"), str(sweep / "week47")]) == 0
    out = capsys.readouterr().out
    assert out.startswith("NEW is slower than BASE by ")
    first, second, *_ = out.splitlines()
    assert first.endswith(" in the mean of 4 configurations, above all in data loading")
    assert second.startswith("  change +") and ", 95 % interval +" in second
    assert "by themselves 4 slower of 4; all their intervals hold together with 95 %" in out
    assert "num_workers  8     2" in out


def test_there_is_no_picture(sweep: Path, tmp_path: Path, capsys) -> None:
    words = [str(sweep / "week46"), str(sweep / "week47"), "-o", str(tmp_path / "out.png")]
    assert main(["compare", *words]) == 2
    assert capsys.readouterr().err == (
        "--format png: two directories of runs have no picture; write html instead\n"
    )


def test_what_one_tree_lacks_is_said(sweep: Path, tmp_path: Path, capsys) -> None:
    for week in ("week46", "week47"):
        shutil.copytree(sweep / week, tmp_path / week)
    for gone in (tmp_path / "week47").glob("m2-t2-*"):
        shutil.rmtree(gone)
    assert main(["compare", str(tmp_path / "week46"), str(tmp_path / "week47"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert len(found["pairs"]) == 3
    (line,) = found["left_out"]
    assert line.startswith(f"in {tmp_path / 'week46'} alone: 1 configuration, such as that of ")


def test_trees_without_a_configuration_in_common_are_refused(sweep: Path, tmp_path: Path, capsys) -> None:
    for name, kept in (("one", "m1-*"), ("two", "m2-*")):
        for run in (sweep / "week46").glob(kept):
            shutil.copytree(run, tmp_path / name / run.name)
    shutil.copytree(sweep / "week46/m1-t1-none-1", tmp_path / "two/m4")
    (file,) = (tmp_path / "two/m4").glob("*.jsonl")
    file.write_text(file.read_text().replace('"micro_batch_size":1', '"micro_batch_size":4', 1))
    assert main(["compare", str(tmp_path / "one"), str(tmp_path / "two")]) == 2
    assert (
        f"no configuration is in both directories: micro_batch_size is 1 in '{tmp_path / 'one'}' and 2, 4 in"
        in capsys.readouterr().err
    )


def test_one_configuration_is_compared_in_full(sweep: Path, tmp_path: Path, capsys) -> None:
    for week in ("week46", "week47"):
        for run in (sweep / week).glob("m1-t1-*"):
            shutil.copytree(run, tmp_path / week / run.name)
    assert main(["compare", str(tmp_path / "week46"), str(tmp_path / "week47"), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (len(found["base_runs"]), found["noise_source"]) == (3, "seen between the runs of each side")


def test_intervals_of_many_comparisons_are_wider_than_one(sweep: Path, capsys) -> None:
    weeks = [sorted((sweep / week).glob("m1-t1-*")) for week in ("week46", "week47")]
    sides = [[*map(open_session, runs)] for runs in weeks]
    one, of_many = (compare(*sides, CompareOptions(tests=tests)).whole for tests in (1, 20))
    assert of_many.share_low < one.share_low < one.share_high < of_many.share_high


@pytest.mark.parametrize(
    ("ends", "limit", "outcome"),
    [
        ((0.02, 0.04), 0.01, "slower"),
        ((0.02, 0.04), 0.05, "not slower"),
        ((0.02, 0.04), 0.03, "undecided"),
        ((-0.01, 0.04), 0.03, "undecided"),
        ((-0.03, -0.01), 0.0, "not slower"),
    ],
)
def test_the_answer_to_the_limit(ends: tuple[float, float], limit: float, outcome: str) -> None:
    class Undecided:
        is_doubted = False

        class result:
            gate = None

    pairs: Any = [Undecided] * 3
    gate = _gate(pairs, Change(sum(ends) / 2, *ends), limit)
    assert gate is not None and gate.outcome == outcome
