"""A report as one figure of several panels, for a slide, a chat or a ticket. Needs matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from flagscale_perf.analysis.report import Report
from flagscale_perf.report.sections import cost_of, known, percent, with_unit
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.units import number, printable
from flagscale_perf.training.phases import GROUPS

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito (2008): eight colours that stay apart for every kind of colour vision.
BLACK, ORANGE, SKY, GREEN, YELLOW, BLUE, RED, PINK = (
    "#000000",
    "#E69F00",
    "#56B4E9",
    "#009E73",
    "#F0E442",
    "#0072B2",
    "#D55E00",
    "#CC79A7",
)
_GROUP_COLOURS = dict(zip(GROUPS, (YELLOW, SKY, BLUE, RED, ORANGE, GREEN, "#999999", "#DDDDDD"), strict=True))
_CLASS_COLOURS = {
    "startup": ORANGE,
    "productive": GREEN,
    "evaluation": SKY,
    "checkpoint": BLUE,
    "data_stall": YELLOW,
    "lost": RED,
    "idle": "#BBBBBB",
}
_SIZE_INCH, _DPI = (16, 15), 100
_NAN = float("nan")
_LABEL_SHARE = 0.08  # of the goodput bar; narrower parts are named in the legend only
_SHOWN_FINDINGS = 5
_HEAT_MAP = "cividis"


def render(report: Report) -> bytes:
    """A PNG of 1600 x 1500 pixels. Raises PerfError without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        raise PerfError(
            "--format png needs matplotlib; pip install 'flagscale_perf[figures]', or take another format"
        ) from None
    figure = Figure(figsize=_SIZE_INCH, dpi=_DPI, facecolor="white")
    FigureCanvasAgg(figure)
    _draw(figure, report)
    file = io.BytesIO()
    figure.savefig(file, format="png", metadata={"Software": None})
    return file.getvalue()


def _draw(figure: Figure, report: Report) -> None:
    grid = figure.add_gridspec(
        5,
        2,
        height_ratios=[1.05, 2, 2, 2, 0.55],
        hspace=0.52,
        wspace=0.2,
        left=0.06,
        right=0.95,
        top=0.965,
        bottom=0.06,
    )
    head = figure.add_subplot(grid[0, :])
    _head(head, report)
    panels = [figure.add_subplot(grid[row, column]) for row in (1, 2, 3) for column in (0, 1)]
    for draw, axes in zip((_rates, _iterations, _phases, _ranks, _memory, _power), panels, strict=True):
        draw(axes, report)
    _goodput(figure.add_subplot(grid[4, :]), report)
    reading = report.reading
    if reading.skipped:
        reasons = "; ".join(
            f"line {line.number}: {printable(line.reason)}" for line in reading.first_skipped[:2]
        )
        figure.text(
            0.06,
            0.008,
            f"{reading.skipped} lines of the run file are no records: {reasons}",
            color=RED,
            parse_math=False,
        )


def _head(axes: Axes, report: Report) -> None:
    overview, figures = report.overview, report.figures
    axes.axis("off")
    sizes = ", ".join(f"{short} {size}" for short, size in overview.parallel.items())
    peak = "unknown" if overview.peak_tflops is None else f"{overview.peak_tflops:g} TFLOP/s"
    lines = [
        f"{known(overview.script)} on {known(overview.world_size)} x {known(overview.device)}, {known(overview.dtype)}, {sizes}; "
        f"{known(overview.host)}; {overview.started} to {overview.ended}, {overview.end_reason}",
        f"{number(figures.tflops_per_gpu, 1)} TFLOPS/GPU, MFU {percent(figures.mfu)}, HFU {percent(figures.hfu)} "
        f"({known(overview.flops_convention)}, peak {peak}); {number(figures.tokens_per_s, 0)} tokens/s; "
        f"iteration {with_unit(figures.iteration_ms, 1, 'ms')}",
    ]
    axes.text(
        0, 1.12, f"Run {printable(overview.session_id)}", size=17, weight="bold", va="top", parse_math=False
    )
    _lines(axes, lines, 0.86, "#444444")
    found = [
        f"{place}. {finding.title}  [{cost_of(finding)}]"
        for place, finding in enumerate(report.findings[:_SHOWN_FINDINGS], 1)
    ]
    more = [f"and {len(report.findings) - len(found)} more"] if len(report.findings) > len(found) else []
    _lines(axes, [*found, *more] or ["No findings: nothing broke a limit"], 0.48, RED if found else GREEN)


