"""One screen of a run that is watched, as something `rich` can show on a terminal of any width."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from flagscale_perf.report.sparkline import sparkline, squeezed
from flagscale_perf.spine.clock import NS_PER_MS, NS_PER_S
from flagscale_perf.spine.figures import Rows
from flagscale_perf.spine.records import EventRecord
from flagscale_perf.spine.units import number, printable
from flagscale_perf.training.analysis.live import LiveRun
from flagscale_perf.training.analysis.summary import KILLED
from flagscale_perf.training.figures import TABLE
from flagscale_perf.training.phases import GROUPS, share, total_of
from flagscale_perf.training.ranks.records import StragglerRecord
from flagscale_perf.training.summary import RUNNING

NARROW, WIDE = 60, 100
REMARKS = 6
STRAGGLERS = 4
_SIZES = {
    "tensor_parallel": "TP",
    "pipeline_parallel": "PP",
    "data_parallel": "DP",
    "context_parallel": "CP",
    "expert_parallel": "EP",
}
_PHASE_FILLS = "█▓▒░█▓▒░"  # so that they can be told apart without colours, too
_PHASE_STYLES = ("cyan", "green", "blue", "yellow", "magenta", "red", "white", "bright_black")
_GOOD, _BAD, _WARN, _FAINT, _HEAD = "bold green", "bold red", "yellow", "bright_black", "bold"


@dataclass(frozen=True)
class Frame:
    """What is shown.

    Attributes:
        run: the session; None before its header is there.
        has_writer: somebody writes its file.
        now_wall_ns: Unix time.
        notes: about the file and how it is read, one line each.
    """

    run: LiveRun | None
    has_writer: bool
    now_wall_ns: int
    notes: tuple[str, ...] = ()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Asked by rich, which knows the width now."""
        width = options.max_width
        parts: list[RenderableType] = [Text("waiting for the first record of the run", style=_WARN)]
        if self.run is not None:
            parts = [
                *_title(self.run, self.has_writer),
                *_progress(self, self.run, width),
                *_figures(self.run, width),
            ]
            parts += [*_phases(self.run, width), *_ranks(self.run, width), *_remarks(self.run)]
        yield Group(*parts, *(Text(printable(note), style=_FAINT) for note in self.notes))


def _title(run: LiveRun, has_writer: bool) -> Iterator[Text]:
    facts, state = run.facts, run.state(has_writer)
    style = _GOOD if state in (RUNNING, "completed") else _BAD
    sizes = " ".join(
        f"{short}{size}" for name, short in _SIZES.items() if (size := getattr(facts, name)) is not None
    )
    yield Text.assemble(
        (printable(state).upper(), style), "  ", (f"session {printable(run.header.session_id)}", _HEAD)
    )
    if run.end is None and state == KILLED:
        yield Text(
            "no end was recorded and nobody writes the run file any more: trainer and writer were killed",
            style=_BAD,
        )
    known = (
        f"{facts.script} on {facts.hostname}",
        f"{facts.world_size} x {facts.device}",
        facts.dtype,
        sizes,
    )
    yield Text(printable(", ".join(str(each) for each in known if each)))


def _progress(frame: Frame, run: LiveRun, width: int) -> Iterator[Text]:
    done, target = run.iteration(), run.facts.train_iters
    line = Text(f"iteration {done}")
    if target is not None and target > 0:
        part = min(1.0, done / target)
        line.append(f" of {target}  ")
        cells = max(0, min(40, width - NARROW))
        line.append("━" * round(part * cells), style="green")
        line.append("━" * (cells - round(part * cells)), style=_FAINT)
        line.append(f"{'  ' if cells else ''}{part:.1%}")
    left_s = run.left_s()
    if run.state(frame.has_writer) == RUNNING:
        age_s = max(0, frame.now_wall_ns - run.last_wall_ns()) / NS_PER_S
        line.append(f"  last {duration(age_s)} ago")
        line.append(f"  left {duration(left_s)}" if left_s is not None else "")
    yield line


