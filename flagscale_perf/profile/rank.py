"""The rank of a profiled process, in words."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace

import torch
from torch import distributed

from flagscale_perf.profile import kineto


@dataclass(frozen=True)
class Rank:
    """A `RankRecord` with texts in place of name numbers; what the host does not tell is looked up.

    Attributes:
        rank, world_size: None: what torch.distributed says, or the launcher's environment.
        tensor, tensor_size: None where unknown or not used; the same for `pipeline`, `data` and `expert`.
        host: "megatron", "huggingface", "vllm" or "torch".
        model: name of the model's class; "": the class of what is profiled.
        device: "": what torch calls it.
        mode: "eager", "compiled" or "graphs"; "": as the modules look.
    """

    rank: int | None = None
    world_size: int | None = None
    tensor: int | None = None
    tensor_size: int | None = None
    pipeline: int | None = None
    pipeline_size: int | None = None
    data: int | None = None
    data_size: int | None = None
    expert: int | None = None
    expert_size: int | None = None
    host: str = "torch"
    model: str = ""
    device: str = ""
    mode: str = ""

    @property
    def number(self) -> int:
        """The rank's number among all processes of the job."""
        return _numbers()[0] if self.rank is None else self.rank

    def completed(self, model: str, is_compiled: bool) -> Rank:
        """This place with its open fields filled in."""
        return replace(
            self,
            rank=self.number,
            world_size=_numbers()[1] if self.world_size is None else self.world_size,
            model=self.model or model,
            device=self.device or _device(),
            mode=self.mode or ("compiled" if is_compiled else "eager"),
        )


def _numbers() -> tuple[int, int]:
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    given = (os.environ.get(variable, "") for variable in ("RANK", "WORLD_SIZE"))
    rank, size = (int(text) if text.isdecimal() else 0 for text in given)
    return rank, max(size, rank + 1)


def _device() -> str:
    return torch.cuda.get_device_name() if kineto.has_device() else "cpu"
