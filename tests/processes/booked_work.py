"""Runs a training script and keeps a book of each rank's work, by what the model is given and not by what the
batches say: how many pairs of tokens the attention's mask leaves, and what the router chose.

`booked_work.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`. `BOOKED_LONGEST` bounds the mock data's
documents; the rank BOOKED_EXTRA runs one more micro-batch in every third step.
"""

from __future__ import annotations

import csv
import os
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch


class Booked(NamedTuple):
    """What a rank did once: a forward pass, or a layer's routing.

    Attributes:
        what: "pass", or "expert N": what a layer of this rank sent to that expert of the model.
        tokens: that passed through the model, or were sent.
        squared_lengths: of the documents that attend to themselves only.
    """

    rank: int
    what: str
    step: int
    tokens: int
    squared_lengths: int


def booked(directory: Path) -> list[Booked]:
    """Of all ranks of the run that had this working directory."""
    rows = [row for path in sorted(directory.glob("booked_*.csv")) for row in csv.reader(path.open())]
    return [Booked(int(rank), what, *map(int, numbers)) for rank, what, *numbers in rows]


def book(what: str, tokens: int, squared_lengths: int = 0) -> None:
    from megatron.training import global_vars

    rank = os.environ["RANK"]
    step = global_vars._GLOBAL_ARGS.curr_iteration + 1  # the host's count begins with 0
    with open(f"booked_{rank}.csv", "a") as file:
        file.write(f"{rank},{what},{step},{tokens},{squared_lengths}\n")


def passing(forward: Callable[..., Any]) -> Callable[..., Any]:
    """The model's forward pass, which books what it is given."""

    def call(model: Any, tokens: Any, position_ids: Any, attention_mask: Any, **more: Any) -> Any:
        seen = int((~attention_mask).sum()) * (tokens.shape[0] // attention_mask.shape[0])
        book("pass", tokens.numel(), 2 * seen - tokens.numel())  # n (n + 1) / 2 pairs of a document
        return forward(model, tokens, position_ids, attention_mask, **more)

    return call


def routing(route: Callable[..., Any]) -> Callable[..., Any]:
    """The router's choice, booked where no layer is recomputed."""

    def call(*args: Any, **more: Any) -> Any:
        made = route(*args, **more)
        if torch._C._current_graph_task_id() < 0:
            for expert, tokens in enumerate(made[1].sum(dim=0).tolist()):
                book(f"expert {expert}", tokens)
        return made

    return call


def once_more(run: Callable[..., Any]) -> Callable[..., Any]:
    """The host's schedule, with a micro-batch more in some steps."""

    def call(*args: Any, num_microbatches: int, **more: Any) -> Any:
        from megatron.training import global_vars

        extra = int((global_vars._GLOBAL_ARGS.curr_iteration + 1) % 3 == 0)
        return run(*args, num_microbatches=num_microbatches + extra, **more)

    return call


def keep_book() -> None:
    from megatron.core.datasets.gpt_dataset import MockGPTLowLevelDataset
    from megatron.core.models.gpt import GPTModel
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.transformer.moe.router import TopKRouter

    MockGPTLowLevelDataset.max_sequence_length = int(os.environ.get("BOOKED_LONGEST", "4096"))
    GPTModel.forward = passing(GPTModel.forward)
    TopKRouter.forward = routing(TopKRouter.forward)
    if os.environ["RANK"] == os.environ.get("BOOKED_EXTRA"):
        schedules.forward_backward_no_pipelining = once_more(schedules.forward_backward_no_pipelining)


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    keep_book()
    runpy.run_path(sys.argv[0], run_name="__main__")
