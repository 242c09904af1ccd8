"""What several devices gain over one, and what they lose, computed from the points of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flagscale_perf.bench.analysis.served import Group, Groups, Setting, beside, groups_of
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.losses import TRANSFER, UNSPLIT, WAIT, Loss, Step, losses
from flagscale_perf.bench.names import (
    DECODE,
    DURATION,
    JOB,
    PREFILL,
    SINGLE,
    STEP,
    STEP_CLEAN,
    STEP_PART,
    TPOT,
    TTFT,
)  # fmt: skip

WHOLE = {PREFILL: TTFT, DECODE: TPOT}  # what the client sees of a phase


@dataclass(frozen=True)
class Gain:
    """One setting of one arm against a single device.

    Attributes:
        setting: of the arm.
        one, here: of the figure: seconds, or tokens a second.
        speedup: by so much it is faster; efficiency: of it, a device's.
        noise: of both sides' repetitions together, as a share; None where one has a single repetition.
        bound: of the efficiency, by the pipeline's filling; None without one.
    """

    setting: Setting
    one: float
    here: float
    speedup: float
    noise: float | None
    bound: float | None = None

    @property
    def efficiency(self) -> float:
        """T1 / (p Tp)."""
        return self.speedup / self.setting.devices


def filled(in_flight: int, stages: int) -> float:
    """m / (m + p - 1): the share of time in which a stage has work, with m pieces of work (`in_flight`) in a
    pipeline of p stages that begins and ends empty.
    """
    return in_flight / (in_flight + stages - 1)


def gains_of(groups: Groups, job: str, is_rate: bool) -> list[Gain]:
    """Each setting of every arm against those of a single device."""
    made = []
    for setting, group in groups.items():
        if setting.job != job or setting.arm == SINGLE:
            continue
        base = beside(groups, setting, SINGLE)
        if base is None or not base.value or not group.value:
            continue
        speedup = group.value / base.value if is_rate else base.value / group.value
        bound = filled(setting.in_flight, setting.pp) if setting.pp > 1 else None
        made.append(Gain(setting, base.value, group.value, speedup, _noise(base, group), bound))
    return made


def _noise(*groups: Group) -> float | None:
    known = [group.noise for group in groups]
    return None if None in known else sum(one or 0.0 for one in known)


def steps_of(part: Part) -> dict[tuple[str, str], Step]:
    """By arm and phase: the parts of a profiled step, and what the client sees."""
    made = {}
    for one in part.values(STEP):
        arm, phase = str(one.case.get("arm")), str(one.case.get("phase"))
        if one.value is None or phase not in WHOLE:
            continue
        at = {"arm": arm, "phase": phase}
        parts = {str(each.case["part"]): each.value or 0.0 for each in part.values(STEP_PART, **at)}
        clean = next((each.value for each in part.values(STEP_CLEAN, **at)), None)
        made[arm, phase] = Step(parts, one.value, clean, _whole(part, phase, one.case))
    return made


def _noise_of(part: Part, phase: str, arm: str, devices: int) -> float | None:
    spans = [
        None if group.noise is None else group.noise * group.value / share
        for name, share in ((SINGLE, devices), (arm, 1))
        for setting, group in groups_of(part, WHOLE[phase]).items()
        if (setting.arm, setting.batch, setting.in_flight, setting.job) == (name, 1, 1, JOB)
    ]
    known = [span for span in spans if span is not None]
    return sum(known) if known and len(known) == len(spans) else None


def _whole(part: Part, phase: str, case: Mapping[str, Any]) -> float | None:
    """What the client saw for the same size and arm, with one request at a time."""
    found = [
        group.value
        for setting, group in groups_of(part, WHOLE[phase]).items()
        if (setting.arm, setting.seq, setting.batch, setting.in_flight, setting.job)
        == (case.get("arm"), case.get("seq"), 1, 1, JOB)
    ]
    return found[0] if found else None


@dataclass(frozen=True)
class Lost:
    """What a phase of one arm loses.

    Attributes:
        devices: of the arm.
        parts: that add up to the loss.
        one, several: the step on one device, and on these.
        noise: that the loss has from the repetitions of what the client sees, in seconds; None where that is
            not known.
    """

    devices: int
    parts: Sequence[Loss]
    one: Step
    several: Step
    noise: float | None = None

    @property
    def total(self) -> float:
        """The loss in seconds."""
        return sum(each.lost for each in self.parts)

    @property
    def communication(self) -> float | None:
        """The share of communication in the profiled step."""
        spent = sum(self.several.parts.get(name, 0.0) for name in (WAIT, TRANSFER, UNSPLIT))
        return spent / self.several.total if self.several.total else None


def lost_of(part: Part) -> dict[tuple[str, str], Lost]:
    """The losses by arm and phase."""
    steps = steps_of(part)
    devices = {setting.arm: setting.devices for setting in groups_of(part, DURATION)}
    made = {}
    for (arm, phase), several in steps.items():
        one = steps.get((SINGLE, phase))
        if arm != SINGLE and one is not None and arm in devices:
            noise = _noise_of(part, phase, arm, devices[arm])
            made[arm, phase] = Lost(devices[arm], losses(one, several, devices[arm]), one, several, noise)
    return made
