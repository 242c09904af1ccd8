"""A small Qwen3 of one rank and divided among two: the same loss, the same gradients.

python -m tests.divided_ranks DIRECTORY RANK

`rankN.json` then has the losses of both, and for each parameter how far the gradients are apart, as a share
of the largest one.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from flagscale_perf.profile.standalone.model import divided
from tests.profiled_events import tiny_qwen3


def main() -> None:
    """As a process."""
    torch.set_num_threads(1)
    directory, rank = sys.argv[1:]
    os.environ |= {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": "2"}
    store = f"file://{directory}/store"
    distributed.init_process_group("gloo", init_method=store, rank=int(rank), world_size=2)
    whole = tiny_qwen3()
    part = divided(whole, 2, 1)
    ids = torch.arange(32).reshape(2, 16)
    truth, loss = (model(input_ids=ids, labels=ids).loss for model in (whole, part))
    truth.backward()
    loss.backward()
    found: dict[str, Any] = {"loss": truth.item(), "own_loss": loss.item(), "apart": {}}
    wanted = dict(whole.named_parameters())
    for path, each in part.named_parameters():
        gradient = each.grad.full_tensor() if hasattr(each.grad, "full_tensor") else each.grad
        right = wanted[path].grad
        found["apart"][path] = ((gradient - right).abs().max() / right.abs().max()).item()
    distributed.barrier()
    distributed.destroy_process_group()
    (Path(directory) / f"rank{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main()
