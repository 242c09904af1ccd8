"""The report of a profile: what a step consists of, and what slows it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from flagscale_perf.analysis.blocks import REPORT_VERSION
from flagscale_perf.analysis.rules import Finding
from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.profile.analysis.observer import observers_of
from flagscale_perf.profile.analysis.roofline import Roofs, operators_of, points_of, roofs_of
from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.sums import Amount, Books, PhaseSums, sums_of
from flagscale_perf.profile.analysis.waits import Communication
from flagscale_perf.spine.facts import words_of
from flagscale_perf.spine.jsonl import finite

BASE = "the mean profiled step of its kind, over all ranks"


class ProfileReport:
    """The whole report of a profile.

    Attributes:
        profile: the content of the run files.
        sums: by kind of step, that with the most time first.
        observers: what profiling costs, by kind of step.
        roofs: the device's roofs.
        points: work placed below the roofs, by kind of step.
        communication: the collectives of all ranks, matched.
        verdicts: by the requirement's thresholds.
        metrics: results of the registered functions, by their names.
        findings: what holds the step back.
        unjudged: what could not be judged, and why.
    """

    def __init__(self, profile: Profile) -> None:
        """Without metrics and findings."""
        self.profile, self.sums, self.observers = profile, sums_of(profile), observers_of(profile)
        self.roofs = roofs = roofs_of(profile)
        self.points = {phase: points_of(one, roofs) for phase, one in self.sums.items()}
        self.communication = Communication(profile)
        self.verdicts = verdicts_of(self.main, roofs, self.communication)
        self.metrics: dict[str, Any] = {}
        self.findings: list[Finding] = []
        self.unjudged: list[str] = []

    @property
    def main(self) -> PhaseSums | None:
        """The kind of step that takes the most time; None without a profiled step."""
        return next(iter(self.sums.values()), None)

    @property
    def whole(self) -> Books | None:
        """The mean of all kinds of steps, as collectives are counted; None without a profiled step."""
        return Books.mixed([one.mean for one in self.sums.values()])

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to show."""
        return any(len(one.cells) for one in self.sums.values())

    def as_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data. Times in nanoseconds for one step, shares of `base`."""
        profile = self.profile
        content = {
            "report_version": REPORT_VERSION,
            "path": str(profile.session.path),
            "state": profile.session.state,
            "file_remarks": profile.session.reading.remarks,
            "base": BASE,
            "unit": "ns",
            "versions": words_of(profile.session.header.facts.get("versions")),
            "machines": list(profile.session.machines),
            "ranks": [
                {"title": rank.title} | dict(rank.place) | {"windows": list(rank.windows.records())}
                for rank in profile.ranks
            ],
            "steps": {phase: self._phase(phase) for phase in self.sums},
            "roofs": asdict(self.roofs),
            "communication": {
                "waits": [asdict(one) for one in self.communication.waits],
                "lates": [one._asdict() for one in self.communication.lates],
                "bubbles": [one._asdict() for one in self.communication.bubbles],
                "operations": len(self.communication.operations),
                "unsplit": self.communication.unsplit,
                "clocks": self.communication.clocks,
            },
            "verdicts": [asdict(one) for one in self.verdicts],
            "metrics": dict(self.metrics),
            "findings": [one.as_dict() | {"ranks": one.ranks} for one in self.findings],
            "not_judged": self.unjudged,
            "events": list(profile.session.course.events),
            "records_lost": profile.lost,
        }
        return dict(finite(content))

    def _phase(self, phase: str) -> dict[str, Any]:
        sums = self.sums[phase]
        names = [place.name for place in sums.places]
        return {
            "books": sums.mean.as_dict(),
            "books_by_rank": {sums.titles[rank]: books.as_dict() for rank, books in sums.books.items()},
            "residual": sums.mean.residual,
            "coverage": sums.mean.coverage,
            "observer": self.observers[phase].as_dict(),
            "kinds": _amounts(sums.by(lambda cell: cell.kind)),
            "parts": _amounts(sums.by(lambda cell: cell.phase)),
            "layers": {name: _amounts(sums.by_place(lambda cell: cell.kind, _at(name))) for name in names},
            "operators": _amounts(sums.by(lambda cell: cell.op or cell.kind)),
            "modules": _amounts(sums.by_place(lambda cell: cell.module)),
            "roofline": {point.label: asdict(point) for point in self.points[phase]},
            "operators_roofline": {op: asdict(point) for op, point in operators_of(sums, self.roofs).items()},
        }


def _at(name: str) -> Any:
    return lambda cell: cell.place.name == name


def _amounts(amounts: Mapping[str, Amount]) -> dict[str, Any]:
    return {
        name: {
            "self_ns": one.self_ns,
            "runs": one.runs,
            "flops": one.flops or None,
            "moved_bytes": one.moved_bytes or None,
        }
        for name, one in amounts.items()
    }


GB = 1e9
# Figure, unit, excellent above, improve below, where its value is from, why there is none.
THRESHOLDS = (
    (
        *("TP efficiency, at most", "share", 0.75, 0.5),
        "what TP collectives leave of the step; smaller matmuls are not in it: compare with TP 1",
        "no tensor-parallel collective was recorded",
    ),
    (
        *("PP efficiency, at most", "share", 0.6, 0.4),
        "what waiting for other stages leaves of the step, on the one that waits most",
        "no pipeline was recorded",
    ),
    (
        *("P2P", "GB/s", 200.0, 100.0),
        "the fastest messages between two ranks",
        "no message between two ranks was split",
    ),
    (
        *("memory bandwidth", "GB/s", 1500.0, 1500.0),
        "a copy, read and written; the requirement has one limit",
        "the roof of a copy was not measured",
    ),
    ("NVLink utilisation", "share", 0.5, 0.3, "", "a profile has no counters of links"),
)


def verdicts_of(sums: PhaseSums | None, roofs: Roofs, communication: Communication) -> Sequence[Verdict]:
    """A verdict for every threshold of the requirement, whether its figure is known or not."""
    waiting = [one.waiting_share for one in communication.bubbles if one.waiting_share is not None]
    messages = (one.busbw_gb_per_s for one in communication.waits if one.operation == "send_recv")
    values = (
        None if sums is None else _tensor_efficiency(sums, communication),
        1 - max(waiting) if waiting else None,
        max(filter(None, messages), default=None),
        None if roofs.bytes_per_s is None else roofs.bytes_per_s / GB,
        None,
    )
    return [
        verdict_of(name, value, unit, (excellent, improve), why if value is None else remark)
        for value, (name, unit, excellent, improve, remark, why) in zip(values, THRESHOLDS, strict=True)
    ]


def _tensor_efficiency(sums: PhaseSums, communication: Communication) -> float | None:
    total = sums.mean.total * sum(one.steps for one in sums.books.values())
    tensor = sum(one.total_ns for one in communication.waits if one.label == "TP")
    return 1 - tensor / total if tensor and total else None
