"""The requirement's thresholds, the verdict on each figure, and which side of the limit counts as met."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.verdicts import Verdict, verdict_of
from flagscale_perf.profile.analysis.roofline import Roofs
from flagscale_perf.profile.analysis.sums import PhaseSums
from flagscale_perf.profile.analysis.waits import Communication

GB = 1e9


def verdicts_of(sums: PhaseSums | None, roofs: Roofs, communication: Communication) -> Sequence[Verdict]:
    """A verdict for every threshold of the requirement, whether its figure is known or not."""
    total = sums.mean.total * sum(one.steps for one in sums.books.values()) if sums is not None else 0.0
    tensor = sum(one.total_ns for one in communication.waits if one.label == "TP")
    waiting = [one.waiting_share for one in communication.bubbles if one.waiting_share is not None]
    links = [
        one.busbw_gb_per_s
        for one in communication.waits
        if one.operation == "send_recv" and one.busbw_gb_per_s is not None
    ]
    copy = None if roofs.bytes_per_s is None else roofs.bytes_per_s / GB
    rows = (
        ("TP efficiency, at most", 1 - tensor / total if tensor and total else None, "share", 0.75, 0.5,
         "what TP collectives leave of the step; smaller matmuls are not in it: compare with TP 1",
         "no tensor-parallel collective was recorded"),
        ("PP efficiency, at most", 1 - max(waiting) if waiting else None, "share", 0.6, 0.4,
         "what waiting for other stages leaves of the step, on the one that waits most",
         "no pipeline was recorded"),
        ("P2P", max(links) if links else None, "GB/s", 200.0, 100.0,
         "the fastest messages between two ranks", "no message between two ranks was split"),
        ("memory bandwidth", copy, "GB/s", 1500.0, 1500.0,
         "a copy, read and written; the requirement has one limit", "the roof of a copy was not measured"),
        ("NVLink utilisation", None, "share", 0.5, 0.3, "", "a profile has no counters of links"),
    )  # fmt: skip
    return [
        verdict_of(name, value, unit, (excellent, improve), why if value is None else remark)
        for name, value, unit, excellent, improve, remark, why in rows
    ]
