#!/usr/bin/env bash
# torch 2.13.0, backend gloo: reduce_scatter_tensor (what FSDP2 and Megatron's distributed optimizer call) is carried out as an all-reduce of
# the whole buffer. On two ranks it moves as many bytes as all_reduce does: twice what a reduce-scatter needs. A bus bandwidth worked out
# from its size, as for NCCL, is half of what the link carried.
#
# Guess before the run: an event gloo:reduce_scatter, and half of an all-reduce's bytes.
# Seen: events c10d::_reduce_scatter_base_ and, inside it, gloo:all_reduce; bytes on the loopback link 1.0 times those of the all-reduce of
# the same buffer (by the kernel's own counters). gloo's all-gather is its own: half of them.
#
# Installs torch into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0+cpu ||
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0
cd "$work"
cat > ranks.py <<'PYTHON'
import os
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.profiler import ProfilerActivity, profile

ELEMENTS, ROUNDS = 1 << 22, 10  # 16 MiB of float32: other traffic on the loopback link does not matter beside it
OPERATIONS = {
    "all_reduce": lambda whole, part: dist.all_reduce(whole),
    "reduce_scatter": lambda whole, part: dist.reduce_scatter_tensor(part, whole),
    "all_gather": lambda whole, part: dist.all_gather_into_tensor(whole, part),
}


def loopback_bytes() -> int:
    line = next(line for line in open("/proc/net/dev") if line.strip().startswith("lo:"))
    return int(line.split()[1])


def rank(number: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29517")
    dist.init_process_group("gloo", rank=number, world_size=2)
    whole, part = torch.ones(ELEMENTS), torch.empty(ELEMENTS // 2)
    moved, names = {}, {}
    for name, run in OPERATIONS.items():
        run(whole, part)  # connections are made
        dist.barrier()
        before = loopback_bytes()
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(ROUNDS):
                run(whole, part)
        dist.barrier()
        moved[name] = (loopback_bytes() - before) / ROUNDS
        names[name] = sorted({event.name for event in profiler.events() if event.name.startswith("gloo:")})
    dist.destroy_process_group()
    if number:
        return
    ratios = {name: round(count / moved["all_reduce"], 1) for name, count in moved.items()}
    print({name: f"{count / 2**20:.1f} MiB" for name, count in moved.items()}, ratios, names, sep="\n")
    is_same = ratios == {"all_reduce": 1.0, "reduce_scatter": 1.0, "all_gather": 0.5} and names == {
        "all_reduce": ["gloo:all_reduce"],
        "reduce_scatter": ["gloo:all_reduce"],
        "all_gather": ["gloo:all_gather"],
    }
    open("same" if is_same else "changed", "w").close()


if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
    sys.exit(not os.path.exists("same"))
PYTHON
"$work/venv/bin/python" ranks.py
