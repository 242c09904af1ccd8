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
from types import ModuleType
from typing import Any

from tests.oracle import counter as of_megatron
from tests.oracle import reference_kernels
from tests.oracle.products import Counter

RECURRENT = ((r"mixer\.(in_proj|out_proj)$", "mamba"), (r"self_attention\.(in_proj|out_proj)$", "gdn"))


def component_of(path: str) -> str | None:
    """Of a module of the wrapped model."""
    for pattern, layer in RECURRENT:
        if found := re.search(pattern, path):
            return f"{layer}.{found[1]}"
    return of_megatron.component_of(path.removeprefix("module."))


def count_steps(training: ModuleType, out: Path) -> None:
    """From now on the train steps of this loop are counted. Megatron's modules are imported here, after what
    stands in for others.
    """
    from megatron.core.pipeline_parallel import schedules

    train_step, backward_step = training.train_step, schedules.backward_step

    def counted_step(forward_step: Any, data: Any, model: list[Any], *rest: Any) -> Any:
        """One step of the host's, and its line."""
        if reference_kernels.counter is None:
            (whole,) = model  # no virtual stages
            reference_kernels.counter = Counter(whole, component_of)
        counter = reference_kernels.counter
        counter.counts.clear()
        counter.unattributed = 0
        with counter:
            result = train_step(forward_step, data, model, *rest)
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

    training.train_step, schedules.backward_step = counted_step, counted_backward  # type: ignore[attr-defined]


def main() -> None:
    """Runs Megatron-LM's script as its own main program."""
    out, script = Path(sys.argv[1]), sys.argv[2]
    sys.argv = sys.argv[2:]
    reference_kernels.install()
    import megatron.training.training as training

    count_steps(training, out)
    sys.path.insert(0, str(Path(script).parent))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
