"""A user's training script for Megatron-Bridge, small: `train.py OPTIONS OVERRIDES...` (a JSON object, and
what Bridge's own scripts take, such as `dataset.num_workers=2`); knows nothing of a monitor.

The imports are inside: saving a checkpoint starts processes that read this file again.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

WIDTH = 64  # of the model and of a sample


def stand_in_for_what_needs_a_gpu():
    import megatron.core.datasets.utils
    import megatron.core.dist_checkpointing
    import megatron.core.distributed
    import megatron.core.models.gpt.gpt_layer_specs
    import megatron.core.optimizer
    import megatron.core.transformer.cuda_graphs

    megatron.core.datasets.utils.compile_helpers = lambda: (
        None
    )  # the wheel holds the extension and no Makefile for it
    import absent

    absent.install()
    import modelopt.torch.distill.plugins.megatron as distillation

    distillation.get_tensor_shapes_adjust_fn_for_distillation = lambda *_, **__: None


def finalise_slowly(seconds):
    """Asynchronous checkpoints are written by a fork of each save's own: the process that Bridge keeps for
    them asks for a GPU. To end one takes so long.
    """
    from megatron.core.dist_checkpointing.strategies import async_utils

    class Queue(async_utils.AsyncCallsQueue):
        def __init__(self, persistent):
            super().__init__(persistent=False)

        @classmethod
        def warmup_persistent_caller(cls, *_, **__):
            """There is none."""

        def schedule_async_request(self, request):
            print("asynchronous checkpoint", flush=True)
            request.add_finalize_fn(lambda: time.sleep(seconds))
            return super().schedule_async_request(request)

    async_utils.AsyncCallsQueue = Queue


def load_slowly(seconds):
    """Each sample takes so long."""
    from megatron.core.datasets.gpt_dataset import GPTDataset

    original = GPTDataset.__getitem__

    def slow(self, *args):
        time.sleep(seconds)
        return original(self, *args)

    GPTDataset.__getitem__ = slow


def provider(given):
    import torch
    from megatron.bridge.models.gpt_provider import GPTModelProvider, local_layer_spec

    off = [
        "gradient_accumulation_fusion",
        "masked_softmax_fusion",
        "bias_activation_fusion",
        "bias_dropout_fusion",
    ]
    return GPTModelProvider(
        num_layers=2,
        hidden_size=WIDTH,
        num_attention_heads=4,
        seq_length=WIDTH,
        vocab_size=8064,
        use_cpu_initialization=True,
        tensor_model_parallel_size=given.get("tp", 1),
        pipeline_model_parallel_size=given.get("pp", 1),
        pipeline_dtype=torch.float32,
        transformer_layer_spec=local_layer_spec,
        transformer_impl="local",
        persist_layer_norm=False,
        cross_entropy_loss_fusion=False,
        **dict.fromkeys(off, False),
    )


def tuning(directory):
    """Settings of a tokenizer and of sentences of several lengths, which Bridge packs into rows itself."""
    from megatron.bridge.data.builders import GPTSFTDatasetConfig
    from megatron.bridge.data.packing import PackedSequenceSpecs
    from megatron.bridge.training.config import TokenizerConfig
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {
        word: place for place, word in enumerate(["<unk>", "<s>", "</s>", "<pad>", *map(str, range(100))])
    }
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>"}
    PreTrainedTokenizerFast(tokenizer_object=made, **special).save_pretrained(f"{directory}/tokenizer")
    rows = [{"input": " ".join(map(str, range(5 + row % 7))), "output": "1 2 3"} for row in range(200)]
    for name in ("training", "validation", "test"):
        Path(directory, f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    original = DotProductAttention.forward

    def forward(self, query, key, value, *args, packed_seq_params=None, **kwargs):
        """Attends over a whole row: the kernel that keeps to the sequences exists for GPUs only. Says what
        that one would have been given.
        """
        if packed_seq_params is None:
            return original(self, query, key, value, *args, **kwargs)
        if self.training and self.layer_number == 1:
            lengths = packed_seq_params.cu_seqlens_q.diff().tolist()
            print(f"squared lengths {sum(length**2 for length in lengths)} of {len(lengths)}", flush=True)
        return original(self, *(each.unsqueeze(1) for each in (query, key, value)), *args, **kwargs)

    DotProductAttention.forward = forward
    dataset = GPTSFTDatasetConfig(
        seq_length=WIDTH,
        dataset_root=directory,
        enable_offline_packing=True,
        offline_packing_specs=PackedSequenceSpecs(packed_sequence_size=WIDTH),
        num_workers=0,
        do_test=False,
    )
    tokenizer = TokenizerConfig(
        tokenizer_type="HuggingFaceTokenizer", tokenizer_model=f"{directory}/tokenizer"
    )
    return {"dataset": dataset, "tokenizer": tokenizer}


def configuration(given):
    from megatron.bridge.training import config as settings

    tuned = tuning(given["tune"]) if "tune" in given else {}
    mock = settings.MockGPTDatasetConfig(
        random_seed=1,
        seq_length=WIDTH,
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        num_dataset_builder_threads=1,
        num_workers=0,
        dataloader_type="single",
    )
    return settings.ConfigContainer(
        train=settings.TrainingConfig(
            micro_batch_size=1 if tuned else 2,
            global_batch_size=4,
            eval_iters=given.get("eval_iters", 1),
            eval_interval=given.get("eval_interval", 3),
            train_iters=given["train_iters"],
            exit_interval=given.get("exit_interval"),
            iterations_to_skip=given.get("skip", []),
        ),
        model=provider(given),
        optimizer=settings.OptimizerConfig(
            optimizer="adam", lr=1e-4, min_lr=1e-5, use_distributed_optimizer=False
        ),
        scheduler=settings.SchedulerConfig(
            lr_decay_style="constant",
            lr_warmup_iters=0,
            start_weight_decay=0.01,
            end_weight_decay=0.01,
            weight_decay_incr_style="constant",
        ),
        ddp=settings.DistributedDataParallelConfig(use_distributed_optimizer=False),
        dataset=tuned.get("dataset", mock),
        logger=settings.LoggerConfig(log_interval=1, tensorboard_dir="tb"),
        tokenizer=tuned.get(
            "tokenizer", settings.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=8000)
        ),
        checkpoint=settings.CheckpointConfig(
            save=given.get("save"),
            load=given.get("save"),
            save_interval=given.get("save_interval"),
            ckpt_format="torch_dist",
            **({"async_save": True, "async_strategy": "mcore"} if "finalise_s" in given else {}),
        ),
        dist=settings.DistributedInitConfig(distributed_backend="gloo"),
    )


def users_callbacks(kind):
    from megatron.bridge.training.callbacks import Callback, CallbackManager

    class Told(Callback):
        def on_train_step_end(self, context):
            print(f"told of step {context.state.train_state.step}", flush=True)

    if kind == "manager":
        manager = CallbackManager()
        manager.add(Told())
        return manager
    return [Told()] if kind == "list" else None


class Fault:
    """A callback of the user's that raises once, at the end of the step after `step` finished ones."""

    def __init__(self, step):
        self.step = step

    def on_train_step_end(self, context):
        if context.state.train_state.step == self.step:
            self.step = None
            raise ConnectionError("a rank was lost")


