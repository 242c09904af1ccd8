"""A user's script: Hugging Face's Trainer on a small model, without a line for the monitor.

`hf_train.py [--varied] ARGUMENTS...`: `--varied`: samples of different lengths; the others are the Trainer's,
read by transformers' own parser. It prints what it counts itself: each step's tokens.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
from transformers import HfArgumentParser, LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

VARIED, SEQUENCE, STEPS = "--varied" in sys.argv, 32, 6
USUAL = (
    "--output_dir out --per_device_train_batch_size 2 --per_device_eval_batch_size 2 --logging_steps 1"
    f" --gradient_accumulation_steps 2 --max_steps {STEPS} --save_steps 3 --eval_strategy steps"
    " --report_to none --use_cpu --disable_tqdm true --eval_steps 3"
)


class Numbers(torch.utils.data.Dataset):
    """Random tokens; of samples of varied lengths two neighbours are as long."""

    def __len__(self) -> int:
        return 96

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        length = SEQUENCE - 8 * (index // 2 % 3) if VARIED else SEQUENCE
        tokens = torch.randint(0, 100, (length,), generator=torch.Generator().manual_seed(index))
        return {"input_ids": tokens, "labels": tokens.clone()}


class Counting(Trainer):
    """Counts what it is given to train on."""

    seen = 0

    def training_step(self, model: Any, inputs: Any, *more: Any) -> Any:
        self.seen += inputs["input_ids"].numel()
        return super().training_step(model, inputs, *more)

    def _get_train_sampler(self, *_: Any) -> Any:
        return torch.utils.data.SequentialSampler(self.train_dataset)


def main() -> None:
    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}
    model = LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=100))
    words = [*USUAL.split(), *(word for word in sys.argv[1:] if word != "--varied")]
    (arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses(words)
    few = torch.utils.data.Subset(Numbers(), range(4))
    trainer = Counting(model=model, args=arguments, train_dataset=Numbers(), eval_dataset=few)
    trainer.train()
    if trainer.args.process_index == 0:
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        evaluations_s = [each["eval_runtime"] for each in trainer.state.log_history if "eval_runtime" in each]
        told = {"losses": losses, "tokens": trainer.seen, "evaluations_s": evaluations_s}
        print("TOLD " + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
