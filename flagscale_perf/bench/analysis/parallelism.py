"""Parallel efficiency, and what communication takes, as a report, a picture and a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

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
from flagscale_perf.bench import names
from flagscale_perf.bench.analysis.served import (
    MS,
    Group,
    Groups,
    Setting,
    groups_of,
    memory_of,
    on_one_device,
    remarks_of,
)
from flagscale_perf.bench.analysis.shown import Shown
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.spine.averages import median

SEEN = {names.PREFILL: names.TTFT, names.DECODE: names.TPOT}  # what the client sees of a phase


@dataclass(frozen=True)
class Gain:
    """One setting of one arm against a single device.

    Attributes:
        setting: of the arm.
        one, here: of the figure: seconds, or tokens a second.
        lost: seconds beyond its share of `one`; None for a rate.
        speedup: by so much it is faster; efficiency: of it, a device's.
        noise: of both sides' repetitions together, as a share; None where one has a single repetition.
    """

    setting: Setting
    one: float
    here: float
    lost: float | None
    speedup: float
    noise: float | None

    @property
    def efficiency(self) -> float:
        """T1 / (p Tp) as a share; 1 where p devices are p times as fast as one."""
        return self.speedup / self.setting.devices


def gains_of(groups: Groups, job: str, is_rate: bool) -> list[Gain]:
    """Each setting of every arm against those of a single device."""
    made = []
    for setting, group in groups.items():
        base = on_one_device(groups, setting)
        if setting.job != job or base is None or base is group or not base.value or not group.value:
            continue
        speedup = group.value / base.value if is_rate else base.value / group.value
        lost = None if is_rate else group.value - base.value / setting.devices
        made.append(Gain(setting, base.value, group.value, lost, speedup, _noise(base, group)))
    return made


def _noise(*groups: Group) -> float | None:
    known = [group.noise for group in groups]
    return None if None in known else sum(one or 0.0 for one in known)


class Step(NamedTuple):
    """A profiled step of one arm and phase, in seconds.

    Attributes:
        seen: what a token, or a prompt, takes as the client of a server sees it; None where that was not
            measured.
        clean: of a step that is not profiled; None without one.
        total: of the profiled one.
        waiting, transfer: of that, in collectives; None where they are not told apart.
        unsplit: in collectives that are not split.
    """

    arm: str
    phase: str
    seen: float | None
    clean: float | None
    total: float
    waiting: float | None
    transfer: float | None
    unsplit: float

    @property
    def communication(self) -> float:
        """Seconds in collectives."""
        return (self.waiting or 0.0) + (self.transfer or 0.0) + self.unsplit

    @property
    def share(self) -> float | None:
        """Share of the profiled step in collectives."""
        return self.communication / self.total if self.total else None


def steps_of(part: Part) -> list[Step]:
    """The profiled steps by phase, each arm's under those of one device."""
    made = []
    for one in part.values(names.STEP):
        arm, phase = str(one.case.get("arm")), str(one.case.get("phase"))
        if one.value is None or phase not in SEEN:
            continue
        at = {"arm": arm, "phase": phase}
        parts = {str(each.case.get("part")): each.value for each in part.values(names.STEP_PART, **at)}
        clean = next((each.value for each in part.values(names.STEP_CLEAN, **at)), None)
        seen = _seen(part, phase, arm, one.case.get("seq"))
        split = parts.get(names.WAIT), parts.get(names.TRANSFER)
        made.append(Step(arm, phase, seen, clean, one.value, *split, parts.get(names.UNSPLIT) or 0.0))
    return sorted(made, key=lambda step: step.phase, reverse=True)


def _seen(part: Part, phase: str, arm: str, seq: object) -> float | None:
    """The client's time for the same size and arm, with one request at a time."""
    found = [
        group.value
        for setting, group in groups_of(part, SEEN[phase]).items()
        if (setting.arm, setting.seq, setting.batch, setting.job) == (arm, seq, 1, names.JOB)
    ]
    return found[0] if found else None


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
    made = []
    for figure, job, is_rate, what, scale, unit in (
        (names.DURATION, names.JOB, False, "a batch", MS, "ms"),
        (names.TTFT, names.JOB, False, "first token", MS, "ms"),
        (names.TPOT, names.JOB, False, "each further token", MS, "ms"),
        (names.TOKENS, names.FLOW, True, "in flow", 1.0, "tokens/s"),
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
    times = (one.seen, one.clean, one.total, one.communication, one.waiting, one.transfer)
    milliseconds = [Quantity(None if time is None else MS * time, "", 3) for time in times]
    return one.arm, one.phase, *milliseconds[:4], Quantity(one.share, "share"), *milliseconds[4:]


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
        gain.setting.as_dict()
        | {
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
    jobs = gains_of(groups_of(part, names.DURATION), names.JOB, is_rate=False)
    flows = gains_of(groups_of(part, names.TOKENS), names.FLOW, is_rate=True)
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
    found = [one.why for one in part.values(names.DURATION) if str(one.case.get("arm", "")).startswith(name)]
    return found[0] if found else "no such arm was measured"


SHOWN = Shown("parallelism", "parallelism_overhead", _sections, _drawn, _content, remarks_of, _verdicts)
