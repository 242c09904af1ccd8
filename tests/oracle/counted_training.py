"""FlagScale's own training script, each of its train steps under torch's FlopCounterMode:
`counted_training.py OUT SCRIPT ARGS...`.

Every rank appends one number a step to OUT/RANK: what its products multiplied, forward and backward, all
micro-batches.
"""

from __future__ import annotations

import os
import runpy
import sys
from pathlib import Path

import flagscale.train.train as training
from torch.utils.flop_counter import FlopCounterMode

out, script = Path(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
original = training.train_step


def train_step(*args, **kwargs):
    with FlopCounterMode(display=False) as counter:
        result = original(*args, **kwargs)
    with (out / os.environ["RANK"]).open("a", encoding="utf-8") as file:
        file.write(f"{counter.get_total_flops()}\n")
    return result


training.train_step = train_step
sys.path.insert(0, str(Path(script).parent))
runpy.run_path(script, run_name="__main__")
