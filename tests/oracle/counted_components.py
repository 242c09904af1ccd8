"""Megatron's own training script, each of its train steps counted part by part:
`counted_components.py OUT SCRIPT ARGS...`, with the kernels of `reference_kernels`.

Every rank appends one line a step to OUT/RANK: a JSON object of components and phases, all micro-batches.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import sys
from pathlib import Path
from typing import Any

from tests.oracle import reference_kernels

out, script = Path(sys.argv[1]), sys.argv[2]
sys.argv = sys.argv[2:]
reference_kernels.install()

import megatron.core.pipeline_parallel.schedules as schedules  # noqa: E402
import megatron.training.training as training  # noqa: E402

from tests.oracle import counter as of_megatron  # noqa: E402
from tests.oracle.products import Counter  # noqa: E402

train_step, backward_step = training.train_step, schedules.backward_step
MIXER = re.compile(r"mixer\.(in_proj|out_proj)$")


def component_of(path: str) -> str | None:
    """Of a module of the wrapped model."""
    mixer = MIXER.search(path)
    return f"mamba.{mixer[1]}" if mixer else of_megatron.component_of(path.removeprefix("module."))


def counted_step(forward_step: Any, data: Any, model: list[Any], *rest: Any, **named: Any) -> Any:
    """One step of the host's, and its line."""
    if reference_kernels.counter is None:
        (whole,) = model  # no virtual stages
        reference_kernels.counter = Counter(whole, component_of)
    counter = reference_kernels.counter
    counter.counts.clear()
    counter.unattributed = 0
    with counter:
        result = train_step(forward_step, data, model, *rest, **named)
    counts = {**counter.counts, "unattributed": counter.unattributed}
    with (out / os.environ["RANK"]).open("a", encoding="utf-8") as file:
        file.write(json.dumps(counts) + "\n")
    return result


def counted_backward(*given: Any, **named: Any) -> Any:
    """A layer that runs forward in here is recomputed."""
    counter = reference_kernels.counter
    assert counter is not None
    counter.in_backward = True
    result = backward_step(*given, **named)
    counter.in_backward = False
    return result


training.train_step, schedules.backward_step = counted_step, counted_backward
sys.path.insert(0, str(Path(script).parent))
runpy.run_path(script, run_name="__main__")
