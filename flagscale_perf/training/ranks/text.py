"""What is the matter with ranks, in words."""

from __future__ import annotations

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.units import numbered, stretch
from flagscale_perf.training.rank_records import StragglerRecord


def straggler_text(straggler: StragglerRecord) -> str:
    """What was found when it was named, in one line."""
    steps = stretch("step", straggler.first_iteration, straggler.iteration)
    ranks, excess, phase = numbered("rank", straggler.ranks), _ms(straggler.excess_ns), straggler.phase
    if straggler.against == "stages":
        more = f"has {excess} more to do in each step than the other stages, most of it in {phase}"
        return f"{steps}: stage {straggler.stage} ({ranks}) {more}"
    slower = round(100 * straggler.excess_ns / max(straggler.iteration_ns - straggler.excess_ns, 1))
    one = len(straggler.ranks) == 1
    than = "before" if straggler.against == "past" else "its peers" if one else "their peers"
    cause = f", {straggler.cause}" if straggler.cause else ""
    who = f"{ranks} ({straggler.hostname}, {straggler.device})"
    longer = f"{'takes' if one else 'take'} {excess} longer in {phase} than {than}"
    return f"{steps} {slower} % slow: {who} {longer}{cause}"


def _ms(dur_ns: int) -> str:
    dur_ms = dur_ns / NS_PER_MS
    return f"{dur_ms:.0f} ms" if dur_ms >= 10 else f"{dur_ms:.1f} ms"
