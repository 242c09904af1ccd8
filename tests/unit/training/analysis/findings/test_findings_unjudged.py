"""What could not be judged, and why: by what the run itself has said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.findings.findings import find, no_phases
from flagscale_perf.training.analysis.findings.signals import Signals
from flagscale_perf.training.analysis.report import TrainingReport
from flagscale_perf.training.analysis.tables import Happening, Monitor
from flagscale_perf.training.ledger.ledger import ledger_of
from tests.reports import overview, small
from tests.schedules import recorded


def said(*events: tuple[str, str], **seen: Any) -> TrainingReport:
    happened = [Happening(name, 1, "2024-01-29 10:30:20", text) for name, text in events]
    return replace(small(), overview=overview(**seen), monitor=Monitor(0.0, 0, 0, happened, {}))


def test_phases() -> None:
    on = {"config": {"perf_breakdown": True}}
    assert no_phases(said()) == "no phases; switch on --perf-breakdown"
    missing = said(missing=["phases (the host has no timers that mark them)"], **on)
    assert no_phases(missing) == "no phases: the host has no timers that mark them"
    shed = "phases switched off: the monitor takes 300 us a step"
    assert no_phases(said(("shed", shed), **on)) == f"no phases: {shed}"
    assert no_phases(said(**on)) == (
        "no phases: --perf-breakdown is on, but no step after the first has any yet"
    )


def why_no(figure: str, report: TrainingReport) -> str:
    unjudged = find(TrainingCase(report, Signals(), steps=20, rated_s=1.0)).unjudged
    return next(each for each in unjudged if each.startswith(figure)).removeprefix(f"{figure}: ")


def test_counters() -> None:
    assert why_no("clocks", said(device="CPU (rehearsal)")) == "a CPU has none that are read"
    why = "NVML: the package nvidia-ml-py is not installed; pip install nvidia-ml-py"
    assert why_no("clocks", said(("hardware", f"no hardware counters: {why}"))) == why
    assert why_no("clocks", said()) == (
        "not read from NVIDIA's driver; pip install nvidia-ml-py on the training machine"
    )


def test_memory() -> None:
    assert why_no("memory", said(config={"perf_memory_tracking": False})) == "--perf-memory-tracking is off"
    assert why_no("memory", said(device="CPU (rehearsal)")) == "a CPU has no allocator to read"
    assert why_no("memory", said()) == "the allocator was not read"


def test_ranks_that_a_ledger_has_are_not_missing() -> None:
    report = replace(said(world_size=3), ranks=None)
    ledger = ledger_of(recorded(3, range(2, 42), lambda rank, step, phase: 0))
    assert ledger is not None
    assert why_no("other ranks than the first", report) == "the file has nothing of them"
    unjudged = find(
        TrainingCase(replace(report, ledgers=[ledger]), Signals(), steps=20, rated_s=1.0)
    ).unjudged
    assert not [each for each in unjudged if each.startswith("other ranks")]
