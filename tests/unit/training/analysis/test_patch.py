"""What findings advise, as the host takes it, and which of it a run has."""

from __future__ import annotations

from typing import Any

import pytest

from flagscale_perf.analysis.rules import Change, Finding
from flagscale_perf.training.analysis.findings.advice import double, give, set_to, switch_off, switch_on
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.patch import lines_of, patch_of, remark
from flagscale_perf.training.facts import RunFacts
from tests.fakes import make_facts
from tests.reports import finding
from tests.unit.training.analysis.findings.test_advice import case_of

FLAGSCALE, MEGATRON = "FlagScale 0.8.0", "Megatron-LM (core 0.15.0)"
ARGUMENTS: dict[str, Any] = {"num_workers": 2, "overlap_grad_reduce": False, "masked_softmax_fusion": True}


def advised(case: TrainingCase) -> list[Finding]:
    """Two findings that both want more workers, the cheaper one still more."""
    loader = [double("--num-workers", "more", 8), give("--data-cache-path", "where it is kept")]
    slow = [
        switch_on("--overlap-grad-reduce", text="hide it"),
        switch_off("--no-masked-softmax-fusion", "off"),
    ]
    other = [set_to("--num-workers", 8, "many"), Change(["--perf-profile-steps 5-7"], "look closer")]
    return [
        finding(name=name, changes=[made for each in changes if (made := each.for_case(case))])
        for name, changes in (("data_stall", loader), ("exposed_comm", slow), ("slow_start", other))
    ]


def facts(host: str, **arguments: Any) -> RunFacts:
    return make_facts(host=host, arguments=ARGUMENTS | arguments)


def test_an_overlay_for_flagscale() -> None:
    patch = patch_of(advised(case_of(FLAGSCALE, **ARGUMENTS)))
    assert lines_of(patch, facts(FLAGSCALE), "A") == [
        "# @package _global_",
        "# what the findings of A advise: 3 settings",
        "# not set here: --data-cache-path (data_stall)",
        "# not set here: --num-workers 8 (slow_start)",
        "# not set here: --perf-profile-steps 5-7 (slow_start)",
        "train:",
        "  data:",
        "    num_workers: 4  # data_stall",
        "    overlap_grad_reduce: true  # exposed_comm",
        "    no_masked_softmax_fusion: true  # exposed_comm",
    ]


def test_a_line_for_megatron_and_what_belongs_into_the_environment() -> None:
    found = [
        finding(
            changes=[
                Change(["CONF=a b"], "grow", settings={"CONF": "a b"}),
                Change(["--num-workers 4"], "more", settings={"--num-workers": 4}),
                Change(["--x"], "on", settings={"--x": True}),
            ]
        )
    ]
    assert lines_of(patch_of(found), facts(MEGATRON), "A") == [
        "# what the findings of A advise: 3 settings",
        "# in the environment: CONF='a b'",
        "--num-workers 4 --x",
    ]


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ({}, "has not --num-workers 4, --overlap-grad-reduce, --no-masked-softmax-fusion"),
        (
            {"num_workers": 4, "masked_softmax_fusion": False},
            "has --num-workers 4, --no-masked-softmax-fusion and has not --overlap-grad-reduce",
        ),
    ],
)
def test_which_of_it_another_run_has(new: dict[str, Any], said: str) -> None:
    found = advised(case_of(MEGATRON, **ARGUMENTS))
    assert remark(found, [facts(MEGATRON), facts(MEGATRON, **new)]) == [
        f"of what BASE's findings advise NEW {said}"
    ]


def test_nothing_is_said_where_arguments_are_not_known_or_nothing_is_advised() -> None:
    found = advised(case_of(MEGATRON, **ARGUMENTS))
    assert remark(found, [make_facts(arguments=None), facts(MEGATRON)]) == []
    assert remark([], [facts(MEGATRON), facts(MEGATRON)]) == []
