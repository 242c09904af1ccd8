"""What several devices gain over one, and the profiled steps of each arm, from an experiment's points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.bench.analysis.served import Group, Groups, Setting, groups_of, on_one_device
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.names import (
    DECODE,
    JOB,
    PREFILL,
    STEP,
    STEP_CLEAN,
    STEP_PART,
    TPOT,
    TRANSFER,
    TTFT,
    UNSPLIT,
    WAIT,
)

SEEN = {PREFILL: TTFT, DECODE: TPOT}  # what the client sees of a phase


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
        """T1 / (p Tp)."""
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
        """Of the profiled step, in collectives."""
        return self.communication / self.total if self.total else None


def steps_of(part: Part) -> list[Step]:
    """The profiled steps by phase, each arm's under those of one device."""
    made = []
    for one in part.values(STEP):
        arm, phase = str(one.case.get("arm")), str(one.case.get("phase"))
        if one.value is None or phase not in SEEN:
            continue
        at = {"arm": arm, "phase": phase}
        parts = {str(each.case.get("part")): each.value for each in part.values(STEP_PART, **at)}
        clean = next((each.value for each in part.values(STEP_CLEAN, **at)), None)
        seen = _seen(part, phase, arm, one.case.get("seq"))
        split = parts.get(WAIT), parts.get(TRANSFER)
        made.append(Step(arm, phase, seen, clean, one.value, *split, parts.get(UNSPLIT) or 0.0))
    return sorted(made, key=lambda step: step.phase, reverse=True)


def _seen(part: Part, phase: str, arm: str, seq: object) -> float | None:
    """What the client saw for the same size and arm, with one request at a time."""
    found = [
        group.value
        for setting, group in groups_of(part, SEEN[phase]).items()
        if (setting.arm, setting.seq, setting.batch, setting.job) == (arm, seq, 1, JOB)
    ]
    return found[0] if found else None
