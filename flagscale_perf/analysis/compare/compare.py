"""Two configurations side by side: is one slower than the other, by how much, in which phase, and is that
more than noise?

The method is in docs/comparing.md. Frozen data, JSON-ready by `as_dict`; None means "not known". Shares are
parts of 1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from flagscale_perf.analysis.blocks import Cell, Note, Quantity, Report, Section, Table
from flagscale_perf.analysis.compare.judge import FASTER, SAME, SLOWER, UNKNOWN, WHOLE, Row
from flagscale_perf.spine.jsonl import finite

COMPARISON_VERSION = 1
DEFAULT_WARMUP = 10


@dataclass(frozen=True)
class CompareOptions:
    """What to compare by.

    Attributes:
        warmup: iterations after a run's start that are left out.
        noise: standard deviation to assume between the medians of two runs of one configuration, as a share;
            None for what is usual.
        fail_if_slower: what NEW may be slower, as a share; None for no limit.
    """

    warmup: int = DEFAULT_WARMUP
    noise: float | None = None
    fail_if_slower: float | None = None


@dataclass(frozen=True)
class Difference:
    """A fact or an option in which the sides differ; `base` and `new` are JSON values."""

    name: str
    base: Any
    new: Any


@dataclass(frozen=True)
class RunEntry:
    """One run: its file, its median in `Comparison.unit`, how many iterations are left out by the reason, and
    lines that are no records.
    """

    path: str
    session_id: str
    median: float
    left_out: dict[str, int]
    skipped_lines: int


@dataclass(frozen=True)
class Figure:
    """A figure of each side, over the iterations compared of all its runs together; `change` as a part of
    `base`.

    "mean" and "p95" (of an iteration) are in `Comparison.unit`; "memory_peak_gb" is of the whole runs.
    """

    name: str
    base: float | None
    new: float | None
    change: float | None


@dataclass(frozen=True)
class Comparison:
    """Everything.

    Attributes:
        basis, unit: what the times are divided by, and what they are in then.
        iterations: of each run compared.
        first_iteration, last_iteration: of BASE's first run.
        is_by_iteration: iterations with the same number are compared; else the last ones of each run.
        base_runs, new_runs: at least one each.
        figures: those of `Figure`, always all of them.
        whole: the iteration; at 95 %.
        phases: at 95 % for all of them together; none if not every run measured them.
        culprits: phases that are slower, the worst first; none unless the whole is slower.
        noise, noise_source: standard deviation between the medians of two runs of one configuration, a share,
            and where it is from.
        block_length: iterations of a block of the bootstrap.
        smallest_visible: change of the whole that would just be more than noise.
        differences: facts and options in which the sides differ.
        fail_if_slower: as asked.
        is_failed: NEW is slower by more than noise and by more than `fail_if_slower`.
        could_be_slower: not failed, but the interval reaches beyond `fail_if_slower`.
    """

    basis: str
    unit: str
    iterations: int
    first_iteration: int
    last_iteration: int
    is_by_iteration: bool
    base_runs: list[RunEntry]
    new_runs: list[RunEntry]
    figures: list[Figure]
    whole: Row
    phases: list[Row]
    culprits: list[str]
    noise: float
    noise_source: str
    block_length: int
    smallest_visible: float
    differences: list[Difference]
    fail_if_slower: float | None
    is_failed: bool
    could_be_slower: bool

    def as_dict(self) -> dict[str, Any]:
        """JSON-ready; `comparison_version` first."""
        return {"comparison_version": COMPARISON_VERSION} | dict(finite(asdict(self)))


def gated(result: Comparison) -> Comparison:
    """With the answer to `fail_if_slower`."""
    limit, whole = result.fail_if_slower, result.whole
    if limit is None or whole.share is None or whole.share_high is None:
        return result
    is_failed = whole.verdict == SLOWER and whole.share > limit
    return replace(result, is_failed=is_failed, could_be_slower=not is_failed and whole.share_high > limit)


def culprits(whole: Row, parts: Sequence[Row]) -> list[str]:
    """Parts that are slower, the worst first; none unless the whole is slower."""
    if whole.verdict != SLOWER:
        return []
    slower = [row for row in parts if row.verdict == SLOWER]
    return [row.name for row in sorted(slower, key=lambda row: -(row.change or 0))]


def relative(base: float | None, new: float | None) -> float | None:
    """The change as a part of `base`."""
    return None if new is None or not base else new / base - 1


def report_of(result: Comparison, labels: Mapping[str, tuple[str, int]], remarks: Iterable[str]) -> Report:
    """What every format shows. `labels` names the figures and says how many decimals they have; `remarks`
    are sentences that the instrument adds.
    """
    tables = [
        Table(
            (
                f"median, {result.unit}",
                "BASE",
                "95 %",
                "NEW",
                "95 %",
                "change",
                "of BASE's iteration",
                "verdict",
            ),
            [_times(row) for row in (result.whole, *result.phases)],
            tones=[_tone(row.verdict) for row in (result.whole, *result.phases)],
        ),
        Table(
            ("figure", "BASE", "NEW", "change"),
            [_figure(one, *labels[one.name], result.unit) for one in result.figures],
            3,
        ),
        Table(
            ("differs", "BASE", "NEW"),
            [(one.name, _fact(one.base), _fact(one.new)) for one in result.differences],
        ),
        Table(
            ("side", "run", "median", "left out"),
            [*_runs("BASE", result.base_runs), *_runs("NEW", result.new_runs)],
        ),
    ]
    keys = ("times", "figures", "differences", "runs")
    return Report(
        title=_title(result),
        tone=_tone(result.whole.verdict),
        facts=[*map(Note, [*_sentences(result), *remarks]), *_gate(result)],
        sections=[
            Section(key, "", "", [table]) for key, table in zip(keys, tables, strict=True) if table.rows
        ],
        content=result,
    )


def _title(result: Comparison) -> Cell:
    """The answer in one line."""
    whole = result.whole
    if whole.verdict == SAME:
        return (f"NEW against BASE: {SAME} (", _change(whole.share), ", less than noise)")
    named = f", above all in {result.culprits[0]}" if result.culprits else ""
    return (f"NEW is {whole.verdict} than BASE by ", Quantity(abs(whole.share or 0.0), "share", 2), named)


def _sentences(result: Comparison) -> list[Cell]:
    """What the answer rests on."""
    whole = result.whole
    aligned = "the same iterations" if result.is_by_iteration else "the last iterations (none in common)"
    visible = Quantity(result.smallest_visible, "share", 2)
    return [
        ("change ", _change(whole.share), ", 95 % interval ", _change(whole.share_low), " to ",
         _change(whole.share_high),
         "; a change of more than ", visible, " would be more than noise"),
        f"{result.iterations} iterations of each run, {aligned}, {result.first_iteration} to"
        f" {result.last_iteration} in BASE; bootstrap in blocks of {result.block_length}",
        ("noise between runs ", Quantity(result.noise, "share", 2), f" ({result.noise_source})"),
    ]  # fmt: skip


def _gate(result: Comparison) -> list[Note]:
    if result.fail_if_slower is None:
        return []
    limit = Quantity(result.fail_if_slower, "share", 2)
    if result.is_failed:
        return [Note(("FAILED: slower by more than noise and by more than ", limit), "bad")]
    if result.could_be_slower:
        return [
            Note(("passed, but the interval reaches beyond ", limit, ": more or longer runs would decide it"))
        ]
    return [Note(("passed: not slower by more than ", limit), "good")]


def _times(row: Row) -> Sequence[Cell]:
    interval = (_change(row.share), " (", _change(row.share_low), " to ", _change(row.share_high), ")")
    return (
        "whole iteration" if row.name == WHOLE else row.name,
        _time(row.base), (_time(row.base_low), " to ", _time(row.base_high)),
        _time(row.new), (_time(row.new_low), " to ", _time(row.new_high)),
        Quantity(row.change, "", 2, is_change=True),
        None if row.share is None else interval,
        None if row.verdict in (SAME, UNKNOWN) else row.verdict,
    )  # fmt: skip


def _figure(one: Figure, label: str, decimals: int, unit: str) -> Sequence[Cell]:
    values = (Quantity(value, "", decimals) for value in (one.base, one.new))
    return (label.format(unit=unit), *values, _change(one.change))


def _runs(side: str, runs: Sequence[RunEntry]) -> list[Sequence[Cell]]:
    rows: list[Sequence[Cell]] = []
    for run in runs:
        left_out = [f"{count} {reason}" for reason, count in run.left_out.items()]
        if run.skipped_lines:
            left_out.append(f"{run.skipped_lines} lines that are no records")
        rows.append((side, run.path, _time(run.median), ", ".join(left_out) or "nothing"))
    return rows


def _tone(verdict: str) -> str:
    return {SLOWER: "bad", FASTER: "good"}.get(verdict, "")


def _time(value: float | None) -> Quantity:
    return Quantity(value, "", 2)


def _change(share: float | None) -> Quantity:
    return Quantity(share, "share", 2, is_change=True)


def _fact(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else json.dumps(value)
