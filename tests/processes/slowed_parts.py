"""Runs a training script with sleeps in one part of it, long enough that nothing else matters.

`slowed_parts.py PART SECONDS SCRIPT ARGS...`, under `-m flagscale_perf.launch`; the part is "data" (each
sample), "checkpoint", or "backward N" (of rank N).
"""

from __future__ import annotations

import os
import runpy
import sys

from padded_stages import slowed


def slow(part: str, seconds: float) -> None:
    if part == "data":
        from megatron.core.datasets.gpt_dataset import GPTDataset

        GPTDataset.__getitem__ = slowed(GPTDataset.__getitem__, seconds)
    elif part == "checkpoint":
        from megatron.training import checkpointing

        checkpointing.save_checkpoint = slowed(checkpointing.save_checkpoint, seconds)
    elif part == f"backward {os.environ['RANK']}":
        from megatron.core.pipeline_parallel import schedules

        schedules.custom_backward = slowed(schedules.custom_backward, seconds)


if __name__ == "__main__":
    _, part, seconds, *sys.argv = sys.argv
    del sys.path[0]  # this directory has a flagscale.py
    slow(part, float(seconds))
    sys.path.insert(0, os.path.dirname(os.path.abspath(sys.argv[0])))
    runpy.run_path(sys.argv[0], run_name="__main__")
