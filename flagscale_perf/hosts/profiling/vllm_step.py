"""What one step of vLLM is, read from its scheduler's output; needs no vLLM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PREFILL, DECODE, MIXED = "prefill", "decode", "mixed"


@dataclass(frozen=True)
class Work:
    """One step's.

    Attributes:
        phase: "prefill" where all requests read their prompts, "decode" where all of them make tokens,
            otherwise "mixed".
        requests: that have a part in it.
        tokens: of all of them.
        attended: pairs of a token of the step and one that its request has by the end of it, which is how
            torch counts attention; those that a mask or a window leaves out are among them.
    """

    phase: str
    requests: int
    tokens: int
    attended: int

    @classmethod
    def of(cls, scheduled: Any) -> Work | None:
        """None for a step without a token: vLLM has them to tell its workers what has ended."""
        tokens = int(scheduled.total_num_scheduled_tokens)
        if not tokens:
            return None
        prefills, requests = _prefills(scheduled), len(scheduled.num_scheduled_tokens)
        phase = MIXED if 0 < prefills < requests else PREFILL if prefills else DECODE
        return cls(phase, requests, tokens, _attended(scheduled))


def _attended(scheduled: Any) -> int:
    tokens, cached = scheduled.num_scheduled_tokens, scheduled.scheduled_cached_reqs
    before = {new.req_id: new.num_computed_tokens for new in scheduled.scheduled_new_reqs}
    before |= dict(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
    return sum(count * (before[name] + count) for name, count in tokens.items())


def _prefills(scheduled: Any) -> int:
    """How many requests read their prompt, or a part of it. One whose cache comes from elsewhere, up to its
    last token, decodes from its first step on; one that was preempted reads again what it has written.
    """
    cached, tokens = scheduled.scheduled_cached_reqs, scheduled.num_scheduled_tokens
    count = sum(
        not (new.num_computed_tokens and tokens[new.req_id] == 1) for new in scheduled.scheduled_new_reqs
    )
    made: list[int] = cached.num_output_tokens
    count += made.count(0)
    if cached.resumed_req_ids:
        count += sum(
            name in cached.resumed_req_ids and made[place] > 0 for place, name in enumerate(cached.req_ids)
        )
    return count
