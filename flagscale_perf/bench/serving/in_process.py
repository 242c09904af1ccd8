"""Latency without vLLM: transformers' `generate` in this process, with a streamer noting when each token
comes.

A streamer is given the tokens on the host, so that each of its times is after the device's work, and nothing
has to be synchronised here.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from flagscale_perf.bench.experiment import say
from flagscale_perf.bench.names import DURATION, LATENCY, MEMORY, THROUGHPUT, TOKENS, TPOT, TTFT
from flagscale_perf.bench.recording import Part
from flagscale_perf.bench.serving.cases import SEED, Case, Turn, case_of
from flagscale_perf.bench.serving.measure import GB, WARM_OUTPUT
from flagscale_perf.bench.serving.model import SMALL_NAME
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.spine.clock import NS_PER_S, monotonic_ns
from flagscale_perf.spine.errors import PerfError

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
    """Measures every turn. Raises PerfError if the model cannot be built here."""
    import torch

    torch.manual_seed(SEED)
    model = _model(torch, chosen)
    for case in {(turn.case.batch, turn.case.seq): turn.case for turn in order}.values():
        _generate(torch, model, Case(case.batch, case.seq, min(WARM_OUTPUT, case.output)))
    for number, turn in enumerate(order, 1):
        with part.timing() as clock:
            marks = _generate(torch, model, turn.case)
        _keep(part, turn, marks, clock)
        say(
            f"[{number}/{len(order)}] {turn.arm.name}: batch {turn.case.batch}, {turn.case.seq} +"
            f" {turn.case.output} tokens: {(marks[-1] - marks[0]) / 1e6:.1f} ms"
        )
    peak = torch.cuda.max_memory_allocated() / GB if model.device.type == "cuda" else None
    why = "" if peak is not None else "the process has other things in its memory: not known without a device"
    part.value(MEMORY, "GB", {"engine": ENGINE, "arm": "single", "tp": 1, "pp": 1}, peak,
               why or "torch's peak")  # fmt: skip


def _keep(part: Part, turn: Turn, marks: Sequence[int], clock: Any) -> None:
    """Writes the result; a batch counts as one request, as all its sequences begin and end together."""
    case, output, batch = (
        {**case_of(turn, ENGINE), "in_flight": turn.case.batch},
        turn.case.output,
        turn.case.batch,
    )
    first_s, last_s = ((mark - marks[0]) / NS_PER_S for mark in (marks[1], marks[-1]))
    part.point(TTFT, "s", case, [first_s], clock)
    if output > 1:
        part.point(TPOT, "s", case, [(last_s - first_s) / (output - 1)], clock)
    part.point(LATENCY, "s", case, [last_s], clock)
    part.point(DURATION, "s", case, [last_s], clock)
    part.point(THROUGHPUT, "tokens/s", case, [batch * output / last_s], clock)
    part.point(TOKENS, "tokens/s", case, [batch * turn.case.tokens / last_s], clock)


def _generate(torch: Any, model: Any, case: Case) -> list[int]:
    """Times of the start and of each token. Raises PerfError if the model stops early."""
    ids = torch.randint(0, model.config.vocab_size, (case.batch, case.seq), device=model.device)
    streamer = Streamer()
    start_ns = monotonic_ns()
    with torch.no_grad():
        model.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, streamer=streamer,
            max_new_tokens=case.output, min_new_tokens=case.output, eos_token_id=None, pad_token_id=0,
        )  # fmt: skip
    marks = streamer.marks_ns[1:]  # the first is the prompt
    if len(marks) != case.output:
        raise PerfError(f"generate made {len(marks)} tokens where {case.output} were asked for")
    return [start_ns, *marks]


def _model(torch: Any, chosen: Chosen) -> Any:
    try:
        transformers: Any = importlib.import_module("transformers")
    except ImportError as error:
        raise PerfError(
            f"transformers cannot be imported ({error}): pip install transformers, or give --vllm-python"
        ) from None
    device = "cuda" if torch.cuda.is_available() else "cpu"
    directory = chosen.model.directory
    try:
        if chosen.model.has_weights:
            made = transformers.AutoModelForCausalLM.from_pretrained(str(directory), local_files_only=True)
        else:
            made = transformers.AutoModelForCausalLM.from_config(_config(transformers, chosen))
    except (OSError, ValueError, KeyError) as error:
        first = str(error).strip().split("\n")[0]
        raise PerfError(f"--model {chosen.model.name}: no model can be made of it ({first})") from None
    return made.to(device).eval()


def _config(transformers: Any, chosen: Chosen) -> Any:
    if chosen.model.name == SMALL_NAME:
        known = {
            name: value
            for name, value in chosen.model.config.items()
            if name not in ("architectures", "model_type", "torch_dtype")
        }
        return transformers.Qwen3Config(**known, dtype="bfloat16")
    return transformers.AutoConfig.from_pretrained(str(chosen.model.directory), local_files_only=True)
