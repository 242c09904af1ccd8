"""Whether a job fits into the memory it would run in: this machine's where it is rehearsed on the CPU, the
device's otherwise.

A rehearsal that does not fit is refused with the figures and with a smaller one that does. Of a device only
what cannot fit in any way is said: kernels, offloading and caches decide the rest.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flagscale_perf.flops.memory import Layout, MemoryNeed, memory_need
from flagscale_perf.flops.sources import args_from_yaml
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.launcher.machine import Free, Machine
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.spine.errors import PerfError

# The estimate is right within this factor (tests/processes/test_memory_need.py): less is not refused.
TOLERANCE = 1.4
_SMALL_BYTES = 4_000_000_000  # of a rank: fits into every device, so that nobody needs to be asked
_ROOMY = 0.6  # share of the free memory that a smaller job proposed may take
_ASK_S = 120
_ASK = """
import json, torch
on = torch.cuda.is_available() or torch.accelerator.is_available()
cuda = torch.cuda.is_available()
print(json.dumps({
    "count": (torch.cuda.device_count() if cuda else torch.accelerator.device_count()) if on else 0,
    "bytes": torch.cuda.get_device_properties(0).total_memory if cuda else None,
}))
"""


@dataclass(frozen=True)
class Devices:
    """The accelerators that the job's Python sees.

    Attributes:
        count: 0 where there is none.
        bytes: memory of the first; None if it does not say.
    """

    count: int
    bytes: int | None


def memory_notes(plan: Plan) -> list[str]:
    """What is to be said of the job's memory. Raises PerfError for a rehearsal that does not fit."""
    given = args_from_yaml({key: setting.value for key, setting in plan.settings.items()})
    ranks, devices = plan.job.torchrun.get("nproc_per_node") or "1", None
    if not ranks.isdecimal():
        devices = _ask(plan)
        ranks = str((devices and devices.count) or os.cpu_count() or 1)
    try:
        need = _need(given, int(ranks), _nodes(plan))
    except PerfError as error:
        return [f"memory: not estimated: {error}"]
    free = Machine().free()
    fits_here = free is not None and need.total_bytes * TOLERANCE < free.free_bytes
    if fits_here and (need.rank_bytes < _SMALL_BYTES or plan.perf.rehearse_on_cpu == "always"):
        return []
    if plan.perf.rehearse_on_cpu != "always":
        devices = devices or _ask(plan)
        if devices is None or devices.count or plan.perf.rehearse_on_cpu == "never":
            return _of_device(need, devices)
    return _of_machine(plan, given, need, free)


def _need(given: Mapping[str, Any], local_ranks: int, nodes: int) -> MemoryNeed:
    shape = ModelShape.from_args(given)
    layout = Layout.from_args(given, local_ranks, local_ranks * nodes)
    return memory_need(shape, shape.parameters, layout)


def _nodes(plan: Plan) -> int:
    return int((plan.job.torchrun.get("nnodes") or "1").rpartition(":")[2])