def _lines(axes: Axes, lines: Iterable[str], top: float, colour: str) -> None:
    text = "\n".join(textwrap.shorten(printable(line), 190, placeholder=" ...") for line in lines)
    axes.text(0, top, text, size=10.5, va="top", color=colour, linespacing=1.45, parse_math=False)


def _rates(axes: Axes, report: Report) -> None:
    _title(axes, "TFLOPS/GPU and MFU")
    points = [point for point in report.trend.points if not point.is_suspect and not point.is_warmup]
    if not points or all(point.tflops_per_gpu is None for point in points):
        return _empty(axes, "FLOPs are not known")
    x = [point.iteration for point in points]
    axes.plot(x, _known(point.tflops_per_gpu for point in points), color=BLUE, lw=1.3)
    _from_zero(axes, "TFLOPS/GPU")
    peak = report.overview.peak_tflops
    if peak:
        shares = axes.secondary_yaxis("right", functions=_scale(peak))
        shares.yaxis.set_major_formatter(lambda share, _: percent(share))


def _scale(peak: float) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """The same line read on another scale: TFLOPS/GPU as MFU, and back."""
    return lambda tflops: tflops / peak, lambda share: share * peak


def _iterations(axes: Axes, report: Report) -> None:
    trend = report.trend
    _title(axes, f"Iteration time, {trend.slow_step_count} slow steps")
    points = [point for point in trend.points if not point.is_warmup]
    if not points:
        return _empty(axes, "no interval is complete")
    x, middle = [point.iteration for point in points], _known(point.p50_ms for point in points)
    axes.fill_between(
        x, middle, _known(point.p95_ms for point in points), color=SKY, alpha=0.45, lw=0, label="p50 to p95"
    )
    axes.plot(x, middle, color=BLUE, lw=1.3, label="p50")
    axes.plot(x, _known(point.max_ms for point in points), color="#888888", lw=0.7, label="max")
    slow = trend.slow_steps
    axes.scatter(
        [step.iteration for step in slow],
        [step.iteration_ms for step in slow],
        s=22,
        marker="v",
        color=RED,
        label="slow",
        zorder=3,
    )
    _from_zero(axes, "ms")
    _legend(axes, axes.get_legend_handles_labels()[0])


def _phases(axes: Axes, report: Report) -> None:
    _title(axes, "Phases of a mean step")
    points = [
        (point.iteration, point.groups_ms)
        for point in report.trend.points
        if point.groups_ms is not None and not point.is_warmup
    ]
    if not points:
        return _empty(axes, "no phases: --perf-breakdown was off")
    series = [[groups[name] for _, groups in points] for name in GROUPS]
    axes.stackplot(
        [iteration for iteration, _ in points],
        series,
        labels=list(GROUPS),
        colors=list(_GROUP_COLOURS.values()),
        lw=0,
    )
    axes.set_ylabel("ms")
    axes.margins(x=0)
    _legend(axes, axes.get_legend_handles_labels()[0])


def _ranks(axes: Axes, report: Report) -> None:
    ranks = report.ranks
    _title(axes, "Ranks: work in a step, without waiting")
    if ranks is None:
        return _empty(axes, "the file tells of rank 0 only")
    from matplotlib.ticker import MaxNLocator

    rows = [
        [_NAN if value is None else value for value in column] for column in zip(*ranks.work_ms, strict=True)
    ]
    begins = [*(first for first, _ in ranks.stretches), ranks.stretches[-1][1]]  # stretches differ in length
    image = axes.pcolormesh(begins, [row - 0.5 for row in range(len(rows) + 1)], rows, cmap=_HEAT_MAP)
    axes.invert_yaxis()
    axes.set_ylabel("rank" if len(ranks.entries) == ranks.entries[-1].last_rank + 1 else "first rank")
    axes.yaxis.set_major_formatter(lambda place, _: _rank_label(report, place))
    axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=False)
    axes.figure.colorbar(image, ax=axes, pad=0.015, label="ms")
    for straggler in report.stragglers:
        places = [place for place, entry in enumerate(ranks.entries) if entry.first_rank in straggler.ranks]
        for place in places:
            span = [straggler.first_iteration, straggler.iteration]
            axes.fill_between(span, place - 0.5, place + 0.5, facecolor="none", edgecolor=RED, lw=1.8)


