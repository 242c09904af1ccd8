"""Mamba-2, by hand: h 4, 2 heads of width 3, state 5, 1 group."""

from __future__ import annotations

import pytest

from flagscale_perf.flops.families.mamba import mamba
from flagscale_perf.flops.tape import CORE_FORMS, Tape
from flagscale_perf.flops.units import TOKEN, ChunkRow
from flagscale_perf.flops_calculator import Packed, StepFlops, count, step_flops
from flagscale_perf.spine.errors import PerfError
from tests.unit.flops.families.walks import forward, tape_of
from tests.unit.test_flops_calculator import TINY, shape

SIZES = {
    "hybrid_layer_pattern": "M",
    "mamba_num_heads": 2,
    "mamba_head_dim": 3,
    "mamba_state_dim": 5,
    "mamba_num_groups": 1,
}


def test_what_a_token_costs() -> None:
    tape = tape_of(**SIZES)
    assert mamba(tape, 0, True)
    assert forward(tape) == {
        ("mamba.in_proj", TOKEN): 2 * 4 * (6 + 6 + 2 * 5 + 2),
        ("mamba.conv1d", TOKEN): 2 * 4 * (6 + 2 * 5),
        ("mamba.core", TOKEN): 4 * 6 * 5,
        ("mamba.out_proj", TOKEN): 2 * 6 * 4,
    }
    # the convolution's kernels and bias; A, D, dt's bias; the norm
    assert tape.parameters == 4 * 24 + 16 * 4 + 16 + 3 * 2 + 6 + 6 * 4


def test_the_core_in_other_forms() -> None:
    shape = tape_of(**SIZES).shape
    forms = {}
    for form in ("chunked", "megatron"):
        tape = Tape(shape, form)
        mamba(tape, 0, True)
        forms[form] = forward(tape)
    # C B^T of the group and its product with x, 128 places of a chunk each; and both states
    chunk = ChunkRow(128, restarts=False)
    assert forms["chunked"]["mamba.core", chunk] == 2 * 128 * (5 + 6) + 4 * 6 * 5
    # as if the inner width were 2 h = 8
    assert forms["megatron"]["mamba.core", TOKEN] == 7 * 8 * 5


def test_it_needs_its_sizes() -> None:
    with pytest.raises(PerfError, match="needs Mamba's sizes; give mamba_state_dim and mamba_head_dim"):
        mamba(tape_of(), 0, True)


class TestCores:
    """One Mamba layer of width 8 x 2 = 16, state 4, 1 group, over 2 x 10 tokens."""

    MAMBA = TINY | {
        "hybrid_layer_pattern": "M",
        "mamba_num_heads": 8,
        "mamba_head_dim": 2,
        "mamba_state_dim": 4,
        "mamba_num_groups": 1,
    }

    def test_each_form_has_its_components_and_totals(self):
        cores = {form: count(shape(self.MAMBA), 2, 10, core=form) for form in CORE_FORMS}
        forward = {form: table.components["mamba.core"]["fwd"] for form, table in cores.items()}
        # chunks of 128 tokens: both sequences are filled up to one
        chunked = 2 * 128 * (2 * 128 * (4 + 16) + 4 * 16 * 4)
        assert forward == {"recurrent": 20 * 4 * 16 * 4, "chunked": chunked, "megatron": 20 * 7 * 8 * 4}
        assert {form: table.totals for form, table in cores.items()} == cores["chunked"].totals_by_core

    def test_the_record_counts_the_recurrence_and_the_hardware_its_chunks(self):
        totals = count(shape(self.MAMBA), 2, 10).totals_by_core
        assert step_flops(shape(self.MAMBA), 2, 10) == StepFlops(
            totals["recurrent"]["model_flops_causal_half"], totals["chunked"]["hardware_flops_causal_half"]
        )
        assert "recurrent" in shape(self.MAMBA).convention
        assert shape(TINY).convention == "causal_half"

    def test_packed_documents_leave_the_chunks_unknown(self):
        packed = step_flops(shape(self.MAMBA), 2, 8, Packed(15, 83))
        per_token = count(shape(self.MAMBA), 1, 1).totals["model_flops_causal_half"]
        assert packed == StepFlops(15 * per_token, None)

    def test_a_form_that_is_not_known(self):
        kimi = {"experimental_attention_variant": "kda", "linear_attention_freq": [1]}
        model = shape(TINY, kimi, linear_num_heads=2, linear_head_dim=2)
        assert count(model, 1, 2).totals_by_core["megatron"]["model_flops_causal_half"] is None
        with pytest.raises(PerfError, match="core megatron: there is no such formula"):
            count(model, 1, 2, core="megatron")
        with pytest.raises(PerfError, match="core is 'scan'; write one of recurrent, chunked, megatron"):
            count(model, 1, 2, core="scan")
