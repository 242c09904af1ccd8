"""A comparison as text and as Markdown. The words are the same; only the tables differ."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from flagscale_perf.analysis.compare.compare import Comparison, Figure, RunEntry
from flagscale_perf.analysis.compare.judge import SAME, UNKNOWN, WHOLE, Row
from flagscale_perf.report.markdown import escaped
from flagscale_perf.spine.units import UNKNOWN as NONE
from flagscale_perf.spine.units import number, printable
from flagscale_perf.training.analysis.basis import ITERATION

Cells = tuple[str, ...]
TIMES_HEAD: Cells = ("median", "BASE", "95 %", "NEW", "95 %", "change", "of BASE's iteration", "verdict")
FIGURES_HEAD: Cells = ("figure", "BASE", "NEW", "change")
DIFFERENCES_HEAD: Cells = ("differs", "BASE", "NEW")
RUNS_HEAD: Cells = ("side", "run", "median", "left out")
FIGURES = {  # label and decimals
    "mean": ("mean iteration, {unit}", 2),
    "p95": ("p95 iteration, {unit}", 2),
    "tokens_per_s": ("tokens/s", 0),
    "tokens_per_s_per_gpu": ("tokens/s/GPU", 0),
    "tflops_per_gpu": ("TFLOPS/GPU", 2),
    "memory_peak_gb": ("peak memory, GB", 2),
}


def render_text(result: Comparison) -> str:
    """Aligned text, newline at the end; no character in it can move a terminal's cursor."""
    parts = ["\n".join([title(result), *(f"  {line}" for line in sentences(result))])]
    parts += ["\n".join(_aligned(head, rows)) for head, rows in tables(result)]
    return "\n\n".join(parts) + "\n"


def render_markdown(result: Comparison) -> str:
    """For a comment on a change: the same in Markdown, texts from files escaped."""
    parts = [f"## {escaped(title(result))}", "\n".join(f"- {escaped(line)}" for line in sentences(result))]
    parts += ["\n".join(_piped(head, rows)) for head, rows in tables(result)]
    return "\n\n".join(parts) + "\n"


def render_json(result: Comparison) -> str:
    """Everything, for a program."""
    return json.dumps(result.as_dict(), indent=2, allow_nan=False) + "\n"


def title(result: Comparison) -> str:
    """The answer in one line."""
    whole = result.whole
    if whole.verdict == SAME:
        return f"NEW against BASE: {SAME} ({share(whole.share)}, less than noise)"
    named = f", above all in {result.culprits[0]}" if result.culprits else ""
    return f"NEW is {whole.verdict} than BASE by {share(_size(whole.share), sign=False)}{named}"


def sentences(result: Comparison) -> list[str]:
    """What the answer rests on, a line each."""
    whole = result.whole
    aligned = "the same iterations" if result.is_by_iteration else "the last iterations (none in common)"
    lines = [
        f"change {share(whole.share)}, 95 % interval {share(whole.share_low)} to {share(whole.share_high)}; a change of more than"
        f" {share(result.smallest_visible, sign=False)} would be more than noise",
        f"{result.iterations} iterations of each run, {aligned}, {result.first_iteration} to {result.last_iteration} in BASE;"
        f" bootstrap in blocks of {result.block_length}",
        f"noise between runs {share(result.noise, sign=False)} ({result.noise_source})",
    ]
    if result.basis != ITERATION:
        lines.append(
            f"the runs differ in model, batch or world size: times are {result.unit}, not ms per iteration"
        )
    if result.phases:
        lines.append("phases: all intervals together hold with 95 %")
    else:
        lines.append("no phases: not every run has them, train with --perf-breakdown")
    return lines + _gate(result)


def _gate(result: Comparison) -> list[str]:
    if result.fail_if_slower is None:
        return []
    limit = share(result.fail_if_slower, sign=False)
    if result.is_failed:
        return [f"FAILED: slower by more than noise and by more than {limit}"]
    if result.could_be_slower:
        return [f"passed, but the interval reaches beyond {limit}: more or longer runs would tell"]
    return [f"passed: not slower by more than {limit}"]


def tables(result: Comparison) -> list[tuple[Cells, list[Cells]]]:
    """Each with its head: times, figures, differences (if any), runs."""
    head = (f"median, {result.unit}", *TIMES_HEAD[1:])
    found = [
        (head, [_times(row) for row in [result.whole, *result.phases]]),
        (FIGURES_HEAD, _figures(result)),
    ]
    if result.differences:
        found.append(
            (DIFFERENCES_HEAD, [(one.name, value(one.base), value(one.new)) for one in result.differences])
        )
    return [*found, (RUNS_HEAD, [*_runs("BASE", result.base_runs), *_runs("NEW", result.new_runs)])]


def _times(row: Row) -> Cells:
    name = "whole iteration" if row.name == WHOLE else row.name
    interval = f"{share(row.share)} ({share(row.share_low)} to {share(row.share_high)})"
    return (
        *(name, time(row.base), f"{time(row.base_low)} to {time(row.base_high)}"),
        *(time(row.new), f"{time(row.new_low)} to {time(row.new_high)}", time(row.change, sign=True)),
        *(NONE if row.share is None else interval, NONE if row.verdict in (SAME, UNKNOWN) else row.verdict),
    )


def _figures(result: Comparison) -> list[Cells]:
    return [_figure(one, result.unit) for one in result.figures]


def _figure(one: Figure, unit: str) -> Cells:
    label, decimals = FIGURES[one.name]
    return label.format(unit=unit), number(one.base, decimals), number(one.new, decimals), share(one.change)


def _runs(name: str, runs: Sequence[RunEntry]) -> list[Cells]:
    rows: list[Cells] = []
    for run in runs:
        left_out = [f"{count} {reason}" for reason, count in run.left_out.items()]
        if run.skipped_lines:
            left_out.append(f"{run.skipped_lines} lines that are no records")
        rows.append((name, run.path, time(run.median), ", ".join(left_out) or "nothing"))
    return rows


def time(figure: float | None, sign: bool = False) -> str:
    """A time in the comparison's unit."""
    return ("+" if sign and figure is not None and figure > 0 else "") + number(figure, 2)


def share(part: float | None, sign: bool = True) -> str:
    """In percent."""
    return NONE if part is None else f"{100 * part:+.2f} %" if sign else f"{100 * part:.2f} %"


def value(fact: Any) -> str:
    """A fact or an option."""
    return NONE if fact is None else fact if isinstance(fact, str) else json.dumps(fact)


def _size(part: float | None) -> float | None:
    return None if part is None else abs(part)


def _aligned(head: Cells, rows: Sequence[Cells]) -> list[str]:
    cells = [tuple(map(printable, row)) for row in (head, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]


def _piped(head: Cells, rows: Sequence[Cells]) -> list[str]:
    rule = "| " + " | ".join("---" for _ in head) + " |"
    lines = ["| " + " | ".join(map(escaped, row)) + " |" for row in (head, *rows)]
    return [lines[0], rule, *lines[1:]]
