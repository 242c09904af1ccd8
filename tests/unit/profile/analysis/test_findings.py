"""What holds the step back."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.profile.analysis.findings import judge
from flagscale_perf.profile.analysis.observer import Observer
from flagscale_perf.profile.analysis.report import ProfileReport, report_of
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.records import Sort
from tests.profile_runs import FORWARD, MATMUL, Profiled


def _one_rank(tmp_path: Path, *rows: tuple[str, Sort, int], residual_ms: int = 0) -> ProfileReport:
    """One step of the rows' time, module, sort and milliseconds of each."""
    job = Profiled()
    process = job.rank(0, 1)
    host = sum(ms for _, sort, ms in rows if sort is Sort.HOST)
    whole = sum(ms for *_, ms in rows)
    job.step(process, 0, whole + residual_ms, whole - host, 0, host, 0, 0, residual_ms)
    for module, sort, ms in rows:
        op = "" if sort is Sort.HOST else MATMUL
        job.row(process, (FORWARD, module, sort, op, 1, ms, None, None))
    job.window(process, steps=1, clean_steps=0)
    return report_of(read_profile(job.write(tmp_path)))


def test_nothing_is_said_of_nothing(nothing: Profile) -> None:
    assert report_of(nothing).findings == []


def test_the_rank_that_others_wait_for(found: ProfileReport) -> None:
    (one,) = found.findings
    assert (one.name, one.title, one.ranks) == ("late_rank", "The other ranks wait for rank 1", [1])
    assert one.cost_s == pytest.approx(0.006)  # 3 ms in each of 2 steps
    assert one.cost_share == pytest.approx(3 / 101)
    assert one.evidence[0].figure == (
        "of a step, 3.000 ms on each other rank; last in 2 of 4, at model.layers.0.self_attn (forward)"
    )


def test_python_between_operators(tmp_path: Path) -> None:
    found = _one_rank(tmp_path, ("model.layers.0", Sort.OPERATOR, 70), ("model.layers.0", Sort.HOST, 30))
    assert [one.title for one in found.findings] == ["Python takes 30.0 % of a train step"]


def test_a_layer_that_takes_longer_than_the_others(tmp_path: Path) -> None:
    layers = [(f"model.layers.{place}", Sort.OPERATOR, 30 if place == 2 else 10) for place in range(4)]
    (one,) = _one_rank(tmp_path, *layers).findings
    assert one.title == "layer 2 takes 3.0 times as long as the other layers (train)"
    assert one.cost_s == pytest.approx(0.020)


def test_transfers_that_are_no_waiting(found: ProfileReport) -> None:
    slow = [one._replace(transfer_ns=2 * one.transfer_ns) for one in found.communication.waits]
    judged = judge(replace(found, communication=replace(found.communication, waits=slow)))
    assert [one.name for one in judged.findings] == ["transfers", "late_rank"]


def test_books_that_do_not_close(tmp_path: Path) -> None:
    found = _one_rank(tmp_path, ("model.layers.0", Sort.OPERATOR, 90), residual_ms=10)
    assert [one.title for one in found.findings] == ["10.0 % of a train step are in no row"]
    assert found.unjudged == ["what the device could do at best: no roofs were measured"]


def test_a_profiler_that_changes_what_it_measures(found: ProfileReport) -> None:
    def with_ratio(*ratios: float, clean: float = 1.0) -> list[str]:
        observer = Observer(ratios, [clean], None, None)
        judged = judge(replace(found, observers={"train": observer}))
        return [one.title for one in judged.findings if one.name == "costly_observer"]

    assert with_ratio(1.5) == ["Profiling makes a train step x1.50"]
    assert with_ratio(1.05) == []
    assert with_ratio(1.5, clean=1.6) == []  # clean steps differ as much