def duration(seconds: float) -> str:
    """`3.2 s`, `4 min 10 s`, `2 h 05 min`, `3 d 04 h`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest_s = divmod(int(seconds), 60)
    hours, rest_min = divmod(minutes, 60)
    days, rest_h = divmod(hours, 24)
    if days:
        return f"{days} d {rest_h:02} h"
    return f"{hours} h {rest_min:02} min" if hours else f"{minutes} min {rest_s:02} s"


def _figures(run: LiveRun, width: int) -> Iterator[RenderableType]:
    rows = Rows(TABLE, run.header)
    if not run.intervals:
        yield Text("no interval has ended yet", style=_FAINT)
        return
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style=_FAINT)
    table.add_column("last interval")
    table.add_column("now", justify="right", style=_HEAD)
    if width >= NARROW:
        for title in ("min", "max"):
            table.add_column(title, justify="right", style=_FAINT)
        table.add_column(
            f"{len(run.intervals)} intervals, to iteration {run.intervals[-1].iteration}",
            style="cyan",
            no_wrap=True,
        )
    for title, figure in TABLE.watched():
        values = rows.numbers(figure, run.intervals)
        known = [value for value in values if value is not None]
        if known:
            cells = [title, figure.unit.text(values[-1])]
            if width >= NARROW:
                cells += [
                    figure.unit.text(min(known)),
                    figure.unit.text(max(known)),
                    sparkline(values, width - NARROW + 16),
                ]
            table.add_row(*cells)
    yield table


def _phases(run: LiveRun, width: int) -> Iterator[Text]:
    """The mean iteration of the last interval as a bar, and its parts in percent."""
    last = run.intervals[-1] if run.intervals else None
    if last is None or last.phases_ns is None:
        return
    parts = [
        (title, share(total_of(last.phases_ns, names), last.iteration_ns)) for title, names in GROUPS.items()
    ]
    bar, legend = Text(), [Text()]
    for fill, style, (title, part) in zip(_PHASE_FILLS, _PHASE_STYLES, parts, strict=True):
        if part is not None and part > 0:
            bar.append(fill * round(part * min(width, WIDE)), style=style)
            entry = Text.assemble((f"{fill} ", style), f"{title} {part:.1%}  ")
            if len(legend[-1]) + len(entry) > width:
                legend.append(Text())
            legend[-1].append_text(entry)
    bar.truncate(width)
    yield bar
    yield from legend


def _ranks(run: LiveRun, width: int) -> Iterator[Text]:
    ranks = run.ranks
    if ranks is not None and (known := [work_ns for work_ns in ranks.work_ns if work_ns is not None]):
        line = Text(f"work of {len(ranks.work_ns) * ranks.ranks_per_entry} ranks  ")
        line.append(sparkline(squeezed(ranks.work_ns, width - 48), width - 48), style="cyan")
        yield line.append(f"  {number(min(known) / NS_PER_MS, 1)} to {number(max(known) / NS_PER_MS, 1)} ms")
        if ranks.silent_count:
            yield Text(f"silent: {ranks.silent_count} ranks, {_some(ranks.silent)}", style=_WARN)
    for straggler in list(run.slow.values())[-STRAGGLERS:]:
        yield _straggler(straggler)


def _straggler(slow: StragglerRecord) -> Text:
    cause = f", {slow.cause}" if slow.cause else ""
    excess = f"{slow.phase} {number(slow.excess_ns / NS_PER_MS, 1)} ms longer a step since iteration {slow.first_iteration}"
    text = f"slow: rank {_some(slow.ranks)} on {slow.hostname}, {excess}{cause}"
    return Text(printable(text), style=_WARN)


def _remarks(run: LiveRun) -> Iterator[Text]:
    for event in list(run.events)[-REMARKS:]:
        yield Text.assemble((f"{run.time_of(event):%H:%M:%S} ", _FAINT), _remark(event))


def _remark(event: EventRecord) -> tuple[str, str]:
    style = {"failure": _BAD, "note": "", "resume": "", "clock": ""}.get(event.name, _WARN)
    return printable(f"{event.name}: {event.text}"), style


def _some(ranks: list[int], limit: int = 8) -> str:
    return ", ".join(map(str, ranks[:limit])) + (" ..." if len(ranks) > limit else "")


def _percent(part: float | None) -> float | None:
    return None if part is None else part * 100


def _ms(dur_ns: int | None) -> float | None:
    return None if dur_ns is None else dur_ns / NS_PER_MS


def as_text(frame: Frame, width: int) -> str:
    """The frame without colours, as a file gets it."""
    console: Any = Console(
        width=width, color_system=None, force_terminal=False, legacy_windows=False, highlight=False
    )
    with console.capture() as captured:
        console.print(frame)
    text: str = captured.get()
    return "".join(line.rstrip() + "\n" for line in text.splitlines())
