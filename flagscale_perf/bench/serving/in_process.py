"""Latency without vLLM: transformers' `generate` in this process, with a streamer that notes when each token
comes. It is given the tokens on the host, so that each of its times is after the device's work.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from flagscale_perf.bench.names import MEMORY
from flagscale_perf.bench.serving.cases import SEED, Arm, Case, Load
from flagscale_perf.bench.serving.measure import GB, Result, Value
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.profile.standalone.model import made_model
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns


class Streamer:
    """Receives tokens from `generate`: first the prompt, then those of each step."""

    def __init__(self) -> None:
        self.marks_ns: list[int] = []

    def put(self, tokens: Any) -> None:
        """Notes the time of a step's tokens."""
        self.marks_ns.append(monotonic_ns())

    def end(self) -> None:
        """Called after the last token."""


class Generate:
    """An engine on one device, with random weights.

    Attributes:
        name: of it.
    """

    name = "torch"

    def __init__(self, chosen: Chosen) -> None:
        """Raises PerfError if the model cannot be built here."""
        import torch

        torch.manual_seed(SEED)
        self._torch: Any = torch
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._model = made_model(chosen.model.directory, chosen.longest).to(self._device).eval()

    def serve(self, arm: Arm) -> AbstractContextManager[None]:
        """The model is there already."""
        return nullcontext()

    def run(self, load: Load) -> Result:
        """A batch counts as one request, as all its sequences begin and end together."""
        case = load.case
        begun, first, *others = self._generate(case)
        first_s, last_s = ((mark - begun) / NS_PER_S for mark in (first, [first, *others][-1]))
        return Result(
            ttft=[first_s],
            tpot=[(last_s - first_s) / len(others)] if others else [],
            in_few_pieces=0,
            latency=[last_s],
            duration_s=last_s,
            prompt_tokens=case.batch * case.seq,
            output_tokens=case.batch * case.output,
        )

    def values(self) -> Iterator[Value]:
        """The device's memory, where it counts."""
        if self._device == "cuda":
            yield MEMORY, "GB", self._torch.cuda.max_memory_allocated() / GB, "torch's peak"

    def _generate(self, case: Case) -> list[int]:
        """Times of the start and of each token."""
        torch, model = self._torch, self._model
        ids = torch.randint(0, model.config.vocab_size, (case.batch, case.seq), device=model.device)
        streamer = Streamer()
        begun_ns = monotonic_ns()
        with torch.no_grad():
            model.generate(
                input_ids=ids,
                attention_mask=torch.ones_like(ids),
                do_sample=False,
                streamer=streamer,
                max_new_tokens=case.output,
                min_new_tokens=case.output,
                eos_token_id=None,
                pad_token_id=0,
            )
        return [begun_ns, *streamer.marks_ns[1:]]  # the first is of the prompt
