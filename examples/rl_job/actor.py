"""The actor: a Megatron-Core loop in verl's workers, one for each data-parallel rank, which takes its
micro-batches out of the queue. Lines that have to do with the monitor are marked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed
import transfer_queue
from megatron.core import parallel_state
from megatron.core.distributed import (
    DistributedDataParallel,
    DistributedDataParallelConfig,
    finalize_model_grads,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
from megatron.core.pipeline_parallel.schedules import get_forward_backward_func
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig
from model import PROMPT_TOKENS, RESPONSE_TOKENS, dense, make_model
from tensordict import TensorDict
from verl.single_controller.base import Worker
from verl.single_controller.base.decorator import Dispatch, Execute, register
from weights import to_megatron, to_qwen
from workers import LEARNING_RATE, loss_of

from flagscale_perf import tracing  # monitor
from flagscale_perf.monitor import PerfMonitor, Training  # monitor

PARTITION, TASK = "train", "update_actor"
FIELDS = ["prompts", "responses", "old_log_probs", "ref_log_probs", "advantages"]
TOKENS = PROMPT_TOKENS + RESPONSE_TOKENS
POLL_S = 0.02


@dataclass(frozen=True)
class Setup:
    """What the actor is to do.

    Attributes:
        steps, samples: of the training, and of a step over all ranks.
        micro_batch: samples of a rank's forward pass.
        layers: of the model.
        slow_layer: the MLP of this layer, from 0, sleeps for `slow_s` in each forward pass; None for none.
    """

    steps: int
    samples: int
    micro_batch: int
    layers: int
    slow_layer: int | None
    slow_s: float


@dataclass(frozen=True)
class Trained:
    """A step, by this rank's own clock.

    Attributes:
        waited_ns: for samples, and for getting them.
        slept_ns: planted, in the slow layer.
    """

    loss: float
    waited_ns: int
    slept_ns: int


class ActorWorker(Worker):
    """A rank that learns."""

    def __init__(self, setup: Setup) -> None:
        super().__init__()
        self._setup = setup
        self._waited_ns = self._slept_ns = 0
        torch.set_num_threads(1)
        torch.distributed.init_process_group("gloo")
        parallel_state.initialize_model_parallel()
        model_parallel_cuda_manual_seed(1)
        transfer_queue.init()
        first = make_model(setup.layers)
        self._qwen = first.config
        gpt = build(self._qwen)
        weights = to_megatron(first.state_dict(), setup.layers, self._qwen.num_key_value_heads)
        gpt.load_state_dict(weights, strict=False)
        if setup.slow_layer is not None:
            mlp = gpt.decoder.layers[setup.slow_layer].mlp
            mlp.forward = partial(self._late, mlp.forward)
        self._model = DistributedDataParallel(gpt.config, DistributedDataParallelConfig(), gpt)
        self._optimizer = get_megatron_optimizer(
            OptimizerConfig(optimizer="adam", lr=LEARNING_RATE, weight_decay=0.0, bf16=False), [self._model]
        )
        training = Training(TOKENS, setup.micro_batch, setup.samples, setup.steps)  # monitor
        self._monitor = PerfMonitor(self._model, training)  # monitor
        gpt.config.timers = self._optimizer.config.timers = self._monitor.timers  # monitor
        self._monitor.__enter__()  # monitor

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, blocking=False)
    def train_step(self, number: int) -> Trained:
        """Trains on the next samples, once they are in the queue."""
        tracing.step(
            number
        )  # monitor: micro-batches are got outside of any function, so that a get is no step
        self._waited_ns = self._slept_ns = 0
        with self._monitor.step() as step:  # monitor
            losses, step.updated = self._update()
        return Trained(sum(losses) / len(losses), self._waited_ns, self._slept_ns)

    @register(dispatch_mode=Dispatch.ONE_TO_ALL, execute_mode=Execute.RANK_ZERO)
    def weights(self) -> dict[str, torch.Tensor]:
        """What it has learnt, under Qwen2's names."""
        config = self._qwen
        return to_qwen(
            self._model.module.state_dict(), self._setup.layers,
            config.num_key_value_heads, config.num_attention_heads,
        )  # fmt: skip

    @register(dispatch_mode=Dispatch.ONE_TO_ALL)
    def finish(self) -> None:
        """Ends the training."""
        self._monitor.__exit__(None, None, None)  # monitor
        torch.distributed.destroy_process_group()

    def _update(self) -> tuple[list[float], bool]:
        timers = self._model.config.timers  # monitor
        timers("zero-grad").start()  # monitor
        self._model.zero_grad_buffer()
        self._optimizer.zero_grad()
        timers("zero-grad").stop()  # monitor
        each = self._setup.micro_batch
        losses = get_forward_backward_func()(
            forward_step_func=forward_step, data_iterator=self._batches(), model=self._model,
            num_microbatches=self._setup.samples // (each * torch.distributed.get_world_size()),
            seq_length=TOKENS, micro_batch_size=each, forward_only=False,
        )  # fmt: skip
        timers("optimizer").start()  # monitor
        updated, _, _ = self._optimizer.step()
        timers("optimizer").stop()  # monitor
        return [float(loss["loss"]) for loss in losses], bool(updated)

    def _batches(self) -> Iterator[TensorDict]:
        """Micro-batches, each as soon as so many samples are ready that no rank has taken yet."""
        client = transfer_queue.get_client()
        while True:
            start_ns = time.monotonic_ns()
            while not (
                found := client.get_meta(FIELDS, self._setup.micro_batch, PARTITION, task_name=TASK)
            ).size:
                time.sleep(POLL_S)
            data = client.get_data(found)
            self._waited_ns += time.monotonic_ns() - start_ns
            yield data

    def _late(self, forward: Callable[..., Any], *args: Any, **words: Any) -> Any:
        """The planted fault: a module whose Python does something else first."""
        start_ns = time.monotonic_ns()
        time.sleep(self._setup.slow_s)
        self._slept_ns += time.monotonic_ns() - start_ns
        return forward(*args, **words)


