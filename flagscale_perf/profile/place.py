"""Where a profiled process stands in its job: what its host says of it."""

from __future__ import annotations

import os
import sys
from typing import Any, NamedTuple


class Place(NamedTuple):
    """One rank's. A dimension of parallelism that is not known or not used is None.

    Attributes:
        rank, world_size: among all processes of the job.
        tensor, tensor_size: place in, and size of, its tensor-parallel group; the same for `pipeline`, `data`
            (with context parallelism folded in) and `expert`.
        host: what runs the model: "megatron", "huggingface", "vllm" or "torch".
        device: its name; None to ask torch.
    """

    rank: int = 0
    world_size: int = 1
    tensor: int | None = None
    tensor_size: int | None = None
    pipeline: int | None = None
    pipeline_size: int | None = None
    data: int | None = None
    data_size: int | None = None
    expert: int | None = None
    expert_size: int | None = None
    host: str = "torch"
    device: str | None = None

    @classmethod
    def current(cls, host: str = "torch", device: str | None = None) -> Place:
        """As torch.distributed has it where that runs, else as the launcher's environment says."""
        torch: Any = sys.modules.get("torch")
        distributed = None if torch is None else getattr(torch, "distributed", None)
        if distributed is not None and distributed.is_available() and distributed.is_initialized():
            return cls(distributed.get_rank(), distributed.get_world_size(), host=host, device=device)
        rank, world_size = _whole("RANK", 0), _whole("WORLD_SIZE", 1)
        return cls(rank, max(world_size, rank + 1), host=host, device=device)

    @property
    def title(self) -> str:
        """What the process is called among those of its job."""
        return f"rank {self.rank}"


def _whole(variable: str, default: int) -> int:
    text = os.environ.get(variable, "")
    return int(text) if text.isdecimal() else default
