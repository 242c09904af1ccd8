"""What is known before the first step; most of it is seen through `tests/unit/test_hooks.py`."""

from dataclasses import replace

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device.probe import NoDevice
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.training.recording import session
from tests.unit.test_hooks import FACTS, GPT, FakeLoop

CONFIG = PerfConfig(enable_perf_monitor=True, perf_breakdown=True)
NO_COUNTERS = "hardware counters (CPU has no id to find them by)"


def test_what_is_missing_is_said_in_one_list(monkeypatch):
    monkeypatch.delenv("RANK", raising=False)
    facts = replace(
        FACTS, world_size=2, pipeline_parallel=2, pipeline_schedule="interleaved", missing=["a hook"]
    )
    loop = FakeLoop(facts=facts, model_args=GPT | {"recompute_granularity_per_stage_micro_batch": [[1, 0]]})
    completed, _ = session.facts_and_flops(loop, CONFIG, NoDevice())
    assert completed.missing == [
        "a hook",
        NO_COUNTERS,
        "other ranks (the environment has no RANK, WORLD_SIZE and LOCAL_RANK)",
        "pipeline bubble (it is known for the 1f1b schedule only, this one is interleaved)",
        "HFU (recomputation varies by pipeline stage and micro-batch)",
    ]
    assert completed.model_family is not None
    assert completed.device == "CPU"


def test_flops_follow_from_the_model_its_samples_and_their_documents():
    _, flops = session.facts_and_flops(FakeLoop(), CONFIG, NoDevice())
    # a token: qkv 384, out 128, mlp 1024, logits 256; a pair of tokens: 32, of which causal_half counts half
    token, pair = 384 + 128 + 1024 + 256, 32
    assert flops(4, None)[0] == 3 * (32 * token + 4 * 8 * 8 * pair // 2)
    assert flops(4, Packed(10, 30))[0] == 3 * (10 * token + 30 * pair // 2)


def test_a_model_of_unknown_shape_has_none():
    completed, flops = session.facts_and_flops(FakeLoop(model_args={"num_layers": 2}), CONFIG, NoDevice())
    assert completed.model is None
    assert completed.missing[0] == NO_COUNTERS
    assert completed.missing[1].startswith("TFLOPS, MFU and HFU (")
    assert flops(4, None) == session.unknown_flops(4, None) == (None, None)


def test_a_model_whose_steps_the_arguments_do_not_say_has_none():
    arguments = FakeLoop().model_args() | {"decoder_num_layers": 2}
    completed, flops = session.facts_and_flops(FakeLoop(model_args=arguments), CONFIG, NoDevice())
    assert "decoder_seq_length is missing" in completed.missing[1]
    assert flops(4, None) == (None, None)
    _, known = session.facts_and_flops(
        FakeLoop(model_args=arguments | {"decoder_seq_length": 5}), CONFIG, NoDevice()
    )
    assert known(4, None)[0] is not None


def test_who_a_rank_is():
    identity = session.identity_of(FakeLoop(rank_0=False), NoDevice())
    assert (identity.rank, identity.device, identity.lockstep) == (1, "CPU", 1)


def test_an_unknown_column_is_said_and_changes_nothing_else():
    config = replace(CONFIG, perf_columns="mfu,tflopps")
    completed, _ = session.facts_and_flops(FakeLoop(), config, NoDevice())
    assert completed.missing == [
        NO_COUNTERS,
        "the columns of --perf-columns ('tflopps' is not a figure; did you mean tflops?); the logs have the "
        "usual ones",
    ]
    known = replace(CONFIG, perf_columns="forward_ms,bubble_share")
    assert session.facts_and_flops(FakeLoop(), known, NoDevice())[0].missing == [NO_COUNTERS]


@pytest.mark.parametrize(
    ("given", "flop"),
    [
        ({}, 132 * 4096),
        ({"fp8": None, "fp4": None}, 132 * 4096),
        ({"fp8": "hybrid"}, None),
        ({"fp4": "e2m1"}, None),
    ],
)
def test_what_a_clock_multiplies_is_known_of_one_type_of_products(given, flop):
    device = NoDevice("NVIDIA H200")
    loop = FakeLoop(facts=replace(FACTS, dtype="bf16"), model_args=GPT | given)
    completed, _ = session.facts_and_flops(loop, CONFIG, device)
    assert completed.flop_per_clock == flop
    told = session.facts_and_flops(loop, replace(CONFIG, perf_peak_tflops="500"), device)[0]
    assert (told.peak_flop_per_s, told.flop_per_clock) == (5e14, flop)