def _ask(plan: Plan) -> Devices | None:
    """Asks torch in the job's Python; None where it does not answer, for example because the Python is only
    found after `before_start`.
    """
    changes = plan.job.env
    env = {name: text for name, text in {**os.environ, **changes}.items() if text is not None}
    try:
        done = subprocess.run(
            [plan.job.python, "-c", _ASK], env=env, capture_output=True, text=True, errors="replace",
            timeout=_ASK_S, check=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip
        return Devices(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _of_device(need: MemoryNeed, devices: Devices | None) -> list[str]:
    if devices is None or devices.bytes is None or need.state_bytes <= devices.bytes:
        return []
    return [
        f"warning: the weights, gradients and optimizer of a rank need about {_gb(need.state_bytes)}, and the"
        f" device has {_gb(devices.bytes)}: this cannot fit; use more tensor or pipeline parallelism, more"
        " ranks with use_distributed_optimizer, or a smaller model"
    ]


def _of_machine(plan: Plan, given: Mapping[str, Any], need: MemoryNeed, free: Free | None) -> list[str]:
    ranks = "1 rank of this model needs" if need.ranks == 1 else f"{need.ranks} ranks of this model need"
    wanted = f"{ranks} about {_gb(need.total_bytes)} on the CPU"
    if free is None:
        return [f"memory: {wanted}; how much is free cannot be read here"]
    if need.total_bytes < free.free_bytes * TOLERANCE:
        return [f"memory: {wanted} of {_gb(free.free_bytes)} free; it may run out"]
    text = (
        f"memory: {wanted}, and {_gb(free.free_bytes)} is free ({free.source}).\n"
        "    There is no GPU here, or rehearse_on_cpu is always: all of it is in this machine's memory.\n"
        f"    a rank: {_gb(need.state_bytes)} for weights, gradients and optimizer,"
        f" {_gb(need.activation_bytes)} for activations,"
        f" {_gb(need.exchange_bytes + need.process_bytes)} for collectives and the process;"
        f" the machine: {_gb(need.index_bytes)} for the order of the samples\n"
        f"    {_proposal(plan, given, free)}\n"
        "    or only write the script, for the machine that has the GPUs: action=dryrun\n"
        "    or start it all the same: ++experiment.runner.check_memory=false"
    )
    if plan.job.check_memory:
        raise PerfError(text)
    return [text]


def _proposal(plan: Plan, given: Mapping[str, Any], free: Free) -> str:
    """The least change after which the job fits, as words for the command line."""
    changes: dict[str, int] = {}
    for more in _smaller(given):
        changes |= {key: value for key, value in more.items() if _is_less(given, key, value)}
        ranks = changes.get("nproc_per_node", 1)
        try:
            need = _need({**given, **changes}, ranks, 1)
        except PerfError:
            continue
        if need.total_bytes * TOLERANCE < free.free_bytes * _ROOMY:
            words = " ".join(_word(plan, key, value) for key, value in changes.items())
            return f"to try it here, add: {words}\n        (about {_gb(need.total_bytes)})"
    return "to try something here: python run.py train=demo_llama"


def _smaller(given: Mapping[str, Any]) -> list[dict[str, int]]:
    """Changes, the least first; each goes with those before it."""

    def size(name: str) -> int:
        """A parallel size."""
        return int(given.get(name) or 1)

    stages, tensor = size("pipeline_model_parallel_size"), size("tensor_model_parallel_size")
    ranks = stages * tensor * size("context_parallel_size") * size("expert_model_parallel_size")
    heads = 8 * tensor
    narrow = {"hidden_size": 64 * heads, "num_attention_heads": heads}
    narrow |= {
        key: value
        for key, value in (
            ("ffn_hidden_size", 128 * heads),
            ("num_query_groups", 2 * tensor),
            ("kv_channels", 64),
        )
        if given.get(key) is not None
    }
    few = {"micro_batch_size": 1, "global_batch_size": 2 * ranks}
    if given.get("train_samples") is not None:
        few["train_samples"] = 200 * ranks
        few |= {"lr_warmup_samples": 0} if given.get("lr_warmup_samples") is not None else {}
    if given.get("fp16") is True:
        few["fp16"] = False  # many CPUs multiply it far more slowly than fp32
    return [{"nproc_per_node": ranks}, few, {"num_layers": 2 * stages}, {"seq_length": 256}, narrow]


def _is_less(given: Mapping[str, Any], key: str, value: int) -> bool:
    return key in ("nproc_per_node", "fp16") or key not in given or int(given[key]) > value


def _word(plan: Plan, key: str, value: int) -> str:
    if key == "nproc_per_node":
        return f"experiment.runner.nproc_per_node={value}"
    setting = plan.settings.get(key)
    return f"{setting.path}={str(value).lower()}" if setting else f"+train.model.{key}={value}"


def _gb(size: float) -> str:
    gigabytes = size / 1e9
    return f"{gigabytes:.0f} GB" if gigabytes >= 20 else f"{gigabytes:.1f} GB"
