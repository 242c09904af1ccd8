"""torchtitan's own training with the monitor in it: a module for its `--module`.

    FLAGSCALE_PERF_ENABLE_MONITOR=1 torchrun --nproc_per_node=8 -m torchtitan.train \
        --module monitored --config llama3_8b

`Monitored` is the whole of it; for a configuration of your own, give it to `monitored`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, fields
from typing import Any

import torchtitan
from torchtitan.models.llama3 import config_registry
from torchtitan.trainer import Trainer

from flagscale_perf.monitor import PerfMonitor, Training


class Monitored(Trainer):
    """torchtitan's Trainer, whose training and steps the monitor knows."""

    @dataclass(kw_only=True, slots=True)
    class Config(Trainer.Config):
        """As the Trainer's."""

    def train(self) -> None:
        """Trains; a session of the monitor lasts from the first step to the last."""
        self.monitor: PerfMonitor | None = None
        with ExitStack() as self.session:
            super().train()

    def train_step(self, data_iterator: Any) -> None:
        """One step, its loading of data included."""
        if self.monitor is None:  # only now is it known which step a checkpoint goes on from
            self.monitor = self.session.enter_context(PerfMonitor(self.model_parts, self.told()))
            if self.config.checkpoint.enable:
                self.checkpointer.save = within(self.monitor.checkpoint, self.checkpointer.save)
            if self.config.validator.enable:
                self.validator.validate = within(self.monitor.evaluation, self.validator.validate)
        with self.monitor.step():
            super().train_step(data_iterator)

    def should_continue_training(self) -> bool:
        """The session ends with the last step: rank 0 sleeps for two seconds behind it."""
        goes_on = super().should_continue_training()
        if not goes_on:
            self.session.close()
        return goes_on

    def told(self) -> Training:
        """What the monitor has to know of the training that begins."""
        of, ranks = self.config.training, self.parallel_dims
        samples = self.gradient_accumulation_steps * of.local_batch_size * ranks.dp_replicate * ranks.dp_shard
        done = self.step - 1
        sizes = described(self.model_config) | {
            "bf16": "bfloat16" in (of.dtype, of.mixed_precision_param),
            "tensor_model_parallel_size": ranks.tp,
            "pipeline_model_parallel_size": ranks.pp,
            "context_parallel_size": ranks.cp,
        }
        if self.config.activation_checkpoint is not None:  # which products it runs again is its own affair
            sizes |= {"recompute_granularity": "selective", "recompute_modules": ["activation_checkpoint"]}
        host = f"torchtitan {torchtitan.__version__}"
        lengths = of.seq_len, of.local_batch_size, samples, of.steps
        return Training(*lengths, done, done * samples, model=sizes, host=host)


def within(pause: Callable[[], AbstractContextManager[None]], call: Callable[..., Any]) -> Callable[..., Any]:
    """The same call, whose time is no part of a step."""

    def paused(*args: Any, **kwargs: Any) -> Any:
        with pause():
            return call(*args, **kwargs)

    return paused


def described(model: Any) -> dict[str, Any]:
    """A Llama's configuration in Megatron's argument names, by which FLOPs are counted."""
    layer = model.layers[0]
    attention = layer.attention
    return {
        "num_layers": len(model.layers),
        "hidden_size": model.dim,
        "num_attention_heads": attention.n_heads,
        "group_query_attention": True,
        "num_query_groups": attention.n_kv_heads or attention.n_heads,
        "ffn_hidden_size": layer.feed_forward.w2.in_features,
        "swiglu": True,
        "normalization": "RMSNorm",
        "position_embedding_type": "rope",
        "add_bias_linear": False,
        "padded_vocab_size": model.vocab_size,
        "untie_embeddings_and_output_weights": not model.enable_weight_tying,
    }


def monitored(config: Trainer.Config) -> Monitored.Config:
    """The same configuration, whose trainer is `Monitored`."""
    return Monitored.Config(**{field.name: getattr(config, field.name) for field in fields(config)})


def llama3_8b() -> Monitored.Config:
    """For `--config llama3_8b`."""
    return monitored(config_registry.llama3_8b())
