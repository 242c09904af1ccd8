"""Runs a training script with batches of different lengths, each computed for as long as it has tokens.

`uneven_batches.py SCRIPT ARGS...`, under `-m flagscale_perf.launch`, without processes that load data. A
micro-batch of rank n is so many times as long as a whole sequence as the nth of `UNEVEN_SHARES` says (joined
by commas), give or take `UNEVEN_SPREAD`. The model sleeps `UNEVEN_CONSTANT_S` for each micro-batch and
`UNEVEN_TOKEN_S` for each token in it, in the backward pass twice as long: as if a device computed, so that a
busy machine changes little. What was slept each rank says in `slept.say`.
"""

from __future__ import annotations

import os
import random
import runpy
import sys
import time
from collections.abc import Callable
from typing import Any

if __name__ == "__main__":
    from slept import say  # this directory is where scripts are looked for, and "tests" is Megatron's
else:
    from tests.processes.slept import say

RANK = int(os.environ.get("RANK", 0))


class Uneven:
    """The lengths of a rank's micro-batches, and what they take."""

    def __init__(self) -> None:
        shares = [float(each) for each in os.environ["UNEVEN_SHARES"].split(",")]
        self._share, self._spread = shares[RANK], float(os.environ.get("UNEVEN_SPREAD", "0.3"))
        self._constant_s, self._token_s = (
            float(os.environ[f"UNEVEN_{name}_S"]) for name in ("CONSTANT", "TOKEN")
        )
        self._draw, self._length, self._samples, self._slept_s = random.Random(RANK), 0, 0, 0.0

    def sample(self, get: Callable[..., Any]) -> Callable[..., Any]:
        """A data set's `__getitem__`: all samples of a micro-batch are as long."""

        def cut(dataset: Any, number: Any) -> Any:
            from megatron.training import get_args

            whole = get(dataset, number)
            if self._samples % get_args().micro_batch_size == 0:
                spread = 1 + self._spread * self._draw.uniform(-1, 1)
                self._length = max(8, round(len(whole["tokens"]) * min(1.0, self._share * spread)))
            self._samples += 1
            return {name: self._short(value) for name, value in whole.items()}

        return cut

    def _short(self, value: Any) -> Any:
        for axis in range(value.dim() - 1, max(-1, value.dim() - 3), -1):
            value = value.narrow(axis, 0, self._length)
        return value

    def forward(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """The model's."""

        def call(model: Any, tokens: Any, *args: Any, **kwargs: Any) -> Any:
            self._slept_s = self._constant_s + self._token_s * tokens.numel()
            self._sleep("forward", self._slept_s)
            return compute(model, tokens, *args, **kwargs)

        return call

    def backward(self, compute: Callable[..., Any]) -> Callable[..., Any]:
        """Of the micro-batch before."""

        def call(*args: Any, **kwargs: Any) -> Any:
            self._sleep("backward", 2 * self._slept_s)
            return compute(*args, **kwargs)

        return call

    def _sleep(self, what: str, seconds: float) -> None:
        begin_ns = time.monotonic_ns()
        time.sleep(seconds)
        end_ns = time.monotonic_ns()
        say(f"work {what}", end_ns - begin_ns, begin_ns, end_ns)


def plant() -> None:
    from megatron.core.datasets.gpt_dataset import GPTDataset
    from megatron.core.models.gpt import GPTModel
    from megatron.core.pipeline_parallel import schedules

    uneven = Uneven()
    GPTDataset.__getitem__ = uneven.sample(GPTDataset.__getitem__)
    GPTModel.forward = uneven.forward(GPTModel.forward)
    schedules.custom_backward = uneven.backward(schedules.custom_backward)


if __name__ == "__main__":
    del sys.argv[0]
    sys.path[0] = os.path.dirname(os.path.abspath(sys.argv[0]))
    plant()
    runpy.run_path(sys.argv[0], run_name="__main__")
