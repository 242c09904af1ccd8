"""Megatron-Core's own T5 and BERT: how they are built, and the loss of a step."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch


def build(args: dict[str, Any], config: Any) -> torch.nn.Module:
    """The real model of local layers."""
    common = {
        "share_embeddings_and_output_weights": not args.get("untie_embeddings_and_output_weights"),
        "position_embedding_type": args["position_embedding_type"],
    }
    sizes = (args["padded_vocab_size"], args["max_position_embeddings"])
    if args["model_family"] == "t5":
        from megatron.core.models.T5 import T5Model
        from megatron.core.models.T5 import t5_spec as specs

        # the specs of local layers name Transformer Engine's norm for the end of a stack
        specs.TENorm = getattr(specs, "TENorm", specs.LNImpl)
        encoder = dataclasses.replace(config, num_layers=args["encoder_num_layers"])
        of_encoder = specs.get_t5_encoder_with_local_block_spec(encoder.num_layers)
        of_decoder = specs.get_t5_decoder_with_local_block_spec(config.num_layers)
        return T5Model(config, encoder, of_encoder, of_decoder, *sizes, **common)
    from megatron.core.models.bert.bert_layer_specs import bert_layer_local_spec
    from megatron.core.models.bert.bert_model import BertModel

    binary = args.get("bert_binary_head", True)
    return BertModel(config, 2 * binary, bert_layer_local_spec, *sizes, add_binary_head=binary, **common)


def loss(model: torch.nn.Module, args: dict[str, Any], tokens: torch.Tensor) -> torch.Tensor:
    """Of every token, and of BERT's two sentences."""
    batch, length = tokens.shape
    if args["model_family"] == "t5":
        decoded = torch.randint(0, args["padded_vocab_size"], (batch, args["decoder_seq_length"]))
        there = decoded.shape[1]

        def nothing(queries: int, keys: int) -> torch.Tensor:
            return torch.zeros(batch, 1, queries, keys, dtype=torch.bool)

        causal = torch.ones(batch, 1, there, there, dtype=torch.bool).triu(1)
        masks = (nothing(length, length), causal, nothing(there, length))
        return model(tokens, decoded, *masks, lm_labels=decoded).sum()
    kinds = torch.zeros_like(tokens) if args.get("bert_binary_head", True) else None
    losses, sentences = model(tokens, torch.ones_like(tokens), kinds, lm_labels=tokens)
    return losses.sum() + (0 if sentences is None else sentences.float().sum())
