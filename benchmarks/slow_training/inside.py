"""Runs a training script with what is planted in it, on each rank.

`inside.py PLAN SCRIPT ARGS...`, under `-m flagscale_perf.launch`; PLAN is a file with a `Planted` as JSON.
Every micro-batch sleeps, as if a device computed while the processor is free, so that ranks that share cores
keep even steps. In runs of work the sleep is in proportion to the FLOPs of what the host hands to its model:
more to do takes longer, at the same speed.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.slow_training.plants import (
    EVEN,
    INTERLEAVED,
    LONG,
    MIXED,
    Delay,
    Planted,
    documents_of,
    is_on,
    part_of,
    rank_of,
)

FORWARD_S, BACKWARD_S = 0.015, 0.030  # of a micro-batch
WORK_S = 0.020  # of the forward pass of a usual micro-batch in runs of work
PIPELINE_S = 0.020, 0.040  # longer: four ranks, and messages between them
HEAVIER_S = 0.020
MICROBATCHES = 3  # where one rank runs one more
DOCUMENT_MICROBATCHES = 2
HOT = 8  # of so many tokens all but one go to the hot rank's experts
FLOPS = "flops.json"  # what a unit of each kind of work costs, written by rank 0
BACKWARD_FORWARD = 2  # FLOPs of the one by those of the other
RANK = int(os.environ.get("RANK", 0))
CORE = "megatron.core"
OWNERS = {
    "data_loading": ("megatron.training.utils", "", "get_batch_on_this_tp_rank"),
    "backward": (f"{CORE}.pipeline_parallel.schedules", "", "custom_backward"),
    "exposed_grad_comm": (
        f"{CORE}.distributed.distributed_data_parallel", "DistributedDataParallel", "finish_grad_sync",
    ),
    "exposed_stat_comm": (f"{CORE}.rerun_state_machine", "RerunStateMachine", "should_run_forward_backward"),
}  # fmt: skip

Function = Callable[..., Any]


def step_now() -> int:
    """The step, counted from 1; 0 before the first."""
    from megatron.training import global_vars

    return int(getattr(global_vars._GLOBAL_ARGS, "curr_iteration", -1)) + 1


def wrap(module: str, owner: str, name: str, make: Callable[[Function], Function]) -> None:
    """Replaces a function of the host."""
    found = import_module(module)
    found = getattr(found, owner) if owner else found
    setattr(found, name, make(getattr(found, name)))


def before(act: Callable[..., None], function: Function) -> Function:
    """The function, after the act."""

    def call(*args: Any, **kwargs: Any) -> Any:
        act()
        return function(*args, **kwargs)

    return call


class Lateness:
    """Sleeps once in a step for what a delay has there."""

    def __init__(self, delay: Delay, plan: Planted) -> None:
        self._delay, self._plan = delay, plan
        self._last = 0

    def __call__(self, *_: object) -> None:
        step, delay, seed = step_now(), self._delay, self._plan.seed
        is_new, self._last = step > self._last, step
        if is_new and is_on(step, delay.group, self._plan.groups) and rank_of(delay, step, seed) == RANK:
            time.sleep(part_of(delay, step, seed) * delay.ms / 1e3)


def plant_delay(delay: Delay, plan: Planted) -> None:
    """Where it belongs."""
    late = Lateness(delay, plan)
    if delay.part == "forward":
        slow_forward(late)
    elif delay.part == "optimizer_inner_step":
        from torch.optim.optimizer import register_optimizer_step_pre_hook

        register_optimizer_step_pre_hook(late)
    elif delay.part == "gradient_hook":
        wrap(f"{CORE}.transformer.transformer_layer", "TransformerLayer", "forward", hooked(late))
    else:
        wrap(*OWNERS[delay.part], lambda function: before(late, function))


def slow_forward(act: Callable[..., None]) -> None:
    """Acts before each forward pass of a micro-batch, inside what the host times as one."""
    from megatron.core.pipeline_parallel import schedules

    forward_step = schedules.forward_step
    schedules.forward_step = lambda step, *args, **kwargs: forward_step(before(act, step), *args, **kwargs)


def hooked(late: Lateness) -> Callable[[Function], Function]:
    """A layer's forward pass whose output is late in the backward pass."""

    def make(function: Function) -> Function:
        def forward(*args: Any, **kwargs: Any) -> Any:
            made = function(*args, **kwargs)
            hidden = made[0] if isinstance(made, tuple) else made
            hidden.register_hook(lambda _: late())
            return made

        return forward

    return make