def build(qwen: Any) -> GPTModel:
    """Megatron-Core's model of the same shape as this configuration of a Qwen2."""
    config = TransformerConfig(
        num_layers=qwen.num_hidden_layers, hidden_size=qwen.hidden_size,
        ffn_hidden_size=qwen.intermediate_size, num_attention_heads=qwen.num_attention_heads,
        num_query_groups=qwen.num_key_value_heads, normalization="RMSNorm",
        layernorm_epsilon=qwen.rms_norm_eps, add_bias_linear=False, add_qkv_bias=True, gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, hidden_dropout=0.0,
        attention_dropout=0.0, use_cpu_initialization=True, pipeline_dtype=torch.float32,
        persist_layer_norm=False, bias_activation_fusion=False, gradient_accumulation_fusion=False,
        finalize_model_grads_func=finalize_model_grads,
    )  # fmt: skip
    return GPTModel(
        config, get_gpt_layer_local_spec(normalization="RMSNorm"), qwen.vocab_size,
        qwen.max_position_embeddings, position_embedding_type="rope",
    )  # fmt: skip


def logits_of(model: torch.nn.Module, tokens: torch.Tensor) -> torch.Tensor:
    """Of each token's successor."""
    length = tokens.shape[1]
    positions = torch.arange(length).expand(len(tokens), -1)
    mask = torch.ones(length, length, dtype=torch.bool).triu(1)[None, None]
    return model(tokens, positions, mask)


def forward_step(
    batches: Iterator[TensorDict], model: torch.nn.Module
) -> tuple[torch.Tensor, Callable[..., Any]]:
    """One micro-batch; returns its logits, and what makes the loss of them."""
    model.config.timers("batch-generator").start()  # monitor
    batch = next(batches)
    model.config.timers("batch-generator").stop()  # monitor
    prompts, responses = dense(batch["prompts"]), dense(batch["responses"])

    def loss(logits: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        said = logits[:, PROMPT_TOKENS - 1 : -1].float().log_softmax(-1)
        found = loss_of(said.gather(2, responses.unsqueeze(2)).squeeze(2), batch)
        return found, {"loss": found.detach().clone()}  # the schedule divides the loss in place

    return logits_of(model, torch.cat([prompts, responses], dim=1)), loss
