"""Ranks, and what is the matter with them, in words."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.training.ranks.records import StragglerRecord

_MAX_RUNS = 8


def name_ranks(ranks: Sequence[int]) -> str:
    """`rank 3`, `ranks 0 to 7, 12`; of many runs of numbers the first ones and how many ranks are left
    out.
    """
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    text = ", ".join(_run(run) for run in runs[:_MAX_RUNS])
    left_out = sum(len(run) for run in runs[_MAX_RUNS:])
    return ("rank " if len(ranks) == 1 else "ranks ") + text + (f" and {left_out} more" if left_out else "")


def _run(run: Sequence[int]) -> str:
    if len(run) > 2:
        return f"{run[0]} to {run[-1]}"
    return ", ".join(map(str, run))


def name_steps(first: int, last: int) -> str:
    """`step 7`, `steps 41 to 55`."""
    return f"step {last}" if first == last else f"steps {first} to {last}"


def straggler_text(straggler: StragglerRecord) -> str:
    """What was found when it was named, in one line."""
    steps = name_steps(straggler.first_iteration, straggler.iteration)
    excess, phase = _ms(straggler.excess_ns), straggler.phase
    if straggler.against == "stages":
        who = f"stage {straggler.stage} ({name_ranks(straggler.ranks)})"
        return f"{steps}: {who} has {excess} more to do in each step than the other stages, most of it in {phase}"
    slower = round(100 * straggler.excess_ns / max(straggler.iteration_ns - straggler.excess_ns, 1))
    one = len(straggler.ranks) == 1
    than = "before" if straggler.against == "past" else "its peers" if one else "their peers"
    cause = f", {straggler.cause}" if straggler.cause else ""
    who = f"{name_ranks(straggler.ranks)} ({straggler.hostname}, {straggler.device})"
    return f"{steps} {slower} % slow: {who} {'takes' if one else 'take'} {excess} longer in {phase} than {than}{cause}"


def _ms(dur_ns: int) -> str:
    dur_ms = dur_ns / NS_PER_MS
    return f"{dur_ms:.0f} ms" if dur_ms >= 10 else f"{dur_ms:.1f} ms"