def pad(plan: Planted) -> None:
    """Equal work on all ranks, but for a heavy stage."""
    forward_s, backward_s = PIPELINE_S if plan.stages > 1 else (FORWARD_S, BACKWARD_S)
    if plan.heavy is not None and RANK * plan.stages // plan.ranks == plan.heavy:
        forward_s += HEAVIER_S
    if plan.options == INTERLEAVED:  # two parts of the model on each rank
        forward_s, backward_s = forward_s / 2, backward_s / 2
    slow_forward(lambda: time.sleep(forward_s))
    wrap(*OWNERS["backward"], lambda function: before(lambda: time.sleep(backward_s), function))


class Device:
    """Computes what the host hands to its model, at one speed.

    Attributes:
        per_unit: FLOPs of a forward pass for a token, a squared length and a token that an expert gets.
        even: what a rank has to do in a micro-batch that takes WORK_S, of each of these.
    """

    def __init__(self, plan: Planted) -> None:
        from megatron.training import get_args

        args = get_args()
        hidden, layers = args.hidden_size, args.num_layers
        is_moe = args.num_experts is not None
        mlp = 2 * hidden * args.num_experts if is_moe else 4 * hidden * args.ffn_hidden_size
        tokens = layers * (8 * hidden**2 + mlp) + 2 * hidden * args.padded_vocab_size
        experts = 4 * hidden * args.moe_ffn_hidden_size if is_moe else 0
        self.per_unit = (tokens, 2 * hidden * layers, experts)  # of attention, the half that a token sees
        count = args.micro_batch_size * args.seq_length
        lengths: Sequence[int] = MIXED if plan.more_work == "uneven_packing" else EVEN
        if is_moe:
            lengths = [args.seq_length] * args.micro_batch_size
        self.even = (count, sum(length**2 for length in lengths), count * layers if is_moe else 0)
        self._s_per_flop = WORK_S / sum(map(int.__mul__, self.per_unit, self.even))
        self._forward_s = 0.0
        if RANK == 0:
            names = ("tokens", "squared_lengths", "expert_tokens")
            flops = {
                name: (1 + BACKWARD_FORWARD) * each for name, each in zip(names, self.per_unit, strict=True)
            }
            Path(FLOPS).write_text(json.dumps(flops))

    def seconds(self, tokens: int, squared: int, of_experts: int) -> float:
        """Of a forward pass."""
        return self._s_per_flop * sum(map(int.__mul__, self.per_unit, (tokens, squared, of_experts)))

    def forward(self, position_ids: Any) -> None:
        """All but the experts, of documents that begin where positions do."""
        rows = position_ids.tolist()
        starts = [[place for place, at in enumerate(row) if at == 0] + [len(row)] for row in rows]
        squared = sum((end - start) ** 2 for row in starts for start, end in zip(row, row[1:], strict=False))
        self._forward_s = self.seconds(sum(map(len, rows)), squared, 0)
        time.sleep(self._forward_s)

    def backward(self) -> None:
        """Of the last forward pass."""
        time.sleep(BACKWARD_FORWARD * self._forward_s)


class Devices:
    """The one of this rank, made when the host knows its model."""

    def __init__(self, plan: Planted) -> None:
        self._plan = plan
        self._made: Device | None = None

    def __call__(self) -> Device:
        if self._made is None:
            self._made = Device(self._plan)
        return self._made


def compute(plan: Planted) -> None:
    """Sleeps by work: in the model's forward pass, its backward pass, and its experts."""
    device = Devices(plan)

    def of_model(function: Function) -> Function:
        def forward(model: Any, input_ids: Any, position_ids: Any, *args: Any, **kwargs: Any) -> Any:
            device().forward(position_ids)
            return function(model, input_ids, position_ids, *args, **kwargs)

        return forward

    def of_experts(function: Function) -> Function:
        def forward(experts: Any, hidden: Any, counts: Any, *args: Any, **kwargs: Any) -> Any:
            seconds = device().seconds(0, 0, int(counts.sum()))
            time.sleep(seconds)
            made = function(experts, hidden, counts, *args, **kwargs)
            made[0].register_hook(lambda _: time.sleep(BACKWARD_FORWARD * seconds))
            return made

        return forward

    wrap(f"{CORE}.models.gpt.gpt_model", "GPTModel", "forward", of_model)
    wrap(f"{CORE}.transformer.moe.experts", "SequentialMLP", "forward", of_experts)
    wrap(*OWNERS["backward"], lambda function: before(lambda: device().backward(), function))


