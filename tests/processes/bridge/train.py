"""A user's training script for Megatron-Bridge, small: `train.py OPTIONS` (a JSON object); knows nothing of a monitor."""

from __future__ import annotations

import json
import sys

import megatron.core.datasets.utils
import megatron.core.dist_checkpointing
import megatron.core.distributed
import megatron.core.models.gpt.gpt_layer_specs
import megatron.core.optimizer
import megatron.core.transformer.cuda_graphs
import torch

megatron.core.datasets.utils.compile_helpers = lambda: None  # the wheel holds the extension and no Makefile for it

import absent  # noqa: E402
import modelopt.torch.distill.plugins.megatron as distillation  # noqa: E402

distillation.get_tensor_shapes_adjust_fn_for_distillation = lambda *_, **__: None

from megatron.bridge.models.gpt_provider import GPTModelProvider, local_layer_spec  # noqa: E402
from megatron.bridge.training import config as settings  # noqa: E402
from megatron.bridge.training.callbacks import Callback, CallbackManager  # noqa: E402
from megatron.bridge.training.gpt_step import forward_step  # noqa: E402
from megatron.bridge.training.pretrain import pretrain  # noqa: E402

assert absent.PACKAGES
given = json.loads(sys.argv[1])


class Told(Callback):
    """The user's own callback."""

    def on_train_step_end(self, context):
        if torch.distributed.get_rank() == 0:
            print(f"told of step {context.state.train_state.step} {context.user_state}", flush=True)


def configuration():
    off = ["gradient_accumulation_fusion", "masked_softmax_fusion", "bias_activation_fusion", "bias_dropout_fusion"]
    model = GPTModelProvider(
        num_layers=2, hidden_size=64, num_attention_heads=4, seq_length=64, vocab_size=8064, use_cpu_initialization=True,
        tensor_model_parallel_size=given.get("tp", 1), pipeline_model_parallel_size=given.get("pp", 1), pipeline_dtype=torch.float32,
        transformer_layer_spec=local_layer_spec, transformer_impl="local", persist_layer_norm=False, cross_entropy_loss_fusion=False,
        **dict.fromkeys(off, False),
    )  # fmt: skip
    return settings.ConfigContainer(
        train=settings.TrainingConfig(
            micro_batch_size=2, global_batch_size=4, eval_iters=1, eval_interval=given.get("eval_interval", 3),
            train_iters=given["train_iters"], exit_interval=given.get("exit_interval"), iterations_to_skip=given.get("skip", []),
        ),
        model=model,
        optimizer=settings.OptimizerConfig(optimizer="adam", lr=1e-4, min_lr=1e-5, use_distributed_optimizer=False),
        scheduler=settings.SchedulerConfig(
            lr_decay_style="constant", lr_warmup_iters=0, start_weight_decay=0.01, end_weight_decay=0.01,
            weight_decay_incr_style="constant",
        ),
        ddp=settings.DistributedDataParallelConfig(use_distributed_optimizer=False),
        dataset=settings.MockGPTDatasetConfig(
            random_seed=1, seq_length=64, reset_position_ids=False, reset_attention_mask=False, eod_mask_loss=False,
            num_dataset_builder_threads=1, num_workers=0, dataloader_type="single",
        ),
        logger=settings.LoggerConfig(log_interval=1, tensorboard_dir="tb"),
        tokenizer=settings.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=8000),
        checkpoint=settings.CheckpointConfig(
            save=given.get("save"), load=given.get("save"), save_interval=given.get("save_interval"), ckpt_format="torch_dist",
        ),
        dist=settings.DistributedInitConfig(distributed_backend="gloo"),
    )  # fmt: skip


kind = given.get("callbacks")
callbacks = None
if kind == "list":
    callbacks = [Told()]
elif kind == "manager":
    callbacks = CallbackManager()
    callbacks.add(Told())
pretrain(configuration(), forward_step, callbacks)
