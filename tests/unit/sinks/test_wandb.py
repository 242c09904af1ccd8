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
STEP = "flagscale_perf/iteration"
FIGURES = {STEP: 10, "flagscale_perf/performance/mfu": 0.05}


class StandInRun:
    """Keeps rows as a run does: one row is under way, and a step given to it ends those before it."""

    def __init__(self) -> None:
        self.defined: list[tuple[str, dict[str, Any]]] = []
        self.rows: list[dict[str, Any]] = []
        self.step, self._row = 0, {}

    def define_metric(self, name: str, **options: Any) -> None:
        self.defined.append((name, options))

    def log(self, figures: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        if step is not None:
            assert step >= self.step, "W&B drops this row"
            if step > self.step:
                self._end_row()
            self.step = step
        self._row |= figures
        if commit or (step is None and commit is None):
            self._end_row()
            self.step += 1

    def finish(self) -> None:
        self._end_row()

    def _end_row(self) -> None:
        if self._row:
            self.rows.append({"_step": self.step} | self._row)
        self._row = {}


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


def test_in_shared_mode_a_run_has_no_step_to_read_and_every_interval_is_a_row(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    class Shared:
        settings = SimpleNamespace(mode="shared")

        def __init__(self) -> None:
            self.rows: list[dict[str, Any]] = []
            self.log, self.finish = self.rows.append, print

        def define_metric(self, name: str, **options: Any) -> None: ...

    run, host = Shared(), HostRun(said.append)
    has_run(monkeypatch, run)
    host.log({STEP: 10})
    run.log({"loss": 10})
    host.log({STEP: 20})
    assert (run.rows, said) == ([{STEP: 10}, {"loss": 10}, {STEP: 20}], [])


@pytest.mark.parametrize("is_stepped", [True, False])
@pytest.mark.parametrize(
    ("hosts", "ours"), [(1, 10), (10, 10), (50, 10), (20, 10), (3, 1), (2, 3), (1000, 10)]
)
def test_every_interval_arrives_once_and_the_hosts_rows_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch, said: list[str], is_stepped: bool, hosts: int, ours: int
) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    for iteration in range(1, 201):
        if iteration % hosts == 0:
            run.log({"loss": iteration}, step=iteration if is_stepped else None)
        if iteration % ours == 0:
            host.log({STEP: iteration})
    run.finish()
    logged = range(hosts, 201, hosts)
    steps = list(logged) if is_stepped else list(range(len(logged)))
    assert [(row["_step"], row["loss"]) for row in run.rows if "loss" in row] == list(
        zip(steps, logged, strict=True)
    )
    assert [row[STEP] for row in run.rows if STEP in row] == list(range(ours, 201, ours))
    assert run.defined == [(STEP, {"hidden": True}), ("flagscale_perf/*", {"step_metric": STEP})]
    assert said == []


def test_where_the_host_leaves_steps_out_figures_need_not_wait(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    for iteration in range(10, 201, 10):
        if iteration % 50 == 0:
            run.log({"loss": 1.0}, step=iteration)
        host.log({STEP: iteration})
    assert [row[STEP] for row in run.rows if STEP in row] == list(range(10, 200, 10))


def test_of_too_many_that_wait_the_oldest_are_left_out(
    monkeypatch: pytest.MonkeyPatch, said: list[str]
) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    monkeypatch.setattr("flagscale_perf.sinks.wandb.MAX_WAITING", 3)
    for iteration in range(1, 11):
        host.log({STEP: iteration})
    run.finish()
    assert [row[STEP] for row in run.rows] == [1, 8, 9, 10]
    assert said == [
        "flagscale_perf: W&B: 6 intervals are not there: the host logged so seldom that more than 3 waited; "
        "the run file has them"
    ]


@pytest.mark.parametrize("is_patched", [True, False])
def test_the_runs_own_finish_is_put_back_at_its_end(
    monkeypatch: pytest.MonkeyPatch, said: list[str], is_patched: bool
) -> None:
    run, host = StandInRun(), HostRun(said.append)
    if is_patched:
        run.finish = lambda: StandInRun.finish(run)  # type: ignore[method-assign]
    before = vars(run).get("finish")
    has_run(monkeypatch, run)
    host.log({STEP: 1})
    assert vars(run)["finish"] is not before
    run.finish()
    assert vars(run).get("finish") is before
    assert [row[STEP] for row in run.rows] == [1]


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
    assert len(run.defined) == 2


def test_a_run_that_fails_is_left_alone(monkeypatch: pytest.MonkeyPatch, said: list[str]) -> None:
    run, host = StandInRun(), HostRun(said.append)
    has_run(monkeypatch, run)
    monkeypatch.setattr(run, "log", lambda *args, **options: 1 / 0)
    host.log(FIGURES)
    host.log(FIGURES)
    assert said == ["flagscale_perf: W&B: ZeroDivisionError: division by zero; no more figures there"]
