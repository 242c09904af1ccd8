"""Points of a serving model, grouped by setting."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from flagscale_perf.analysis.blocks import Note
from flagscale_perf.bench.analysis.source import Part
from flagscale_perf.bench.names import DURATION, FEW_PIECES, JOB, MEMORY, PREEMPTIONS, SINGLE
from flagscale_perf.spine.averages import median, percentile

MS = 1e3
MAX_DRIFT = 0.05  # of an arm while the others ran: more is a warning
_NAMES = "arm", "tensor_parallel", "pipeline_parallel", "batch_size", "sequence_length", "output_length"


class Setting(NamedTuple):
    """The setting that all repetitions of a point share."""

    arm: str
    tp: int
    pp: int
    batch: int
    seq: int
    output: int
    in_flight: int
    job: str

    @property
    def devices(self) -> int:
        """Number of devices of the arm."""
        return self.tp * self.pp

    def as_dict(self) -> dict[str, Any]:
        """Arm and sizes by their names in the JSON files."""
        return dict(zip(_NAMES, self, strict=False))

    @property
    def case(self) -> str:
        """The sizes as text, without the arm."""
        return f"batch {self.batch}, {self.seq} + {self.output} tokens"


@dataclass
class Group:
    """One figure of one setting.

    Attributes:
        samples: of all requests; medians: of each repetition.
    """

    samples: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)

    @property
    def value(self) -> float:
        """The median of the repetitions."""
        return median(self.medians)

    @property
    def mean(self) -> float:
        """The mean over all requests."""
        return fmean(self.samples)

    @property
    def noise(self) -> float | None:
        """Half the range of the repetitions, as a share; None for one repetition."""
        if len(self.medians) < 2 or not self.value:
            return None
        return (max(self.medians) - min(self.medians)) / 2 / self.value

    def percentile(self, share: float) -> float:
        """Over all requests: the nearest sample from above."""
        return percentile(self.samples, share)


Groups = Mapping[Setting, Group]


def groups_of(part: Part, figure: str) -> Groups:
    """Groups by setting, sorted by size. Repetitions without a sample are left out."""
    made: dict[Setting, Group] = defaultdict(Group)
    for point in part.of(figure):
        case = point.case
        sizes = [int(case.get(name) or 0) for name in ("batch", "seq", "output", "in_flight")]
        ways = [int(case.get(name) or 1) for name in ("tp", "pp")]
        setting = Setting._make([str(case.get("arm", SINGLE)), *ways, *sizes, str(case.get("job", JOB))])
        made[setting].samples += point.samples
        made[setting].medians.append(median(point.samples))
    return dict(sorted(made.items(), key=lambda item: item[0][3:]))


def on_one_device(groups: Groups, setting: Setting) -> Group | None:
    """The same sizes and load on a single device."""
    return groups.get(setting._replace(arm=SINGLE, tp=1, pp=1))


def memory_of(part: Part) -> dict[str, float]:
    """GB by arm, where known."""
    return {
        str(one.case.get("arm", SINGLE)): one.value for one in part.values(MEMORY) if one.value is not None
    }


def drift_of(part: Part) -> list[float]:
    """By how much each size took longer, as a share, when its arm was measured again behind the others."""
    repeats = int(part.settings.get("repeats") or 0)
    return [
        median(medians[repeats:]) / median(medians[:repeats]) - 1
        for medians in (group.medians for group in groups_of(part, DURATION).values())
        if 0 < repeats < len(medians)
    ]


def remarks_of(part: Part) -> list[Note]:
    """Notes on what limits the figures."""
    said = [
        Note(
            f"{one.case.get('arm')}: vLLM preempted {one.value:.0f} requests: its cache was too small;"
            " times are those of a full cache; give fewer or shorter requests, or more memory",
            "bad",
        )
        for one in part.values(PREEMPTIONS)
        if one.value
    ]
    if changes := drift_of(part):
        said.append(
            Note(
                f"Measured again at the end, the single device takes {median(changes):+.1%} longer (median"
                f" over sizes, from {min(changes):+.1%} to {max(changes):+.1%}): by so much the machine"
                " drifted while the arms ran one after another. The +- includes it",
                "warn" if max(map(abs, changes)) > MAX_DRIFT else "",
            )
        )
    merged = sum(one.value or 0 for one in part.values(FEW_PIECES))
    if merged:
        said.append(
            Note(
                f"{merged:.0f} requests came back in few pieces: the client had no processor when they"
                " came. They count in latency, not in the first token's time and the further ones'",
                "warn",
            )
        )
    if part.settings.get("device") == "core":
        said.append(
            Note(
                "A rank is a core here. Server, engine and client share these"
                f" {part.settings.get('devices')} cores with the ranks: more ranks leave less for these",
                "warn",
            )
        )
    return said
