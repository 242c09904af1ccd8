"""A small Qwen3 of one rank and divided among two: the same loss, the same gradients.

python -m tests.split_ranks DIRECTORY RANK {tensor,pipeline}

`rankN.json` then has the losses of both, and for each parameter of this rank how far the gradients are apart,
as a share of the largest one.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed
from torch.distributed.device_mesh import init_device_mesh

from flagscale_perf.hosts.profiling.split_model import Pipeline, Stage, split_tensors
from flagscale_perf.profile.ranges import paths_of
from tests.profiled_events import tiny_qwen3


def main() -> None:
    """As a process."""
    torch.set_num_threads(1)
    directory, number, way = sys.argv[1:]
    rank = int(number)
    distributed.init_process_group("gloo", init_method=f"file://{directory}/store", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
    torch.manual_seed(1)
    whole = tiny_qwen3()
    torch.manual_seed(1)
    split = tiny_qwen3()
    ids = torch.arange(32).reshape(2, 16)
    truth = whole(input_ids=ids, labels=ids).loss
    truth.backward()
    wanted = {path: each.grad for path, each in whole.named_parameters()}
    found: dict[str, Any] = {"loss": truth.item(), "own_loss": None}
    if way == "tensor":
        split_tensors(split, mesh)
        loss = split(input_ids=ids, labels=ids).loss
        loss.backward()
        found["own_loss"] = loss.item()
        gradients = {path: _whole(each.grad) for path, each in split.named_parameters()}
    else:
        stage = Stage(split, rank, 2)
        Pipeline(stage, mesh, 2, torch.device("cpu")).step(ids)
        gradients = _by_whole_path(stage)
    found["apart"] = {
        path: ((each - wanted[path]).abs().max() / wanted[path].abs().max()).item()
        for path, each in gradients.items()
    }
    distributed.barrier()
    distributed.destroy_process_group()
    (Path(directory) / f"rank{rank}.json").write_text(json.dumps(found))


def _whole(gradient: Any) -> torch.Tensor:
    return gradient.full_tensor() if hasattr(gradient, "full_tensor") else gradient


def _by_whole_path(stage: Stage) -> dict[str, torch.Tensor]:
    """Of the stage's parameters, by their paths in the whole model."""
    return {
        f"{path}.{name}": each.grad
        for path, module in paths_of(stage).items()
        for name, each in module.named_parameters(recurse=False)
    }


if __name__ == "__main__":
    main()