def train_through_a_fault(cfg, forward_step, fault):
    """`pretrain` with its in-process restart, as far as it can be had without the package that watches over
    the ranks.
    """
    import torch.distributed
    from megatron.bridge.training import pretrain
    from megatron.bridge.training.config import runtime_config_update
    from megatron.bridge.training.initialize import destroy_global_state
    from megatron.bridge.training.state import GlobalState

    runtime_config_update(cfg)
    state = GlobalState()
    state.cfg = cfg
    callbacks = users_callbacks("manager")
    callbacks.register("on_train_step_end", fault.on_train_step_end)
    callbacks = pretrain.normalize_callbacks(callbacks)
    try:
        pretrain._pretrain(state, forward_step, callbacks)
    except ConnectionError:
        torch.distributed.destroy_process_group()
        destroy_global_state()
        state.reset_for_restart()
        pretrain._pretrain(state, forward_step, callbacks)


def main():
    given = json.loads(sys.argv[1])
    stand_in_for_what_needs_a_gpu()
    if "finalise_s" in given:
        finalise_slowly(given["finalise_s"])
    if "sample_s" in given:
        load_slowly(given["sample_s"])
    from megatron.bridge.training.gpt_step import forward_step
    from megatron.bridge.training.pretrain import pretrain
    from megatron.bridge.training.utils.omegaconf_utils import process_config_with_overrides

    cfg = process_config_with_overrides(configuration(given), cli_overrides=sys.argv[2:])
    if "fault" in given:
        train_through_a_fault(cfg, forward_step, Fault(given["fault"]))
        return
    pretrain(cfg, forward_step, users_callbacks(given.get("callbacks")))


if __name__ == "__main__":
    main()
