"""What other hosts call the settings that findings name by Megatron's flags."""

from __future__ import annotations

from typing import Any

import pytest

from flagscale_perf.analysis.rules import Change
from flagscale_perf.training.analysis.findings.own_names import in_own_names
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
IN_BRIDGE = make_facts(host=HOST, arguments=SETTINGS)
TRAINER = "transformers 5.23.0 Trainer"
ARGUMENTS: dict[str, Any] = {
    "dataloader_num_workers": 0,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 4,
    "save_strategy": "steps",
    "save_steps": 500,
    "eval_strategy": "no",
    "eval_steps": 8,
    "logging_strategy": "steps",
    "logging_steps": 0.1,
    "fp16": True,
    "bf16": False,
}
IN_TRAINER = make_facts(host=TRAINER, arguments=ARGUMENTS)
IN_LIGHTNING = make_facts(host="lightning 2.6.6 Trainer")


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
    made = in_own_names(Change(flags, "why", settings=values), IN_BRIDGE)
    assert made == Change(overrides, "why")
    assert made is not None and made.settings == known


def test_what_bridge_lacks_is_not_advised() -> None:
    lacked = Change(["--tp-comm-overlap"], "why", settings={"--tp-comm-overlap": True})
    only_text = Change([], "look at what else runs")
    for facts in (IN_BRIDGE, IN_TRAINER, IN_LIGHTNING):
        assert (in_own_names(lacked, facts), in_own_names(only_text, facts)) == (None, only_text)


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


@pytest.mark.parametrize(
    ("flag", "value", "flags", "known"),
    [
        ("--num-workers", 4, ["--dataloader_num_workers 4"], {"--dataloader_num_workers": 4}),
        ("--save-interval", None, ["--save_steps"], {}),
        ("--bf16", True, ["--bf16", "--fp16 false"], {"--bf16": True, "--fp16": False}),
        (
            "--micro-batch-size",
            4,
            ["--per_device_train_batch_size 4", "--gradient_accumulation_steps 2"],
            {"--per_device_train_batch_size": 4, "--gradient_accumulation_steps": 2},
        ),
        ("--micro-batch-size", 16, ["--per_device_train_batch_size"], {}),  # more samples than a step has
        ("--perf-breakdown", None, ["FLAGSCALE_PERF_BREAKDOWN=1"], {}),
    ],
)
def test_a_change_as_arguments_of_hugging_faces_trainer(
    flag: str, value: Any, flags: list[str], known: dict[str, Any]
) -> None:
    written = [flag if value in (None, True) else f"{flag} {value}"]
    given = Change(written, "why", settings={} if value is None else {flag: value})
    made = case_of(TRAINER, **ARGUMENTS).of_host(given)
    assert made == Change(flags, "why")
    assert made is not None and made.settings == known


def test_a_run_of_the_trainer_is_known_by_megatrons_names() -> None:
    case = case_of(TRAINER, **ARGUMENTS)
    known = [case.argument(name) for name in ("num_workers", "save_interval", "fp16")]
    assert known == [0, 500, True]
    assert (
        case.argument("eval_interval") is case.argument("log_interval") is None
    )  # never; a share of the steps


def test_lightnings_places_have_no_values() -> None:
    given = Change(["--num-workers 4", "--no-load-optim"], "why", settings={"--num-workers": 4})
    made = in_own_names(given, IN_LIGHTNING)
    assert made == Change(["DataLoader.num_workers"], "why")
    assert made is not None and made.settings == {}


def test_the_patch_of_the_trainer_is_a_line_for_its_parser_and_for_python() -> None:
    changes = [
        Change(["--num-workers 2"], "more", settings={"--num-workers": 2}),
        Change(["--bf16"], "less", settings={"--bf16": True}),
    ]
    case = case_of(TRAINER, **ARGUMENTS)
    found = [finding(name="data_stall", changes=[own for each in changes if (own := case.of_host(each))])]
    assert lines_of(patch_of(found), case.facts, "A") == [
        "# what the findings of A advise: 3 settings",
        "# of a script that parses no arguments: TrainingArguments(...,"
        " dataloader_num_workers=2, bf16=True, fp16=False)",
        "--dataloader_num_workers 2 --bf16 --fp16 false",
    ]
    new = make_facts(host=TRAINER, arguments=ARGUMENTS | {"dataloader_num_workers": 2, "bf16": True})
    assert remark(found, [case.facts, new]) == [
        "of what BASE's findings advise NEW has --dataloader_num_workers 2, --bf16 and has not --fp16 false"
    ]