def _rank_label(report: Report, place: float) -> str:
    entries = report.ranks.entries if report.ranks else []
    return str(entries[int(place)].first_rank) if 0 <= place < len(entries) else ""


def _memory(axes: Axes, report: Report) -> None:
    memory, points = report.memory, report.trend.points
    _title(axes, f"Memory of rank 0's device: peak {with_unit(memory.peak_gb, 1, 'GB')}")
    if memory.peak_gb is None:
        return _empty(axes, "not read")
    x = [point.iteration for point in points]
    axes.plot(x, _known(point.memory_reserved_gb for point in points), color=SKY, lw=1.3, label="reserved")
    axes.plot(x, _known(point.memory_peak_gb for point in points), color=BLUE, lw=1.6, label="peak allocated")
    axes.plot(x, _known(point.memory_gb for point in points), color=GREEN, lw=1, ls=":", label="allocated")
    if memory.device_gb is not None:
        axes.axhline(memory.device_gb, color=RED, lw=1.3, ls="--", label="the device has")
    _from_zero(axes, "GB")
    axes.set_xlabel("iteration")
    _legend(axes, axes.get_legend_handles_labels()[0])


def _power(axes: Axes, report: Report) -> None:
    hardware, points = report.hardware, report.trend.points
    _title(
        axes,
        f"Power of rank 0's device: {with_unit(hardware.power_w, 0, 'W')}, {number(hardware.tokens_per_joule, 2)} tokens/J",
    )
    if all(point.power_w is None for point in points):
        return _empty(axes, "not read")
    x = [point.iteration for point in points]
    handles = axes.plot(x, _known(point.power_w for point in points), color=ORANGE, lw=1.3, label="power")
    _from_zero(axes, "W")
    axes.set_xlabel("iteration")
    if any(point.sm_clock_mhz is not None for point in points):
        clocks = axes.twinx()
        clocks.spines[["top"]].set_visible(False)
        handles += clocks.plot(
            x,
            _known(point.sm_clock_mhz for point in points),
            color=BLUE,
            lw=1,
            ls="--",
            label="lowest SM clock",
        )
        _from_zero(clocks, "MHz")
    _legend(axes, handles)


def _goodput(axes: Axes, report: Report) -> None:
    goodput, left = report.goodput, 0.0
    _title(axes, f"Where {with_unit(goodput.wall_s, 0, 's')} went: ETTR {number(goodput.ettr, 3)}")
    axes.spines[:].set_visible(False)
    axes.set_yticks([])
    for part in goodput.parts:
        if part.share:
            axes.barh(
                0,
                part.share,
                left=left,
                color=_CLASS_COLOURS[part.name],
                label=f"{part.label} {percent(part.share)}",
                ec="white",
            )
            if part.share > _LABEL_SHARE:
                axes.text(left, 0, f" {part.label}", va="center", size=10, clip_on=True)
            left += part.share
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(lambda share, _: percent(share))
    if left:
        axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.45), ncols=7, frameon=False)


def _title(axes: Axes, text: str) -> None:
    axes.set_title(text, loc="left", size=12, weight="bold", pad=23)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#E5E5E5", lw=0.8)
    axes.set_axisbelow(True)


def _from_zero(axes: Axes, unit: str) -> None:
    axes.axhline(0, lw=0)
    axes.margins(y=0.12)
    axes.set_ylim(bottom=0)
    axes.set_ylabel(unit)


def _legend(axes: Axes, handles: Sequence[Artist]) -> None:
    """In one line between the title and the panel."""
    axes.legend(
        handles=handles,
        loc="lower left",
        bbox_to_anchor=(-0.01, 0.99),
        ncols=8,
        frameon=False,
        fontsize=9,
        columnspacing=1.0,
        handlelength=1.3,
        handletextpad=0.4,
    )


def _empty(axes: Axes, reason: str) -> None:
    axes.set_xticks([])
    axes.set_yticks([])
    axes.text(0.5, 0.5, reason, ha="center", va="center", color="#888888", size=12, transform=axes.transAxes)


def _known(values: Iterable[float | None]) -> Sequence[float]:
    return [_NAN if value is None else value for value in values]
