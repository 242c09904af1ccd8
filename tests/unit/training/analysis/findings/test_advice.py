"""Advice that knows the run: what is set is not advised, and a flag carries the value that is proposed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flagscale_perf.analysis.rules import Change
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.training.analysis.findings import advice
from flagscale_perf.training.analysis.findings.case import TrainingCase
from flagscale_perf.training.analysis.findings.findings import RULES
from flagscale_perf.training.analysis.findings.signals import Signals
from tests.fakes import make_facts
from tests.reports import small
from tests.strategies import json_values

NOTHING_KNOWN = TrainingCase(small(), Signals(), steps=20, rated_s=100.0, facts=make_facts())


def case_of(host: str = "Megatron-LM (core 0.15.0)", **arguments: Any) -> TrainingCase:
    facts = make_facts(host=host, arguments=arguments)
    return replace(NOTHING_KNOWN, facts=facts)


def changes(rule: str, case: TrainingCase) -> list[tuple[list[str], str]]:
    """Flags and text of what the rule advises in this case."""
    (found,) = (each for each in RULES if each.name == rule)
    made = [change.for_case(case) for change in found.changes]
    return [(change.flags, change.text) for change in made if change is not None]


def flags(rule: str, case: TrainingCase) -> list[list[str]]:
    return [each for each, _ in changes(rule, case)]


def test_a_flag_that_is_on_is_not_advised() -> None:
    both = ["--overlap-grad-reduce", "--overlap-param-gather"]
    change = advice.switch_on(*both, text="overlap")
    one_on = case_of(overlap_grad_reduce=True)
    assert change.for_case(NOTHING_KNOWN) == Change(
        ["--overlap-grad-reduce", "--overlap-param-gather"], "overlap"
    )
    assert change.for_case(one_on) == Change(["--overlap-param-gather"], "overlap")
    assert change.for_case(case_of(overlap_grad_reduce=True, overlap_param_gather=True)) is None


def test_a_number_is_doubled_from_the_one_in_force_up_to_its_limit() -> None:
    change = advice.double("--num-workers", "raise it", most=16, least=2)
    assert change.for_case(NOTHING_KNOWN) == Change(["--num-workers"], "raise it")
    assert change.for_case(case_of(num_workers=2)) == Change(["--num-workers 4"], "raise it; it is 2")
    assert change.for_case(case_of(num_workers=0)) == Change(["--num-workers 2"], "raise it; it is 0")
    assert change.for_case(case_of(num_workers=16)) is None


def test_flagscale_has_the_same_as_keys_of_its_yaml() -> None:
    made = advice.double("--num-workers", "raise it", most=16).for_case(
        case_of("FlagScale 0.8.0", num_workers=2)
    )
    assert made == Change(["--num-workers 4"], "raise it; it is 2", ["num_workers: 4"])
    on = advice.switch_on("--manual-gc", text="collect together").for_case(case_of("FlagScale 0.8.0"))
    assert on == Change(["--manual-gc"], "collect together", ["manual_gc: true"])


@pytest.mark.parametrize(
    ("rule", "arguments", "advised"),
    [
        (
            "data_stall",
            {"num_workers": 2, "mock_data": True, "create_attention_mask_in_dataloader": True},
            [["--num-workers 4"], ["--no-create-attention-mask-in-dataloader"]],
        ),
        (
            "data_stall",
            {"num_workers": 32, "data_cache_path": "c", "create_attention_mask_in_dataloader": False},
            [[]],
        ),
        (
            "small_micro_batch",
            {
                "micro_batch_size": 2,
                "global_batch_size": 64,
                "data_parallel_size": 8,
                "tensor_model_parallel_size": 1,
            },
            [["--micro-batch-size 4"]],
        ),
        (
            "small_micro_batch",
            {
                "micro_batch_size": 2,
                "global_batch_size": 16,
                "data_parallel_size": 8,
                "tensor_model_parallel_size": 4,
            },
            [["--tensor-model-parallel-size 2"]],
        ),
        (
            "full_recompute",
            {
                "recompute_granularity": "full",
                "recompute_method": "uniform",
                "num_layers": 32,
                "pipeline_model_parallel_size": 4,
            },
            [["--recompute-granularity selective"], ["--recompute-method block", "--recompute-num-layers 4"]],
        ),
        (
            "memory_limit",
            {
                "recompute_granularity": "selective",
                "use_distributed_optimizer": True,
                "data_parallel_size": 8,
                "micro_batch_size": 1,
                "tensor_model_parallel_size": 2,
                "sequence_parallel": True,
                "num_attention_heads": 32,
            },
            [["--tensor-model-parallel-size 4"]],
        ),
        (
            "allocator_retries",
            {"empty_unused_memory_level": 2, "recompute_granularity": "full"},
            [["PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"], ["--empty-unused-memory-level 0"]],
        ),
        (
            "checkpoint",
            {
                "async_save": True,
                "save_interval": 100,
                "ckpt_format": "torch_dist",
                "ckpt_fully_parallel_save": True,
                "ckpt_assume_constant_structure": True,
                "data_parallel_size": 8,
            },
            [["--save-interval 200"]],
        ),
        (
            "checkpoint",
            {"save_interval": 13, "ckpt_format": "torch", "data_parallel_size": 1},
            [["--async-save", "--ckpt-format torch_dist"], ["--save-interval 26"]],
        ),
        ("evaluation", {"eval_interval": 10, "eval_iters": 1}, [["--eval-interval 20"]]),
        ("startup", {"mock_data": True, "load": None}, []),
        (
            "startup",
            {"load": "checkpoints", "data_parallel_size": 2, "ckpt_fully_parallel_load": True},
            [["--data-cache-path"], ["--no-load-optim"]],
        ),
        ("lost", {"bf16": True, "lr_warmup_iters": 100}, [["--lr-warmup-iters 200"]]),
        (
            "lost",
            {"fp16": True, "initial_loss_scale": 2**32, "loss_scale_window": 1000.0},
            [["--initial-loss-scale 65536"], ["--loss-scale-window 2000"], ["--bf16"], ["--lr-warmup-iters"]],
        ),
        (
            "exposed_comm",
            {"overlap_grad_reduce": True, "use_distributed_optimizer": True},
            [["--overlap-param-gather"], ["--ddp-bucket-size"]],
        ),
        (
            "pipeline_bubble",
            {
                "num_layers": 32,
                "pipeline_model_parallel_size": 4,
                "micro_batch_size": 1,
                "global_batch_size": 32,
            },
            [
                ["--num-layers-per-virtual-pipeline-stage 4"],
                ["--global-batch-size 64"],
                ["--pipeline-model-parallel-size 2"],
            ],
        ),
        (
            "periodic_steps",
            {"manual_gc": True, "manual_gc_interval": 100, "log_interval": 1},
            [["--manual-gc-interval 200"], ["--log-interval 2"]],
        ),
    ],
)
def test_what_is_left_to_change(rule: str, arguments: dict[str, Any], advised: list[list[str]]) -> None:
    assert flags(rule, case_of(**arguments)) == advised


def test_phases_that_are_on_are_not_advised_in_any_file() -> None:
    assert ["--perf-breakdown"] in flags("jitter", NOTHING_KNOWN)
    assert ["--perf-breakdown"] not in flags(
        "jitter", replace(NOTHING_KNOWN, options=PerfConfig(perf_breakdown=True))
    )


def test_nothing_of_a_device_is_advised_on_a_cpu() -> None:
    cpu = replace(NOTHING_KNOWN, facts=make_facts(device="CPU (rehearsal)", rehearsal=True))
    assert "nvidia-smi" in changes("straggler", NOTHING_KNOWN)[0][1]
    assert changes("straggler", cpu)[0] == ([], "look at what else runs on its host (top), then leave it out")


def test_segments_that_grow_join_what_the_environment_has() -> None:
    facts = make_facts(arguments={}, environment={"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"})
    joined = "PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64,expandable_segments:True"
    assert flags("allocator_retries", replace(NOTHING_KNOWN, facts=facts))[0] == [joined]


NAMES = sorted({advice.name_of(flag) for rule in RULES for change in rule.changes for flag in change.flags})
NAMES += ["global_batch_size", "data_parallel_size", "num_layers", "num_attention_heads", "fp16", "load"]


@given(st.dictionaries(st.sampled_from(NAMES), json_values(2) | st.integers(-2, 9)), json_values(1))
def test_no_arguments_of_a_file_stop_a_report(arguments: dict[str, Any], variable: Any) -> None:
    facts = make_facts(arguments=arguments, environment={"PYTORCH_CUDA_ALLOC_CONF": variable})
    case = replace(NOTHING_KNOWN, facts=facts)
    for rule in RULES:
        for change in rule.changes:
            change.for_case(case)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_without_arguments_every_change_is_advised(rule: Any) -> None:
    made = [change.for_case(NOTHING_KNOWN) for change in rule.changes]
    assert [change for change in made if change is not None]
