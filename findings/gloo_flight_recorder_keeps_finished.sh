#!/usr/bin/env bash
# torch 2.13.0, backend gloo: the flight recorder's dump of active collectives only (`includeCollectives=True, onlyActive=True`) lists those
# that are over, too. Their state stays "scheduled" for ever, on every rank; only the field `retired` and the group's
# `last_completed_collective` tell that they have ended. A tool that takes "scheduled" for "hangs", as it may for NCCL, blames every rank.
#
# Guess before the run: one entry, that of the all-reduce that is waited for.
# Seen: three entries of three all-reduces, all "scheduled"; `retired` is true, true, false, and pg_status says 2 of 3.
#
# Installs torch into a temporary directory. Exit status 0: as stated here; 1: it has changed.
set -euo pipefail
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0+cpu ||
    "$work/venv/bin/pip" install --quiet --disable-pip-version-check numpy torch==2.13.0
cd "$work"
cat > ranks.py <<'PYTHON'
import json
import os
import sys
import threading
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def look(is_done: threading.Event) -> None:
    time.sleep(3)
    dump = json.loads(torch._C._distributed_c10d._dump_fr_trace_json(True, True))
    seen = [(each["collective_seq_id"], each["state"], each["retired"]) for each in dump["entries"]]
    status = dump["pg_status"]["0"]
    print(torch.__version__, seen, status, sep="\n")
    is_same = seen == [(1, "scheduled", True), (2, "scheduled", True), (3, "scheduled", False)]
    is_same = is_same and (status["last_completed_collective"], status["last_enqueued_collective"]) == ("2", "3")
    open("same" if is_same else "changed", "w").close()
    is_done.set()


def rank(number: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29519")
    dist.init_process_group("gloo", rank=number, world_size=2)
    tensor, is_done = torch.ones(4), threading.Event()
    dist.all_reduce(tensor)
    dist.all_reduce(tensor)
    if number:  # comes late to the third one
        while not (os.path.exists("same") or os.path.exists("changed")):
            time.sleep(0.1)
    else:
        threading.Thread(target=look, args=(is_done,), daemon=True).start()
    dist.all_reduce(tensor)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(rank, nprocs=2)
    sys.exit(not os.path.exists("same"))
PYTHON
"$work/venv/bin/python" ranks.py