def plant_documents(plan: Planted) -> None:
    """The host's samples get the documents that are planted, by tokens that end one."""

    def make(function: Function) -> Function:
        def read(dataset: Any, index: int) -> Any:
            text, ids = function(dataset, index)
            end = dataset.config.tokenizer.eod
            text = text % (end - 1)
            at = -1
            for length in documents_of(plan, step_now(), RANK):
                at += length
                text[at] = end
            return text, ids

        return read

    name = "_query_document_sample_shuffle_indices"
    wrap(f"{CORE}.datasets.gpt_dataset", "GPTDataset", name, make)


def plant_hot_expert(plan: Planted) -> None:
    """Tokens go to experts in turns; where planted, most to those of one rank."""

    def make(function: Function) -> Function:
        def routing(router: Any, logits: Any) -> Any:
            import torch

            experts = logits.shape[-1]
            logits = logits.view(-1, experts)
            tokens = torch.arange(len(logits))
            chosen = tokens % experts
            if plan.more_work == "hot_expert" and plan.worker is not None and is_on(step_now()):
                own = experts // plan.ranks
                others = (plan.worker + 1) % plan.ranks
                is_hot = tokens % HOT != 0
                chosen = torch.where(
                    is_hot, plan.worker * own + tokens % own, others * own + tokens // HOT % own
                )
            is_sent = torch.nn.functional.one_hot(chosen, experts).bool()
            return torch.softmax(logits, dim=-1) * is_sent, is_sent

        return routing

    wrap(f"{CORE}.transformer.moe.router", "TopKRouter", "routing", make)
    plant_tokens()


def plant_tokens() -> None:
    """The mock data's tokens fit into a small vocabulary."""

    def make(function: Function) -> Function:
        def read(dataset: Any, index: int) -> Any:
            text, ids = function(dataset, index)
            return text % dataset.config.tokenizer.eod, ids

        return read

    wrap(f"{CORE}.datasets.gpt_dataset", "GPTDataset", "_query_document_sample_shuffle_indices", make)


def plant_microbatches(plan: Planted) -> None:
    """One rank runs one more. Without a pipeline, ranks meet only where a step ends: nobody waits in vain."""

    def make(function: Function) -> Function:
        def run(*args: Any, num_microbatches: int, **kwargs: Any) -> Any:
            more = int(plan.worker == RANK and is_on(step_now()))
            return function(*args, num_microbatches=num_microbatches + more, **kwargs)

        return run

    wrap(f"{CORE}.pipeline_parallel.schedules", "", "forward_backward_no_pipelining", make)


def more_work_ms(plan: Planted, flops: Mapping[str, int]) -> float:
    """How much longer the worker computes in a step, of packing: the rank with the long document, than if
    all had the same to do.

    Args:
        flops: of the run's FLOPS file.
    """
    if plan.more_work is None:
        return 0.0
    if plan.more_work == "more_microbatches":
        return 1e3 * (FORWARD_S + BACKWARD_S)
    if plan.more_work == "hot_expert":
        even = [flops["tokens"], flops["squared_lengths"] * 64, flops["expert_tokens"] * 2]  # of a token
        more, microbatches = even[2] * (plan.ranks * (1 - 1 / HOT) - 1), 1
    else:
        lengths = MIXED if plan.worker is None else EVEN
        even = [flops["tokens"] * LONG[0], flops["squared_lengths"] * sum(each**2 for each in lengths)]
        more, microbatches = flops["squared_lengths"] * LONG[0] ** 2 - even[1], DOCUMENT_MICROBATCHES
    return 1e3 * WORK_S * (1 + BACKWARD_FORWARD) * microbatches * more / sum(even)


def plant_work(plan: Planted) -> None:
    """Whose ranks sleep by what they have to do."""
    if plan.more_work == "more_microbatches":
        plant_microbatches(plan)
        pad(plan)
        return
    compute(plan)
    if plan.more_work in ("hot_expert", "even_experts"):
        plant_hot_expert(plan)
    else:
        plant_documents(plan)


def planted_of(found: dict[str, Any]) -> Planted:
    """As `record.py` writes it."""
    delays = [Delay(**each | {"ranks": tuple(each["ranks"])}) for each in found.pop("delays")]
    return Planted(**found | {"delays": tuple(delays), "options": tuple(found["options"])})


def plant(plan: Planted) -> None:
    """All of it, on this rank."""
    for delay in plan.delays:
        plant_delay(delay, plan)
    if plan.more_work is None:
        pad(plan)
    else:
        plant_work(plan)


def run(words: Sequence[str], plant_all: Callable[[dict[str, Any]], None]) -> None:
    """Plants what is in the file that the first word names, then runs the script of the others."""
    path, *sys.argv = words
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    plant_all(json.loads(Path(path).read_text()))
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    run(sys.argv[1:], lambda found: plant(planted_of(found)))
