"""torchtitan's training on a CPU, where torchtitan 0.3.0 knows none: to try `monitored` without a GPU.

    torchrun --nproc_per_node=1 on_cpu.py --module on_cpu --config tiny
    torchrun --nproc_per_node=1 on_cpu.py --module on_cpu --config tiny_monitored

As a script it lends `torch.cpu` what torchtitan asks of a device, and runs `torchtitan.train`; as a module it
has configurations of a small model on random tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch

PEAK_FLOP_PER_S = 1e10  # of a core; torchtitan would take it for an A100
LENT = {
    "current_device": lambda: 0,
    "get_device_name": lambda *_: "CPU",
    "get_device_properties": lambda *_: SimpleNamespace(total_memory=1 << 34),
    "memory_stats": lambda *_: {},
    "reset_peak_memory_stats": lambda *_: None,
    "empty_cache": lambda *_: None,
}


def lend_cpu() -> None:
    """torchtitan takes the CPU for a device; before it is imported."""
    torch._utils._get_available_device_type = lambda: "cpu"
    for name, function in LENT.items():
        setattr(torch.cpu, name, function)
    if not hasattr(torch.distributed, "set_timeout"):  # a newer name than that of torch 2.13
        torch.distributed.set_timeout = torch.distributed.distributed_c10d._set_pg_timeout


lend_cpu()

import torchtitan.tools.utils  # noqa: E402
import torchtitan.train  # noqa: E402
from monitored import Monitored, monitored  # noqa: E402
from torchtitan.components.dataloader import BaseDataLoader  # noqa: E402
from torchtitan.components.loss import CrossEntropyLoss  # noqa: E402
from torchtitan.components.metrics import MetricsProcessor  # noqa: E402
from torchtitan.components.optimizer import default_adamw  # noqa: E402
from torchtitan.components.tokenizer import BaseTokenizer  # noqa: E402
from torchtitan.config import DebugConfig, ParallelismConfig, TrainingConfig  # noqa: E402
from torchtitan.distributed import fsdp  # noqa: E402
from torchtitan.models import llama3  # noqa: E402
from torchtitan.models.common.attention import FlexAttention, ScaledDotProductAttention  # noqa: E402
from torchtitan.trainer import Trainer  # noqa: E402

SEQUENCE, BATCH, GLOBAL_BATCH, STEPS, LOGGED = 32, 2, 4, 12, 4


def sum_gradients(model: torch.nn.Module) -> None:
    """As torchtitan's own function of another name, without a scaled sum, which gloo cannot."""
    for module in model.modules():
        if isinstance(module, fsdp.FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)


class NoTokenizer(BaseTokenizer):
    """There is no text."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        """Nothing to say."""

    def __init__(self, config: Config, **_: Any) -> None:
        super().__init__()

    def encode(self, *_: Any, **__: Any) -> list[int]:
        """Nothing."""
        return []

    def decode(self, *_: Any, **__: Any) -> str:
        """Nothing."""
        return ""

    def get_vocab_size(self) -> int:
        """Of nothing."""
        return 0


class RandomTokens(BaseDataLoader):
    """Endless batches, other ones on each rank."""

    @dataclass(kw_only=True, slots=True)
    class Config(BaseDataLoader.Config):
        """Nothing to say."""

    def __init__(
        self, config: Config, *, dp_rank: int, seq_len: int, local_batch_size: int, **_: Any
    ) -> None:
        self._size = local_batch_size, seq_len + 1
        self._generator = torch.Generator().manual_seed(dp_rank)

    def __iter__(self) -> Iterator[tuple[dict[str, torch.Tensor], torch.Tensor]]:
        while True:
            tokens = torch.randint(0, 2048, self._size, generator=self._generator)
            yield {"input": tokens[:, :-1]}, tokens[:, 1:]

    def state_dict(self) -> dict[str, Any]:
        """Nothing is kept."""
        return {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Nothing is kept."""


def tiny() -> Trainer.Config:
    """Two layers of torchtitan's `llama3` `debugmodel`, with attention that a CPU can train."""
    spec = llama3.model_registry("debugmodel")
    spec.model.layers = spec.model.layers[:2]
    for _, _, parent, name in spec.model.traverse(FlexAttention.Config):
        setattr(parent, name, ScaledDotProductAttention.Config())
    return Trainer.Config(
        model_spec=spec,
        tokenizer=NoTokenizer.Config(),
        dataloader=RandomTokens.Config(),
        loss=CrossEntropyLoss.Config(),
        optimizer=default_adamw(lr=8e-4),
        metrics=MetricsProcessor.Config(log_freq=LOGGED, disable_color_printing=True),
        training=TrainingConfig(
            local_batch_size=BATCH,
            global_batch_size=GLOBAL_BATCH,
            seq_len=SEQUENCE,
            steps=STEPS,
            mixed_precision_param="float32",
            disable_cuda_graphs=True,
        ),
        parallelism=ParallelismConfig(spmd_backend="partial_dtensor"),
        activation_checkpoint=None,
        debug=DebugConfig(seed=1),
    )


def tiny_monitored() -> Monitored.Config:
    """The same, monitored."""
    return monitored(tiny())


if __name__ == "__main__":
    fsdp.disable_fsdp_gradient_division = sum_gradients
    torchtitan.tools.utils.get_peak_flops = lambda _: PEAK_FLOP_PER_S
    torchtitan.train.main()
