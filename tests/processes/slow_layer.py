"""Runs a training script in which the forward pass of one layer sleeps on one rank.

`slow_layer.py SECONDS LAYER RANK SCRIPT ARGS...`, under `-m flagscale_perf.launch`; LAYER counts from 1, as
Megatron does. What was slept, the rank says in `slept.say`.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import time
from typing import Any

if __name__ == "__main__":
    from slept import say  # this directory is where scripts are looked for, and "tests" is Megatron's
else:
    from tests.processes.slept import say


def main() -> None:
    """Wraps the layer's forward pass, then runs the script."""
    seconds, number, rank, *sys.argv = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))  # this directory has a flagscale.py
    from megatron.core.transformer.transformer_layer import TransformerLayer

    real = TransformerLayer.forward

    @functools.wraps(real)
    def forward(self: Any, *args: Any, **more: Any) -> Any:
        begin_ns = time.monotonic_ns()
        if float(seconds) and self.layer_number == int(number) and os.environ.get("RANK") == rank:
            time.sleep(float(seconds))
            end_ns = time.monotonic_ns()
            say("layer", end_ns - begin_ns, begin_ns, end_ns)
        return real(self, *args, **more)

    TransformerLayer.forward = forward
    runpy.run_path(sys.argv[0], run_name="__main__")


if __name__ == "__main__":
    main()
