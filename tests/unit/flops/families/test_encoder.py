"""T5 and BERT with the sizes of `walks`: h 4, 2 heads of width 2, inner width 8, vocabulary 16."""

from __future__ import annotations

from flagscale_perf.flops.families.encoder import bert, encoder_decoder
from flagscale_perf.flops.tower_units import CROSS_PAIR, DECODER_PAIR, DECODER_TOKEN, FULL_PAIR, SEQUENCE
from flagscale_perf.flops.units import TOKEN
from tests.unit.flops.families.walks import forward, tape_of

T5 = {"model_family": "t5", "encoder_num_layers": 3, "decoder_seq_length": 5}


def test_an_encoder_a_decoder_and_what_the_one_sees_of_the_other():
    tape = tape_of(**T5)
    encoder_decoder(tape)
    assert forward(tape) == {
        ("encoder_qkv_proj", TOKEN): 3 * 2 * 4 * 12,
        ("encoder_core_attention", FULL_PAIR): 3 * 2 * (4 + 4),
        ("encoder_out_proj", TOKEN): 3 * 2 * 4 * 4,
        ("encoder_mlp", TOKEN): 3 * 2 * 2 * 4 * 8,
        ("qkv_proj", DECODER_TOKEN): 2 * 4 * 12,
        ("core_attention", DECODER_PAIR): 2 * (4 + 4),
        ("out_proj", DECODER_TOKEN): 2 * 4 * 4,
        ("cross_q_proj", DECODER_TOKEN): 2 * 4 * 4,
        ("cross_kv_proj", TOKEN): 2 * 4 * 8,
        ("cross_core_attention", CROSS_PAIR): 2 * (4 + 4),
        ("cross_out_proj", DECODER_TOKEN): 2 * 4 * 4,
        ("mlp", DECODER_TOKEN): 2 * 2 * 4 * 8,
        ("logits", DECODER_TOKEN): 2 * 4 * 16,
    }


def test_a_frozen_encoder_leaves_the_keys_and_values_their_weights_gradient():
    tape = tape_of(**T5, frozen=["encoder", "embedding"])
    encoder_decoder(tape)
    backward = {term.component: flops for term, flops in tape.flops.items() if term.phase == "bwd"}
    assert {name for name, flops in backward.items() if not flops} == {
        "encoder_qkv_proj",
        "encoder_core_attention",
        "encoder_out_proj",
        "encoder_mlp",
    }
    assert backward["cross_kv_proj"] == 2 * 4 * 8


def test_bert_predicts_every_token_and_one_thing_of_a_sequence():
    tape = tape_of(model_family="bert")
    bert(tape)
    assert forward(tape) == {
        ("encoder_qkv_proj", TOKEN): 2 * 4 * 12,
        ("encoder_core_attention", FULL_PAIR): 2 * (4 + 4),
        ("encoder_out_proj", TOKEN): 2 * 4 * 4,
        ("encoder_mlp", TOKEN): 2 * 2 * 4 * 8,
        ("pooler", SEQUENCE): 2 * 4 * 4,
        ("nsp_head", SEQUENCE): 2 * 4 * 2,
        ("mlm_transform", TOKEN): 2 * 4 * 4,
        ("logits", TOKEN): 2 * 4 * 16,
    }


def test_bert_without_its_binary_head():
    tape = tape_of(model_family="bert", bert_binary_head=False)
    bert(tape)
    assert {"pooler", "nsp_head"}.isdisjoint(term.component for term in tape.flops)


def test_where_the_norm_stands_says_whether_the_first_matrix_sees_a_gradient():
    for post_norm, expected in ((True, 1), (False, 2)):
        tape = tape_of(model_family="bert", post_norm=post_norm, frozen=["embedding"])
        bert(tape)
        backward = {term.component: flops for term, flops in tape.flops.items() if term.phase == "bwd"}
        assert backward["encoder_qkv_proj"] == expected * 2 * 4 * 12
