"""A plain Megatron-Core training loop, monitored: a small GPT on made-up tokens, data-parallel over all
ranks.

    torchrun --nproc_per_node=2 train.py --enable-perf-monitor
    python -m flagscale_perf.launch train.py --enable-perf-monitor        # one process, also without a GPU

The lines that have to do with the monitor are marked.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import MegatronOptimizer, OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig

from flagscale_perf.arguments import PerfConfig, add_perf_arguments  # monitor
from flagscale_perf.monitor import PerfMonitor, Training  # monitor

VOCABULARY, SEQ_LENGTH, MICRO_BATCH = 512, 64, 2


def main() -> None:
    """Trains from the last checkpoint, if there is one, to `--train-iters`."""
    args = parse()
    world_size = start_ranks()
    config = TransformerConfig(
        num_layers=2, hidden_size=64, num_attention_heads=4, use_cpu_initialization=True,
        pipeline_dtype=torch.float32, persist_layer_norm=False, gradient_accumulation_fusion=False,
        finalize_model_grads_func=finalize_model_grads,
    )  # fmt: skip
    gpt = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=VOCABULARY, max_sequence_length=SEQ_LENGTH)
    model = DistributedDataParallel(config, DistributedDataParallelConfig(), gpt.to(device()))
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=1e-3, bf16=False), [model])
    start = load(args.checkpoint, model)
    global_batch = world_size * MICRO_BATCH * args.microbatches
    training = Training(
        SEQ_LENGTH, MICRO_BATCH, global_batch, args.train_iters, start, start * global_batch
    )  # monitor

    monitor = PerfMonitor(model, training, PerfConfig.from_args(args))  # monitor
    config.timers = optimizer.config.timers = monitor.timers  # monitor: Megatron-Core tells it the phases

    with monitor:  # monitor
        for iteration in range(start + 1, args.train_iters + 1):
            with monitor.step() as step:  # monitor
                loss, updated = train_step(model, optimizer, iteration, args.microbatches)
                step.updated = updated  # monitor
            if torch.distributed.get_rank() == 0:
                print(f"iteration {iteration} loss {loss!r}", flush=True)
            if iteration % args.eval_interval == 0:
                with monitor.evaluation():  # monitor
                    evaluate(model)
            if args.checkpoint and iteration % args.save_interval == 0:
                with monitor.checkpoint():  # monitor
                    save(args.checkpoint, model, iteration)
    torch.distributed.destroy_process_group()


def parse() -> argparse.Namespace:
    """The command line; the monitor's own options are added by one call."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train-iters", type=int, default=50)
    parser.add_argument("--microbatches", type=int, default=2)
    parser.add_argument("--eval-interval", type=int, default=20)
    parser.add_argument("--save-interval", type=int, default=20)
    parser.add_argument("--checkpoint", type=Path)
    return add_perf_arguments(parser).parse_args()  # monitor


def start_ranks() -> int:
    """Process groups of this run, one process alone included; returns the number of ranks."""
    for name, value in {
        "RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_RANK": "0",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": "29511",
    }.items():
        os.environ.setdefault(name, value)
    if device().type == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.distributed.init_process_group("nccl" if device().type == "cuda" else "gloo")
    parallel_state.initialize_model_parallel()
    torch.manual_seed(1234)
    model_parallel_cuda_manual_seed(1234)
    return torch.distributed.get_world_size()


def device() -> torch.device:
    """Where the model is: what torch has, not what a rehearsal pretends."""
    return torch.device("cuda" if torch.accelerator.is_available() else "cpu")


def train_step(
    model: torch.nn.Module, optimizer: MegatronOptimizer, iteration: int, microbatches: int
) -> tuple[float, bool]:
    """Forward, backward and update over one global batch. Returns the loss of the last micro-batch and
    whether there was an update.
    """
    timers = model.config.timers  # monitor
    timers("zero-grad").start()  # monitor
    model.zero_grad_buffer()
    optimizer.zero_grad()
    timers("zero-grad").stop()  # monitor
    losses = get_forward_backward_func()(
        forward_step_func=forward_step, data_iterator=batches(iteration), model=model,
        num_microbatches=microbatches, seq_length=SEQ_LENGTH, micro_batch_size=MICRO_BATCH,
        forward_only=False,
    )  # fmt: skip
    timers("optimizer").start()  # monitor
    updated, _, _ = optimizer.step()
    timers("optimizer").stop()  # monitor
    return float(losses[-1]["loss"]), bool(updated)


def evaluate(model: torch.nn.Module) -> None:
    """One forward pass over data that is never trained on."""
    with torch.no_grad():
        get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=batches(0), model=model, num_microbatches=1,
            seq_length=SEQ_LENGTH, micro_batch_size=MICRO_BATCH, forward_only=True,
        )  # fmt: skip


def batches(iteration: int) -> Iterator[torch.Tensor]:
    """Endless micro-batches of this iteration and rank: runs of consecutive tokens, so that there is
    something to learn.
    """
    generator = torch.Generator().manual_seed(1_000_003 * iteration + torch.distributed.get_rank())
    while True:
        first = torch.randint(VOCABULARY, (MICRO_BATCH, 1), generator=generator)
        yield (first + torch.arange(SEQ_LENGTH + 1)) % VOCABULARY


def forward_step(
    data: Iterator[torch.Tensor], model: torch.nn.Module
) -> tuple[torch.Tensor, Callable[..., Any]]:
    """One micro-batch; returns the losses of its tokens and what makes one number of them."""
    model.config.timers("batch-generator").start()  # monitor
    tokens = next(data).to(device())
    model.config.timers("batch-generator").stop()  # monitor
    positions = torch.arange(SEQ_LENGTH, device=tokens.device).expand(MICRO_BATCH, -1)
    mask = torch.ones(SEQ_LENGTH, SEQ_LENGTH, dtype=torch.bool, device=tokens.device).triu(1)[None, None]
    losses = model(tokens[:, :-1], positions, mask, labels=tokens[:, 1:])

    def mean(per_token: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        loss = per_token.float().mean()
        return loss, {"loss": loss.detach().clone()}  # the schedule divides the loss in place

    return losses, mean


def save(path: Path, model: torch.nn.Module, iteration: int) -> None:
    """Rank 0 writes the weights; the file is there whole or not at all."""
    if torch.distributed.get_rank() == 0:
        torch.save({"iteration": iteration, "model": model.state_dict()}, path.with_suffix(".tmp"))
        path.with_suffix(".tmp").replace(path)


def load(path: Path | None, model: torch.nn.Module) -> int:
    """The weights of the last checkpoint, if there is one. Returns its iteration, or 0."""
    if path is None or not path.exists():
        return 0
    saved = torch.load(path, map_location=device())
    model.load_state_dict(saved["model"])
    return int(saved["iteration"])


if __name__ == "__main__":
    main()
