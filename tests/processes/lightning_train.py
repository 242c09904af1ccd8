"""A user's script: Lightning's Trainer on a small model, without a line for the monitor.

It prints what it counts itself. `--pairs`: images and classes, no language model; `--manual`: two optimizers
that the module calls itself.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import lightning.pytorch as lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from transformers import LlamaConfig, LlamaForCausalLM

PAIRS, MANUAL = "--pairs" in sys.argv, "--manual" in sys.argv
SEQUENCE, STEPS, BATCH, ACCUMULATED = 32, 6, 2, 1 if MANUAL else 2
SIZES = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4}


class Numbers(torch.utils.data.Dataset):
    """Random tokens."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> Any:
        made = torch.Generator().manual_seed(index)
        if PAIRS:
            return torch.rand(3, 8, 8, generator=made), index % 10
        return {"input_ids": torch.randint(0, 100, (SEQUENCE,), generator=made)}


class Module(lightning.LightningModule):
    """Counts what it is given to train on."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = not MANUAL
        image = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 10))
        self.model = image if PAIRS else LlamaForCausalLM(LlamaConfig(**SIZES, vocab_size=100))
        self.losses: list[float] = []
        self.evaluations_s: list[float] = []
        self.tokens = 0

    def loss(self, batch: Any) -> torch.Tensor:
        if PAIRS:
            return torch.nn.functional.cross_entropy(self.model(batch[0]), batch[1])
        return self.model(**batch, labels=batch["input_ids"]).loss

    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        self.tokens += 0 if PAIRS else batch["input_ids"].numel()
        loss = self.loss(batch)
        self.losses.append(float(loss.detach()))
        if MANUAL:
            self.manual_backward(loss)
            for optimizer in self.optimizers():
                optimizer.step()
                optimizer.zero_grad()
        return loss

    def on_validation_start(self) -> None:
        self.begun_s = time.monotonic()

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("validation", self.loss(batch), sync_dist=True)

    def on_validation_end(self) -> None:
        if not self.trainer.sanity_checking:
            self.evaluations_s.append(time.monotonic() - self.begun_s)

    def configure_optimizers(self) -> Any:
        weights = [*self.parameters()]
        half = len(weights) // 2 if MANUAL else len(weights)
        return [torch.optim.AdamW(part, lr=1e-3) for part in (weights[:half], weights[half:]) if part]


def main() -> None:
    lightning.seed_everything(1)
    ranks = int(os.environ.get("WORLD_SIZE", "1"))
    module = Module()
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        max_steps=2 * STEPS if MANUAL else STEPS,
        accumulate_grad_batches=ACCUMULATED,
        val_check_interval=ACCUMULATED * STEPS // 2,
        limit_val_batches=2,
        callbacks=[ModelCheckpoint(dirpath="out", every_n_train_steps=4 if MANUAL else 2, save_top_k=-1)],
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    loaders = [torch.utils.data.DataLoader(Numbers(length), batch_size=BATCH) for length in (96, 16)]
    trainer.fit(module, *loaders)
    if trainer.global_rank == 0:
        told = {"losses": module.losses, "tokens": module.tokens, "evaluations_s": module.evaluations_s}
        print("TOLD " + json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
