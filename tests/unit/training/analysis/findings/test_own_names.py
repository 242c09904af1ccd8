"""What Megatron-Bridge calls the settings that findings name by Megatron's flags."""

from __future__ import annotations

from typing import Any

import pytest

from flagscale_perf.analysis.rules import Change
from flagscale_perf.training.analysis.findings.own_names import in_bridge
from flagscale_perf.training.analysis.patch import lines_of, patch_of, remark
from flagscale_perf.training.facts import RunFacts
from tests.fakes import make_facts
from tests.reports import finding
from tests.unit.training.analysis.findings.test_advice import case_of

HOST = "Megatron-Bridge 0.3.1"
SETTINGS: dict[str, Any] = {
    "dataset.num_workers": 0,
    "dataset.path_to_cache": None,
    "train.eval_interval": 8,
    "checkpoint.async_save": False,
    "checkpoint.load_optim": True,
    "checkpoint.fully_parallel_save": False,
    "optimizer.use_distributed_optimizer": False,
    "ddp.use_distributed_optimizer": False,
    "model.virtual_pipeline_model_parallel_size": None,
}


@pytest.mark.parametrize(
    ("flags", "values", "overrides", "known"),
    [
        (["--num-workers 4"], {"--num-workers": 4}, ["dataset.num_workers=4"], {"dataset.num_workers": 4}),
        (
            ["--async-save"],
            {"--async-save": True},
            ["checkpoint.async_save=true"],
            {"checkpoint.async_save": True},
        ),
        (
            ["--no-load-optim"],
            {"--no-load-optim": True},
            ["checkpoint.load_optim=false"],
            {"checkpoint.load_optim": False},
        ),
        (
            ["--use-distributed-optimizer"],
            {"--use-distributed-optimizer": True},
            ["ddp.use_distributed_optimizer=true"],
            {"ddp.use_distributed_optimizer": True},
        ),
        (
            [
                "--ckpt-fully-parallel-save",
                "--ckpt-assume-constant-structure",
            ],  # this Bridge lacks the second
            {"--ckpt-fully-parallel-save": True, "--ckpt-assume-constant-structure": True},
            ["checkpoint.fully_parallel_save=true"],
            {"checkpoint.fully_parallel_save": True},
        ),
        (["--data-cache-path"], {}, ["dataset.path_to_cache"], {}),
        # layers of a stage for Megatron, stages for Bridge
        (
            ["--num-layers-per-virtual-pipeline-stage 2"],
            {"--num-layers-per-virtual-pipeline-stage": 2},
            ["model.virtual_pipeline_model_parallel_size"],
            {},
        ),
        (["NCCL_DEBUG=INFO"], {"NCCL_DEBUG": "INFO"}, ["NCCL_DEBUG=INFO"], {"NCCL_DEBUG": "INFO"}),
        (["--perf-breakdown"], {"--perf-breakdown": True}, ["FLAGSCALE_PERF_BREAKDOWN=1"], {}),
    ],
)
def test_a_change_as_overrides(
    flags: list[str], values: dict[str, Any], overrides: list[str], known: dict[str, Any]
) -> None:
    made = in_bridge(Change(flags, "why", settings=values), SETTINGS)
    assert made == Change(overrides, "why")
    assert made is not None and made.settings == known


def test_what_bridge_lacks_is_not_advised() -> None:
    assert (
        in_bridge(Change(["--tp-comm-overlap"], "why", settings={"--tp-comm-overlap": True}), SETTINGS)
        is None
    )
    only_text = Change([], "look at what else runs")
    assert in_bridge(only_text, SETTINGS) == only_text


def test_a_run_of_bridge_is_known_by_megatrons_names() -> None:
    case = case_of(HOST, **SETTINGS)
    assert (case.number("eval_interval"), case.argument("async_save"), case.argument("bf16")) == (
        8,
        False,
        None,
    )
    assert case_of(**SETTINGS).argument("eval_interval") is None


def test_the_patch_is_a_line_of_overrides_and_compare_knows_them() -> None:
    changes = [
        Change(["--num-workers 2"], "more", settings={"--num-workers": 2}),
        Change(["--no-load-optim"], "less", settings={"--no-load-optim": True}),
        Change(["--perf-breakdown"], "look closer"),
    ]
    case = case_of(HOST, **SETTINGS)
    found = [finding(name="data_stall", changes=[own for each in changes if (own := case.of_host(each))])]
    assert lines_of(patch_of(found), case.facts, "A") == [
        "# what the findings of A advise: 2 settings",
        "# not set here: FLAGSCALE_PERF_BREAKDOWN=1 (data_stall)",
        "dataset.num_workers=2 checkpoint.load_optim=false",
    ]

    def facts(**changed: Any) -> RunFacts:
        return make_facts(host=HOST, arguments=SETTINGS | changed)

    assert remark(found, [facts(), facts(**{"dataset.num_workers": 2})]) == [
        "of what BASE's findings advise NEW has dataset.num_workers=2 and has not checkpoint.load_optim=false"
    ]
