"""The list of runs by configuration: what differs, what is chosen, in which order, with which spread."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from flagscale_perf.cli import main
from tests import sweeps

Said = Callable[..., str]


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sweep")
    sweeps.write(directory)
    return directory


@pytest.fixture
def said(sweep: Path, capsys: pytest.CaptureFixture[str]) -> Said:
    def ask(*words: str, code: int = 0) -> str:
        assert main(["runs", str(sweep), *words]) == code
        found = capsys.readouterr()
        return found.err if code else found.out

    return ask


def rows(text: str) -> list[dict[str, Any]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_columns_are_what_differs_and_nothing_else(said: Said) -> None:
    found = json.loads(said("--format", "json"))
    keys = ["tensor_parallel", "micro_batch_size", "num_workers", "recompute_granularity", "seed"]
    assert sorted(found["differs"]) == sorted(keys) and len(found["runs"]) == 48
    assert found["runs"][0]["settings"] == {
        "tensor_parallel": 1,
        "micro_batch_size": 1,
        "num_workers": 8,
        "recompute_granularity": None,
        "seed": 1,
    }
    head = said().splitlines()[3].split()
    assert head[:2] == ["run", "tp"] and head[-6:] == [
        "end",
        "MFU",
        "tokens/s",
        "goodput",
        "iterations",
        "findings",
    ]
    one = said("--where", "seed=1", "--where", "tp=1", "--where", "num_workers=8").splitlines()
    assert one[1].strip() == "all of them: llama, 8 x NVIDIA H200, DP 8"
    assert {*one[3].split()} & {*keys, "tp"} == {"micro_batch_size", "recompute_granularity"}


def test_the_best_configuration_comes_first(said: Said) -> None:
    best = rows(said("--sort", "mfu", "--format", "csv"))
    assert [float(one["mfu"]) for one in best] == sorted((float(one["mfu"]) for one in best), reverse=True)
    assert {one["name"] for one in best[:3]} == {"m2-t1-none"}  # by construction, whatever the seed
    slowest = rows(said("--sort", "iteration_ms", "--format", "csv"))[-1]
    assert slowest["name"] == "m1-t2-full"
    by_tp = [one["tensor_parallel"] for one in rows(said("--sort", "tp", "--format", "csv"))]
    assert by_tp == sorted(by_tp)


def test_the_newest_comes_last_where_no_order_is_asked_for(said: Said) -> None:
    found = [one["session_id"] for one in rows(said("--format", "csv"))]
    assert found == sorted(found)


def test_a_group_is_a_configuration_over_its_seeds(said: Said) -> None:
    every = rows(said("--format", "csv"))
    found = rows(said("--group", "--format", "csv"))
    assert len(found) == 16 and {one["runs"] for one in found} == {"3"}
    first = found[0]
    own = [
        float(one["tokens_per_s"])
        for one in every
        if (one["name"], one["num_workers"]) == ("m2-t1-none", "8")
    ]
    assert (first["micro_batch_size"], first["tensor_parallel"], first["num_workers"]) == ("2", "1", "8")
    assert float(first["tokens_per_s"]) == pytest.approx(mean(own))
    assert float(first["tokens_per_s_spread"]) == pytest.approx(stdev(own) / mean(own))
    assert (float(first["tokens_per_s_lowest"]), float(first["tokens_per_s_highest"])) == (min(own), max(own))
    assert json.loads(said("--group", "--format", "json"))["configurations"][0]["runs"] == 3
    assert said("--group").startswith("48 runs of 16 configurations in ")


def test_a_run_of_its_own_has_no_spread(said: Said) -> None:
    found = rows(said("--group", "--where", "seed=1", "--format", "csv"))
    assert len(found) == 16 and {one["tokens_per_s_spread"] for one in found} == {""}


def test_conditions_that_no_run_meets_say_what_there_is(said: Said) -> None:
    assert said("--where", "tp=3", code=2) == "--where 'tp=3': no run has that; tensor_parallel is 1, 2\n"
    assert said("--where", "mfu>99%", code=2) == "--where 'mfu>99%': no run is like that\n"
    assert said("--sort", "speed", code=2).startswith("--sort speed: the runs have no 'speed'")


def test_a_page_links_to_the_jobs_own_pages(said: Said, sweep: Path, tmp_path: Path) -> None:
    (run,) = (sweep / "week46/m1-t1-none-1").glob("*.jsonl")
    page = run.with_name(run.name.replace("perf_records_", "perf_report_").replace(".jsonl", ".html"))
    page.write_text("its page")
    target = sweep / "a list" / "runs.html"
    target.parent.mkdir()
    said("--where", "seed=1", "-o", str(target))
    assert f'<a href="../week46/m1-t1-none-1/{page.name}">its page</a>' in target.read_text()
    (found,) = [one for one in rows(said("--format", "csv")) if one["page"]]
    assert (sweep / found["page"]).read_text() == "its page"
    page.unlink()
