"""The lines of the text log: the same in the log of the session, in the live log and on the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS, Anchor
from flagscale_perf.spine.records import EventRecord, RunEnd, RunHeader
from flagscale_perf.spine.session import Labels
from flagscale_perf.spine.units import UNKNOWN, number, printable
from flagscale_perf.training.phases import GROUPS, share, total_of
from flagscale_perf.training.rates import as_gb, mean_ms, rates_of
from flagscale_perf.training.records import IntervalRecord, Record
from flagscale_perf.training.utilisation import FLOP_PER_TFLOP, Scale

WARMUP_MARK = "warm-up"
SUSPECT_MARK = "!"
_RULE = 80


class Column(NamedTuple):
    """Title and width; a longer cell moves the rest to the right."""

    title: str
    width: int


_COLUMNS = (
    Column("Timestamp", 21),
    Column("Step", 9),
    Column("TFLOPS/GPU", 13),
    Column("TFLOPS", 11),
    Column("Samples/s", 13),
    Column("Tokens/s", 13),
    Column("Time(ms)", 11),
    Column("Memory(GB)", 12),
    Column("Peak(GB)", 10),
    Column("MFU(%)", 8),
    Column("HFU(%)", 8),
    Column("Skipped", 9),
)
_TIMES = (Column("Step(ms)", 11), Column("Device(ms)", 12), Column("Eval(ms)", 11), Column("Ckpt(ms)", 11))
_PHASES = tuple(Column(f"{title}(%)", len(title) + 5) for title in (*GROUPS, "Bubble"))
_BREAKDOWN = _TIMES + _PHASES


class TextFormat:
    """Turns records into lines for one session."""

    def __init__(self, header: RunHeader) -> None:
        self._header = header
        self._labels = Labels(header)
        self._anchor = Anchor(header.start_wall_ns, header.start_mono_ns)
        self._scale = Scale.of(header.facts)
        self._has_breakdown = bool(header.config.get("perf_breakdown"))
        self._columns = _COLUMNS + (_BREAKDOWN if self._has_breakdown else ())

    def heading(self) -> str:
        """What a log begins with, several lines."""
        started = self._time(self._header.start_wall_ns)
        titles = self._row([column.title for column in self._columns])
        basis = _basis(self._header.facts)
        return f"{'=' * _RULE}\nPerformance Monitor Session Started: {started}\n{'=' * _RULE}\n{titles}\n{'-' * _RULE}\n{basis}\n"

    def separator(self) -> str:
        """One line between an earlier session in the same file and this one."""
        resumed = self._header.facts.get("resume_iteration")
        return f"# session {self._header.session_id}" + (
            f", resumed after iteration {resumed}\n" if resumed else "\n"
        )

    def line(self, record: Record) -> str:
        """The record's line, newline included; "" for a record that is not shown."""
        if isinstance(record, IntervalRecord):
            return self._row(self._cells(record)) + "\n"
        if isinstance(record, EventRecord):
            return f"# {self._time(self._anchor.wall_of(record.at_ns))} {record.name}: {printable(record.text)}\n"
        if isinstance(record, RunEnd):
            lost = f", {record.dropped} records lost" if record.dropped else ""
            return f"# {self._time(record.end_wall_ns)} end: {printable(record.reason)} after iteration {record.last_iteration}{lost}\n"
        return ""

    def _cells(self, interval: IntervalRecord) -> list[str]:
        rates = rates_of(interval, self._scale)
        cells = [
            self._time(interval.end_wall_ns),
            str(interval.iteration),
            number(rates.tflops_per_gpu, 2),
            number(rates.tflops, 2),
            number(rates.samples_per_s, 1),
            number(rates.tokens_per_s, 0),
            number(rates.iteration_ms, 1),
            number(as_gb(interval.memory_bytes), 2),
            number(as_gb(interval.memory_peak_bytes), 2),
            *map(_percent, rates.utilisation),
            str(interval.skipped_iterations),
        ]
        if self._has_breakdown:
            cells += [
                number(mean_ms(interval.train_step_ns, interval.steps), 1),
                number(mean_ms(interval.device_ns, interval.steps), 1),
                number(interval.eval_ns / NS_PER_MS, 1),
                number(interval.checkpoint_ns / NS_PER_MS, 1),
                *_phase_cells(interval),
            ]
        return cells + [WARMUP_MARK] * interval.warmup_only

    def _row(self, cells: list[str]) -> str:
        widths = [column.width for column in self._columns] + [0]
        # The last character of a column is always a space, also where the cell is wider than it.
        return "".join(
            cell.ljust(width - 1) + " " for cell, width in zip(cells, widths, strict=False)
        ).rstrip()

    def _time(self, wall_ns: int) -> str:
        return self._labels.at(wall_ns).isoformat(sep=" ")


def _percent(share: float | None) -> str:
    if share is None:
        return UNKNOWN
    return number(share * 100, 1) + SUSPECT_MARK * (share > 1)


def _basis(facts: Mapping[str, Any]) -> str:
    """What TFLOPS, MFU and HFU count, and of which peak they are shares."""
    peak = Scale.of(facts).peak_flop_per_s
    figure = UNKNOWN if peak is None else f"{peak / FLOP_PER_TFLOP:g} TFLOP/s"
    text = f"FLOPs {facts.get('flops_convention')}, {facts.get('dtype') or UNKNOWN}; peak of a device {figure} ({facts.get('peak_source')})"
    return f"# {printable(text)}"


def _phase_cells(interval: IntervalRecord) -> list[str]:
    """Shares of the iteration in percent: the groups add up to 100, the bubble is a part of `Pipe`."""
    parts = [total_of(interval.phases_ns or {}, names) for names in GROUPS.values()]
    shares = [share(part, interval.iteration_ns) for part in (*parts, interval.bubble_ns)]
    return [number(None if each is None else each * 100, 1) for each in shares]
