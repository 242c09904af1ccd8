"""Parallel efficiency as a report, a picture and a JSON file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


LIMITS = {"TP": (0.75, 0.5), "PP": (0.6, 0.4)}
MAX_NOISE = 0.5  # of what is compared: repetitions that differ by more decide nothing
HEAD = ("arm", "what", "one device", "here", "beyond its share", "speed-up", "efficiency", "+-")
ABOUT = (
    "Efficiency is T1 / (p Tp): the time of one device over p times the time of p devices. A batch is a fixed"
    " job; in flow, more requests are in flight than a pipeline has stages."
)


def _sections(part: Part) -> Sequence[Section]:
    rows = [_row(gain, what, scale, unit) for gain, what, scale, unit in _all(part)]
    if not rows:
        return []
    blocks = [*_drawn(part), Table(HEAD, rows, 7), Note(ABOUT), *_memory(part)]
    return [Section("parallelism", "Efficiency", "Parallel efficiency", blocks)]


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


def _drawn(part: Part) -> Sequence[Block]:
    lanes = [
        Lane(f"{gain.setting.arm}, {what}", 0.0, [Stripe("efficiency", 100 * gain.efficiency, None, "blue")])
        for gain, what, _, _ in _all(part)
    ]
    most = max([100.0, *(stripe.value or 0.0 for lane in lanes for stripe in lane.parts)])
    return [Waterfall("efficiency", "Parallel efficiency", "%", lanes, 1.05 * most)] if lanes else []


def _content(part: Part) -> Mapping[str, Any]:
    """Speed-ups; times in seconds."""
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
    return {"results": gains}


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
