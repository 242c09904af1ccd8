"""Figures on their way to the host's run, a stand-in of which keeps what it is given; the real one:
tests/processes/test_wandb.py.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flagscale_perf.sinks.wandb import HostRun, WandbSink
from tests.fakes import make_context, make_header, make_interval, make_step

MISSING = (
    "flagscale_perf: W&B: the host has no run in rank 0's process (Megatron's is on the last rank); "
    "no figures there"
)
FIGURES = {"flagscale_perf/iteration": 10, "flagscale_perf/performance/mfu": 0.05}


class StandInRun:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any, dict[str, Any]]] = []

    def define_metric(self, name: str, **options: Any) -> None:
        self.calls.append(("define_metric", name, options))

    def log(self, figures: dict[str, Any], **options: Any) -> None:
        self.calls.append(("log", figures, options))


@pytest.fixture
def said() -> list[str]:
    return []


def has_run(monkeypatch: pytest.MonkeyPatch, run: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(run=run))


def test_of_an_interval_it_sends_what_is_known(tmp_path: Path) -> None:
    sent: list[dict[str, float]] = []
    sink = WandbSink.open(
        make_context(make_header(perf_wandb=True), tmp_path, pytest.fail, emit_figures=sent.append)
    )
    assert sink is not None
    sink.write(make_step(1))
    sink.write(make_interval(10, memory_bytes=None))
    sink.flush()
    sink.flush()
    (figures,) = sent
    assert (figures["flagscale_perf/iteration"], figures["flagscale_perf/performance/tokens_per_second"]) == (
        10,
        10240,
    )
    assert "flagscale_perf/memory/current_gb" not in figures


def test_only_with_the_option(tmp_path: Path) -> None:
    assert WandbSink.open(make_context(make_header(), tmp_path, print)) is None


def test_figures_join_the_hosts_run(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    host.log(FIGURES)
    host.log(FIGURES)
    assert run.calls == [
        ("define_metric", "flagscale_perf/iteration", {"hidden": True}),
        ("define_metric", "flagscale_perf/*", {"step_metric": "flagscale_perf/iteration"}),
        ("log", FIGURES, {"commit": False}),
        ("log", FIGURES, {"commit": False}),
    ]
    assert said == []


def test_without_a_run_it_says_so_once_and_goes_on_looking(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    host = HostRun(said.append)
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    host.log(FIGURES)
    has_run(monkeypatch, None)
    host.log(FIGURES)
    assert (said, "wandb" in sys.modules) == ([MISSING], True)
    run = StandInRun()
    has_run(monkeypatch, run)
    host.log(FIGURES)
    assert len(run.calls) == 3


def test_a_run_that_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    monkeypatch.setattr(run, "log", lambda *args, **options: 1 / 0)
    host.log(FIGURES)
    host.log(FIGURES)
    assert said == ["flagscale_perf: W&B: ZeroDivisionError: division by zero; no more figures there"]
