"""A real, very small Qwen2 with random weights, the log-probabilities of what it says, and the reward."""

from __future__ import annotations

import logging

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

PROMPT_TOKENS, RESPONSE_TOKENS, VOCABULARY = 8, 16, 64
# Says that there is no GPU, in each process.
logging.getLogger("verl.plugin.platform.platform_manager").disabled = True
END = 0  # is never sampled: every response has the same length


def make_model(layers: int = 2) -> Qwen2ForCausalLM:
    """The same weights in every process."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=VOCABULARY, hidden_size=64, intermediate_size=128, num_hidden_layers=layers,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=64,
            bos_token_id=END, eos_token_id=END, pad_token_id=END,
        )
    )  # fmt: skip


@torch.no_grad()
def generate(model: Qwen2ForCausalLM, prompts: torch.Tensor) -> torch.Tensor:
    """One response, of `RESPONSE_TOKENS`, to each prompt."""
    whole = model.generate(
        prompts, attention_mask=torch.ones_like(prompts), do_sample=True, top_k=0, suppress_tokens=[END],
        min_new_tokens=RESPONSE_TOKENS, max_new_tokens=RESPONSE_TOKENS,
    )  # fmt: skip
    return whole[:, prompts.shape[1] :]


def log_probs_of(model: Qwen2ForCausalLM, prompts: torch.Tensor, responses: torch.Tensor) -> torch.Tensor:
    """The log-probability of each token of the responses."""
    logits = model(torch.cat([prompts, responses], dim=1)).logits[:, prompts.shape[1] - 1 : -1]
    return logits.float().log_softmax(-1).gather(2, responses.unsqueeze(2)).squeeze(2)


def reward_of(responses: torch.Tensor) -> torch.Tensor:
    """What the model is to learn: to say even tokens. The share of them."""
    return (responses % 2 == 0).float().mean(dim=1)


def dense(field: torch.Tensor) -> torch.Tensor:
    """Rows of one length, which come from the queue as a nested tensor, as one of two dimensions."""
    return torch.stack(list(field.unbind()))
