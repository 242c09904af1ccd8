"""Runs a small Qwen3 with random weights in a real vLLM and prints, as one line of JSON, the tokens it made.

python -m tests.vllm.generate MODEL_DIRECTORY TENSOR_PARALLEL_SIZE eager|compiled [rounds=N] [pipeline=N]
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

LAYERS = 3
# One at a time: two would reach the scheduler one after another, now in one step and now in two.
PROMPTS, PROMPT_TOKENS, NEW_TOKENS = 1, 48, 24
ROUNDS = 7
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "vocab_size": 1024,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000,
    "hidden_act": "silu",
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "attention_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
BEGIN = "tokens "


def write_model(directory: Path, **changed: int) -> Path:
    """What vLLM needs of a model whose weights are random; `changed`: sizes other than those above."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(CONFIG | changed), encoding="utf-8")
    return directory


def prompts() -> list[dict[str, list[int]]]:
    """The same in every process."""
    dice = random.Random(0)
    return [
        {"prompt_token_ids": [dice.randrange(3, 1000) for _ in range(PROMPT_TOKENS)]} for _ in range(PROMPTS)
    ]


def main() -> None:
    """See above."""
    from vllm import LLM, SamplingParams

    directory, tensor_parallel, mode, *words = sys.argv[1:]
    given = {name: int(value) for name, value in (word.split("=") for word in words)}
    llm = LLM(
        model=directory,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        seed=0,
        tensor_parallel_size=int(tensor_parallel),
        pipeline_parallel_size=given.get("pipeline", 1),
        enforce_eager=mode == "eager",
        max_model_len=128,
        max_num_seqs=4,
        enable_prefix_caching=False,
        async_scheduling=False,
    )
    sampling = SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0, ignore_eos=True, detokenize=False)
    made = []
    for _ in range(given.get("rounds", ROUNDS)):
        outputs = llm.generate(prompts(), sampling, use_tqdm=False)
        made.append([list(output.outputs[0].token_ids) for output in outputs])
    print(BEGIN + json.dumps(made), flush=True)


if __name__ == "__main__":
    main()
