"""Phases that take too much in every step, or more and more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fakes import MS
from tests.synthetic import Plan
from tests.unit.training.analysis.findings.planted import PLANTED, findings_of

CPU = {"device": "CPU (rehearsal)", "rehearsal": True, "peak_flop_per_s": None}


def test_a_long_phase_says_what_would_be_usual(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["long_phase"][0], tmp_path)
    assert found.title == (
        "The optimizer outside its parts takes 260.0 ms of each step, 20.8 % of it; "
        "about 25.0 ms would be normal"
    )
    assert (found.phase, found.pattern, found.evidence[0].limit) == ("optimizer", "constant", 0.1)


def test_every_long_phase_has_its_finding(tmp_path: Path) -> None:
    longer = {"optimizer_ns": 260 * MS, "zero_grad_ns": 400 * MS}
    found = findings_of(Plan(extra=lambda n: longer), tmp_path)
    assert [(each.name, each.phase) for each in found] == [
        ("long_phase", "zero_grad"),
        ("long_phase", "optimizer"),
    ]


def test_the_inner_step_is_judged_by_the_bytes_it_passes(tmp_path: Path) -> None:
    """Of 16 sequences of 4096 tokens on 8 devices a device computes 8192 tokens: 28 bytes / 6 FLOPs x
    150 / 8192 of 890 ms are 76 ms, and twice that may be.
    """
    facts = {"data_parallel": 8, "global_batch_size": 16}
    within = Plan(facts=facts, extra=lambda n: {"optimizer_inner_step_ns": 105 * MS})
    assert findings_of(within, tmp_path) == []
    (found,) = findings_of(Plan(facts=facts, extra=lambda n: {"optimizer_inner_step_ns": 240 * MS}), tmp_path)
    assert (found.name, found.phase) == ("long_phase", "optimizer_inner_step")


def test_a_long_backward_pass_is_judged_by_its_flops(tmp_path: Path) -> None:
    slower = {"backward_ns": 600 * MS}
    (found,) = findings_of(Plan(extra=lambda n: slower), tmp_path)
    assert (found.name, found.phase) == ("long_phase", "backward")
    # Recomputed activations are half as much again.
    recomputing = Plan(
        extra=lambda n: slower,
        step=lambda n: {"hardware_flops": 3_200 * 10**12 * 4 // 3},
    )
    assert findings_of(recomputing, tmp_path) == []


def test_on_a_cpu_no_step_is_host_bound_and_a_long_forward_pass_is_one(tmp_path: Path) -> None:
    assert findings_of(Plan(facts=CPU, extra=lambda n: {"forward_ns": 300 * MS}), tmp_path) == []
    (found,) = findings_of(Plan(facts=CPU, extra=lambda n: {"forward_ns": 1400 * MS}), tmp_path)
    assert (found.name, found.phase) == ("long_phase", "forward")


def test_a_device_that_waits_for_the_host_is_told_by_forward_and_backward(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["host_bound"][0], tmp_path)
    assert found.title == (
        "Forward takes 1.02 times as long as backward, which has 2.0 times its arithmetic: "
        "the device waits for the host"
    )
    assert (found.phase, found.gain) == ("forward", None)


def test_a_growing_phase_is_told_once(tmp_path: Path) -> None:
    (found,) = findings_of(PLANTED["growing_phase"][0], tmp_path)
    assert found.title.startswith("The train step outside every phase takes longer and longer: from ")
    assert (found.phase, found.pattern, found.iteration) == ("other", "growing", 600)


def test_data_that_grows_is_no_data_stall_besides(tmp_path: Path) -> None:
    found = findings_of(Plan(extra=lambda n: {"data_loading_ns": n * MS}), tmp_path)
    assert [(each.name, each.phase) for each in found] == [("growing_phase", "data_loading")]


@pytest.mark.parametrize("phase", ["other", "between_steps", "zero_grad", "forward_backward_other"])
def test_every_short_phase_is_judged(phase: str, tmp_path: Path) -> None:
    found = findings_of(Plan(extra=lambda n: {f"{phase}_ns": 150 * MS}), tmp_path)
    assert [(each.name, each.phase) for each in found] == [("long_phase", phase)]


def test_stages_may_wait_for_messages_in_their_schedule(tmp_path: Path) -> None:
    plan = Plan(facts={"pipeline_parallel": 2}, extra=lambda n: {"forward_backward_other_ns": 150 * MS})
    assert findings_of(plan, tmp_path) == []
