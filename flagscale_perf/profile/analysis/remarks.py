"""What a reader must know before any figure: what is missing, and why the profile may be empty."""

from __future__ import annotations

from flagscale_perf.profile.analysis.report import ProfileReport

CURE = "`flagscale-perf doctor` says what can be profiled here"
_CURES = (
    ("another profiler", "end the other one (torch.profiler, vLLM's) before the window begins"),
    ("compiled", "profile without torch.compile once, or read the compiled regions as they are"),
    ("graph", "profile without CUDA graphs once (vLLM: enforce_eager=True)"),
    ("no module", "attach the profiler to the model that runs: in vLLM that lives in the worker processes"),
)  # fmt: skip


def remarks_of(found: ProfileReport) -> list[str]:
    """One sentence per remark, the one about an empty profile first."""
    profile = found.profile
    said = [] if found.has_rows else [_nothing(found)]
    world = max((rank.place.get("world_size") or 0 for rank in profile.ranks), default=0)
    if 0 < len(profile.ranks) < world:
        said.append(
            f"{len(profile.ranks)} of {world} ranks were profiled: waiting for the others is not explained"
        )
    dropped = sum(rank.windows.total("dropped_events") or 0 for rank in profile.ranks)
    if dropped:
        said.append(f"{dropped:,} events were more than a window may keep and are missing from the rows")
    if profile.lost:
        said.append(f"{profile.lost:,} records did not reach the run file: rows are missing")
    compiled = [rank.title for rank in profile.ranks if rank.place.get("mode") in ("compiled", "graphs")]
    if compiled:
        said.append(
            f"{', '.join(compiled)}: compiled code has no modules inside; its regions are rows of their own"
        )
    return said


def _nothing(found: ProfileReport) -> str:
    reasons = list(
        dict.fromkeys(
            str(reason) for rank in found.profile.ranks for reason in rank.windows["reason"] if reason
        )
    )
    if not found.profile.ranks:
        return f"0 rows: no process has joined the job; was the profiler on in it? {CURE}"
    if not any(len(rank.windows) for rank in found.profile.ranks):
        return (
            "0 rows: no window has ended; the run is not yet at the last step of --perf-profile-steps or"
            " ended before it; choose earlier steps"
        )
    said = "; ".join(reasons) or "the profiler saw no event"
    cure = next((cure for part, cure in _CURES if part in said), CURE)
    return f"0 rows: {said}; {cure}"
