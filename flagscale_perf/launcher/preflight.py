"""Checks before a job is started on this machine: its data exist, the monitor's directory can be written, and
it fits into memory: this machine's where it is rehearsed on the CPU, the device's otherwise.

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

from flagscale_perf.flops.files import args_from_file
from flagscale_perf.flops.memory import Layout, MemoryNeed, memory_need
from flagscale_perf.flops_calculator import ModelShape
from flagscale_perf.launcher.machine import Free, Machine
from flagscale_perf.launcher.plan import Plan
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.files import unwritable

# The estimate is right within this factor (tests/processes/test_memory_need.py): less is not refused.
TOLERANCE = 1.4
_SMALL_BYTES = 4_000_000_000  # of a rank: fits into every device, so that none is asked
_ROOMY = 0.6  # share of the free memory that a smaller job proposed may take
_ASK_S = 120
_TEXTFILE = "/var/lib/node_exporter/flagscale_perf.prom"
_ASK = """
import json, torch
on = torch.cuda.is_available() or torch.accelerator.is_available()
cuda = torch.cuda.is_available()
print(json.dumps({
    "count": (torch.cuda.device_count() if cuda else torch.accelerator.device_count()) if on else 0,
    "bytes": torch.cuda.get_device_properties(0).total_memory if cuda else None,
}))
"""


def check(plan: Plan) -> list[str]:
    """Notes about the job. Raises PerfError for one that cannot work."""
    return [*_check_data(plan), *_check_outputs(plan), *memory_notes(plan)]


def _check_data(plan: Plan) -> list[str]:
    given, mock = plan.settings.get("data_path"), plan.settings.get("mock_data")
    if mock is not None and mock.value is True:
        return ["data: made up by Megatron (mock_data is true); the loss means nothing"]
    if given is not None and given.value is not None:
        for prefix in _prefixes(given.value):
            _check_prefix(given.path, prefix, plan.job.paths.cwd)
    return []


def _prefixes(value: Any) -> list[str]:
    """The data sets of --data-path: one, several, or each behind its weight."""
    words = [str(word) for word in value] if isinstance(value, list) else [str(value)]
    weighted = len(words) % 2 == 0 and all(_is_number(word) for word in words[::2])
    return words[1::2] if weighted else words


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _check_prefix(path: str, prefix: str, cwd: str) -> None:
    """A data set is a pair of files, whose common prefix is given. Other kinds of data, which only their own
    training script knows, are files or directories of that name, or lie in a store with an address.
    """
    if "://" in prefix:
        return
    base = os.path.join(cwd, prefix)
    stem, suffix = os.path.splitext(base)
    missing = [end for end in (".bin", ".idx") if not os.path.isfile(base + end)]
    if not missing:
        return
    if suffix in (".bin", ".idx") and os.path.isfile(base):
        raise PerfError(f"{path}: {prefix!r} is one file of a data set; write {os.path.splitext(prefix)[0]}")
    if os.path.exists(base):
        return
    absent = " and ".join(prefix + end for end in missing)
    raise PerfError(
        f"{path}: {absent} {'is' if len(missing) == 1 else 'are'} not there, seen from {cwd}; give the path"
        " of both files without .bin and .idx (Megatron's tools/preprocess_data.py makes them), or train on"
        f" made-up data: {path}=null ++train.data.mock_data=true"
    )


def _check_outputs(plan: Plan) -> list[str]:
    perf, log_dir = plan.perf, plan.job.paths.log_dir
    places = [("experiment.exp_dir", log_dir, log_dir, "experiment.exp_dir=./outputs")]
    if perf.enable_perf_monitor:
        example = "train.system.perf_log_dir=./outputs/logs/perf_monitor"
        places.append((plan.settings["perf_log_dir"].path, perf.perf_log_dir, perf.perf_log_dir, example))
        if textfile := perf.perf_prometheus_textfile:
            key = "train.system.perf_prometheus_textfile"
            places.append((key, textfile, os.path.dirname(textfile), f"{key}={_TEXTFILE}"))
    for key, shown, directory, example in places:
        if wrong := unwritable(directory):
            raise PerfError(
                f"{key}: {shown!r} cannot be written: {wrong}; give a place that can, for example {example}"
            )
    return []


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
    """Lines about the job's memory. Raises PerfError for a rehearsal that does not fit."""
    given = args_from_file({key: setting.value for key, setting in plan.settings.items()})
    ranks, devices = _local_ranks(plan)
    nodes = int((plan.job.torchrun.get("nnodes") or "1").rpartition(":")[2])
    try:
        need = _need(given, ranks, nodes)
    except PerfError as error:
        return [f"memory: not estimated: {error}"]
    free, mode = Machine().free(), plan.perf.rehearse_on_cpu
    fits_here = free is not None and need.total_bytes * TOLERANCE < free.free_bytes
    if fits_here and (need.rank_bytes < _SMALL_BYTES or mode == "always"):
        return []
    if mode != "always":
        devices = devices or _ask(plan)
        if mode == "never" or devices is None or devices.count:
            return _of_device(plan, need, devices)
    return _of_machine(plan, given, need, free)


def _local_ranks(plan: Plan) -> tuple[int, Devices | None]:
    """How many ranks the job has on a machine, and its devices if these had to be asked for that."""
    given = plan.job.torchrun.get("nproc_per_node") or "1"
    if given.isdecimal():
        return int(given), None
    devices = _ask(plan)
    return (devices and devices.count) or os.cpu_count() or 1, devices


def _need(given: Mapping[str, Any], local_ranks: int, nodes: int) -> MemoryNeed:
    shape = ModelShape.from_args(given)
    layout = Layout.from_args(given, local_ranks, local_ranks * nodes)
    return memory_need(shape, shape.parameters, layout)


def _ask(plan: Plan) -> Devices | None:
    """Asks torch in the job's Python; None where it does not answer, for example because the Python is only
    found after `before_start`.
    """
    try:
        done = subprocess.run(
            [plan.job.python, "-c", _ASK],
            env=plan.job.environment(os.environ),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_ASK_S,
            check=True,
            stdin=subprocess.DEVNULL,
        )
        return Devices(**json.loads(done.stdout.splitlines()[-1]))
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None


def _of_device(plan: Plan, need: MemoryNeed, devices: Devices | None) -> list[str]:
    if devices is None:
        return [f"memory: not checked: {plan.job.python} does not say which devices torch sees"]
    if devices.bytes is None or need.state_bytes <= devices.bytes:
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
