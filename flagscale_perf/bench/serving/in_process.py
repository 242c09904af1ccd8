"""Latency without vLLM: transformers' `generate` in this process, with a streamer that notes when each token
comes. It is given the tokens on the host, so that each of its times is after the device's work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.names import MEMORY
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving.cases import SEED, Case, Turn, case_of
from flagscale_perf.bench.serving.driver import Result
from flagscale_perf.bench.serving.measure import GB, WARM_OUTPUT, keep
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.profile.standalone.model import made_model
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns

ENGINE = "torch"


class Streamer:
    """Receives tokens from `generate`: first the prompt, then those of each step."""

    def __init__(self) -> None:
        self.marks_ns: list[int] = []

    def put(self, tokens: Any) -> None:
        """Notes the time of a step's tokens."""
        self.marks_ns.append(monotonic_ns())

    def end(self) -> None:
        """Called after the last token."""


def measure(part: Part, chosen: Chosen, order: Sequence[Turn]) -> None:
    """Measures every turn; weights are random. A batch counts as one request, as all its sequences begin and
    end together. Raises PerfError if the model cannot be built here.
    """
    import torch

    torch.manual_seed(SEED)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = made_model(chosen.model.directory, chosen.longest).to(device).eval()
    for case in {(turn.case.batch, turn.case.seq): turn.case for turn in order}.values():
        _generate(torch, model, case._replace(output=min(WARM_OUTPUT, case.output)))
    for number, turn in enumerate(order, 1):
        with part.timing() as clock:
            begun, first, *others = _generate(torch, model, turn.case)
        first_s, last_s = ((mark - begun) / NS_PER_S for mark in (first, [first, *others][-1]))
        at = {**case_of(turn, ENGINE), "in_flight": turn.case.batch}
        result = Result(
            ttft=[first_s],
            tpot=[(last_s - first_s) / len(others)] if others else [],
            in_few_pieces=0,
            latency=[last_s],
            duration_s=last_s,
            prompt_tokens=turn.case.batch * turn.case.seq,
            output_tokens=turn.case.batch * turn.case.output,
        )
        keep(part, at, result, clock)
        say(
            f"[{number}/{len(order)}] batch {turn.case.batch}, {turn.case.seq} + {turn.case.output} tokens:"
            f" {1e3 * last_s:.1f} ms"
        )
    if device == "cuda":
        peak = torch.cuda.max_memory_allocated() / GB
        part.value(MEMORY, "GB", {**chosen.arms[0].case, "engine": ENGINE}, peak, "torch's peak")


def _generate(torch: Any, model: Any, case: Case) -> list[int]:
    """Times of the start and of each token."""
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
