"""Parallel efficiency, and what communication takes, as a report, a picture and a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from flagscale_perf.analysis.blocks import (
    Block,
    Cell,
    Lane,
    Note,
    Quantity,
    Section,
    Stripe,
    Table,
    Waterfall,
)
from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.bench.analysis.efficiency import Gain, Step, gains_of, steps_of
from flagscale_perf.bench.analysis.served import MS, groups_of, memory_of, remarks_of
from flagscale_perf.bench.analysis.shown import Remark, Shown
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.names import DURATION, FLOW, JOB, TOKENS, TPOT, TTFT

LIMITS = {"TP": (0.75, 0.5), "PP": (0.6, 0.4)}
MAX_NOISE = 0.5  # of what is compared: repetitions that differ by more decide nothing
HEAD = ("arm", "what", "one device", "here", "beyond its share", "speed-up", "efficiency", "+-")
STEP_HEAD = (
    *("arm", "phase", "the client sees, ms", "step, ms", "profiled, ms", "in collectives, ms", "share"),
    *("waiting for ranks, ms", "transfer, ms"),
)
ABOUT = (
    "Efficiency is T1 / (p Tp): the time of one device over p times the time of p devices. A batch is a fixed"
    " job; in flow, more requests are in flight than a pipeline has stages."
)
ABOUT_STEPS = (
    "Steps of a mean rank in vLLM's own bench latency, one request at a time. Their profiles are in"
    " vllm/profile: flagscale-perf report, or compare one with the other, has all parts of a step."
    " They run eagerly, also where the servers compile."
)


def _sections(part: Part) -> Sequence[Section]:
    rows = [_row(gain, what, scale, unit) for gain, what, scale, unit in _all(part)]
    made = []
    if rows:
        blocks = [*_efficiency(part), Table(HEAD, rows, 7), Note(ABOUT), *_memory(part)]
        made.append(Section("parallelism", "Efficiency", "Parallel efficiency", blocks))
    if steps := steps_of(part):
        table = Table(STEP_HEAD, [_step_row(one) for one in steps], 7)
        blocks = [*_step_bars(steps), table, Note(ABOUT_STEPS)]
        made.append(Section("steps", "Steps", "What communication takes", blocks))
    return made


def _all(part: Part) -> list[tuple[Gain, str, float, str]]:
    """Every gain with its label and unit."""
    made = []
    for figure, job, is_rate, what, scale, unit in (
        (DURATION, JOB, False, "a batch", MS, "ms"),
        (TTFT, JOB, False, "first token", MS, "ms"),
        (TPOT, JOB, False, "each further token", MS, "ms"),
        (TOKENS, FLOW, True, "in flow", 1.0, "tokens/s"),
    ):
        gains = gains_of(groups_of(part, figure), job, is_rate)
        made += [(gain, f"{what}: {gain.setting.case}", scale, unit) for gain in gains]
    return sorted(made, key=lambda each: each[0].setting.devices)


def _row(gain: Gain, what: str, scale: float, unit: str) -> Sequence[Cell]:
    return (
        gain.setting.arm,
        what,
        Quantity(scale * gain.one, unit),
        Quantity(scale * gain.here, unit),
        Quantity(None if gain.lost is None else scale * gain.lost, unit),
        Quantity(gain.speedup, "", 2),
        Quantity(gain.efficiency, "share"),
        Quantity(gain.noise, "share"),
    )


def _memory(part: Part) -> list[Block]:
    memory = memory_of(part)
    rows: list[Sequence[Cell]] = [(arm, Quantity(value, "GB", 2)) for arm, value in memory.items()]
    return [Table(("arm", "memory of the server"), rows, 1)] if rows else []


def _step_row(one: Step) -> Sequence[Cell]:
    times = (one.seen, one.clean, one.total, one.communication)
    milliseconds = [Quantity(None if time is None else MS * time, "", 3) for time in times]
    split = [Quantity(None if time is None else MS * time, "", 3) for time in (one.waiting, one.transfer)]
    return one.arm, one.phase, *milliseconds, Quantity(one.share, "share"), *split


def _drawn(part: Part) -> Sequence[Block]:
    return [*_efficiency(part), *_step_bars(steps_of(part))]


def _efficiency(part: Part) -> list[Block]:
    lanes = [
        Lane(f"{gain.setting.arm}, {what}", 0.0, [Stripe("efficiency", 100 * gain.efficiency, None, "blue")])
        for gain, what, _, _ in _all(part)
    ]
    most = max([100.0, *(stripe.value or 0.0 for lane in lanes for stripe in lane.parts)])
    return [Waterfall("efficiency", "Parallel efficiency", "%", lanes, 1.05 * most)] if lanes else []


def _step_bars(steps: Sequence[Step]) -> list[Block]:
    """The profiled steps of each arm, one under the other."""
    if not steps:
        return []
    lanes = [Lane(f"{one.arm}, {one.phase}", 0.0, _stripes(one)) for one in steps]
    most = max(MS * one.total for one in steps)
    return [Waterfall("step-communication", "A profiled step", "ms", lanes, 1.05 * most or 1.0)]


def _stripes(one: Step) -> list[Stripe]:
    apart = one.waiting is not None and one.transfer is not None
    parts = (
        ("waiting for other ranks", one.waiting if apart else None, "red"),
        ("transfer", one.transfer if apart else None, "orange"),
        ("in collectives", None if apart else one.communication, "yellow"),
        ("everything else", one.total - one.communication, "blue"),
    )
    return [Stripe(name, MS * time, None, colour) for name, time, colour in parts if time and time > 0]


def _content(part: Part) -> Mapping[str, Any]:
    """Speed-ups and steps; times in seconds."""
    memory = memory_of(part)
    gains = [
        {
            "arm": gain.setting.arm,
            "tensor_parallel": gain.setting.tp,
            "pipeline_parallel": gain.setting.pp,
            "batch_size": gain.setting.batch,
            "sequence_length": gain.setting.seq,
            "output_length": gain.setting.output,
            "in_flight": gain.setting.in_flight,
            "what": what,
            "one_device": gain.one,
            "here": gain.here,
            "unit": "tokens/s" if unit == "tokens/s" else "s",
            "beyond_its_share": gain.lost,
            "speedup": gain.speedup,
            "efficiency": gain.efficiency,
            "noise_share": gain.noise,
            "memory_gb": memory.get(gain.setting.arm),
        }
        for gain, what, _, unit in _all(part)
    ]
    steps = [
        one._asdict() | {"communication": one.communication, "communication_share": one.share}
        for one in steps_of(part)
    ]
    return {"results": gains, "steps": steps}


def _verdicts(part: Part) -> Sequence[Verdict]:
    jobs = gains_of(groups_of(part, DURATION), JOB, is_rate=False)
    flows = gains_of(groups_of(part, TOKENS), FLOW, is_rate=True)
    return [
        _verdict(part, "TP", [gain for gain in jobs if gain.setting.tp > 1], "a fixed batch"),
        _verdict(part, "PP", [gain for gain in flows if gain.setting.pp > 1], "tokens/s, many in flight"),
    ]


def _verdict(part: Part, name: str, gains: Sequence[Gain], what: str) -> Verdict:
    shares = [gain.efficiency for gain in gains]
    if not shares:
        return verdict_of(f"{name} efficiency", None, "share", LIMITS[name], _why(part, name))
    remark = f"{what}; median of {len(shares)}, from {min(shares):.0%} to {max(shares):.0%}"
    noises = [gain.noise for gain in gains if gain.noise is not None]
    remark += f"; repetitions differ by +- {max(noises):.0%}" if noises else ""
    is_known = not noises or max(noises) < MAX_NOISE
    value = median(shares) if is_known else None
    why = "" if is_known else f"no verdict: {median(shares):.0%} is within what repetitions differ by; "
    return verdict_of(f"{name} efficiency", value, "share", LIMITS[name], why + remark)


def _why(part: Part, name: str) -> str:
    found = [one.why for one in part.values(DURATION) if str(one.case.get("arm", "")).startswith(name)]
    return found[0] if found else "no such arm was measured"


def _remarks(part: Part) -> Sequence[Remark]:
    return remarks_of(part)


SHOWN = Shown(
    "parallelism",
    "parallelism_overhead",
    "parallelism_analysis",
    _sections,
    _drawn,
    _content,
    _verdicts,
    _remarks,
)
