"""The records of experiments: each measured point at once, so that an interrupted experiment keeps what it
has.

An experiment is a `BenchBegun`, its points and figures, and a `BenchEnded`; several may follow one another
in a run file.

A `case` is flat and says under which conditions: op, src, dst, ranks, size_bytes, batch, seq, tp, arm.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from flagscale_perf.spine.records import record

MAX_SAMPLES = 1024  # of a point: limit of a list in a run file


@record("bench_begin", start="at_ns")
@dataclass(frozen=True)
class BenchBegun:
    """An experiment begins.

    Attributes:
        experiment: its name.
        at_ns: monotonic mark.
        planned: points that it is going to measure; None where that is not known before.
        settings: how it measures, and on what.
    """

    experiment: str
    at_ns: int
    planned: int | None
    settings: dict[str, Any]


@record("bench_point", start="start_ns", duration="dur_ns")
@dataclass(frozen=True)
class BenchPoint:
    """One measured point.

    Attributes:
        experiment: which it belongs to.
        figure: what was measured: "time", "ttft" ...
        unit: of the samples: "s" for every time.
        case: under which conditions.
        start_ns, dur_ns: when it was measured, warm-up included.
        samples: one a repetition, in their order.
    """

    experiment: str
    figure: str
    unit: str
    case: dict[str, Any]
    start_ns: int
    dur_ns: int
    samples: list[float]


@record("bench_figure")
@dataclass(frozen=True)
class BenchFigure:
    """A figure from elsewhere (a driver, another run file), or one that could not be measured.

    Attributes:
        experiment, figure, unit, case: as of a point.
        value: None where it is not known.
        why: where the value is from, or why there is none.
    """

    experiment: str
    figure: str
    unit: str
    case: dict[str, Any]
    value: float | None
    why: str


@record("bench_end", start="at_ns")
@dataclass(frozen=True)
class BenchEnded:
    """An experiment has ended.

    Attributes:
        experiment: which.
        at_ns: monotonic mark.
        is_complete: everything was measured that was planned.
        reason: "completed", or why it is partial.
    """

    experiment: str
    at_ns: int
    is_complete: bool
    reason: str


Record: TypeAlias = BenchBegun | BenchPoint | BenchFigure | BenchEnded
