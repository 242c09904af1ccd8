"""Reads the results of vLLM's `bench serve` from its JSON file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flagscale_perf.spine.errors import PerfError


@dataclass(frozen=True)
class Result:
    """One run of the bench; times in seconds, one value a request.

    Attributes:
        ttft: from sending a request until its first token came back; tpot: for each further token, on
            average. Both leave out requests whose tokens came in less than half as many pieces: the client
            was not there when the first one came.
        in_few_pieces: how many these are.
        latency: until the last token.
        duration_s: from the first request sent until the last one was done.
        prompt_tokens, output_tokens: of all requests.
    """

    ttft: list[float]
    tpot: list[float]
    in_few_pieces: int
    latency: list[float]
    duration_s: float
    prompt_tokens: int
    output_tokens: int

    @property
    def output_per_s(self) -> float:
        """Tokens generated per second."""
        return self.output_tokens / self.duration_s

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second, including those of the prompts."""
        return (self.prompt_tokens + self.output_tokens) / self.duration_s


def read_result(path: Path, requests: int, output: int) -> Result:
    """Raises PerfError for an invalid file, a failed request, or a request with another number of tokens than
    asked for: its times would mean something else.
    """
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        latencies, firsts, lengths = found["latencies"], found["ttfts"], found["output_lens"]
        itls = found["itls"]
        done, errors = found["completed"], [error for error in found["errors"] if error]
        duration_s, prompts = float(found["duration"]), int(found["total_input_tokens"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PerfError(f"{path}: vLLM's bench wrote no result that is known here ({error!r})") from None
    if done != requests:
        why = f": {errors[0].strip().splitlines()[-1]}" if errors else ""
        raise PerfError(f"{requests - done} of {requests} requests failed{why}")
    if any(length != output for length in lengths):
        raise PerfError(f"requests made {sorted(set(lengths))} tokens where {output} were asked for")
    told = [
        (first, last)
        for first, last, pieces in zip(firsts, latencies, itls, strict=True)
        if 2 * len(pieces) >= output - 1
    ]
    return Result(
        ttft=[float(first) for first, _ in told],
        tpot=[(last - first) / (output - 1) for first, last in told if output > 1],
        in_few_pieces=requests - len(told),
        latency=[float(last) for last in latencies],
        duration_s=duration_s,
        prompt_tokens=prompts,
        output_tokens=sum(lengths),
    )
