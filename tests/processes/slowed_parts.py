"""Runs a training script with sleeps in one part of it, long enough that nothing else matters.

`slowed_parts.py PART SECONDS SCRIPT ARGS...`, under `-m flagscale_perf.launch`; the part is "data" (each
sample), "checkpoint", "start" (the backward of the first 9 steps after the first one), or "backward N" (of
rank N).
"""

from __future__ import annotations

import itertools
import os
import runpy
import sys
import time

from padded_stages import slowed


def slow_at_first(step, seconds: float):
    """The train step with a sleep in the second to the tenth call."""
    calls = itertools.count(1)

    def slowed_step(*args, **kwargs):
        if 2 <= next(calls) <= 10:
            time.sleep(seconds)
        return step(*args, **kwargs)

    return slowed_step


def slow(part: str, seconds: float) -> None:
    if part == "data":
        from megatron.core.datasets.gpt_dataset import GPTDataset

        GPTDataset.__getitem__ = slowed(GPTDataset.__getitem__, seconds)
    elif part == "checkpoint":
        from megatron.training import checkpointing

        checkpointing.save_checkpoint = slowed(checkpointing.save_checkpoint, seconds)
    elif part == "start":
        from flagscale.train import train

        train.train_step = slow_at_first(train.train_step, seconds)
    elif part == f"backward {os.environ['RANK']}":
        from megatron.core.pipeline_parallel import schedules

        schedules.custom_backward = slowed(schedules.custom_backward, seconds)


if __name__ == "__main__":
    _, part, seconds, *sys.argv = sys.argv
    del sys.path[0]  # this directory has a flagscale.py
    slow(part, float(seconds))
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
