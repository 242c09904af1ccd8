"""A comparison as blocks, which every format shows."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Interval, Note, Quantity, Report, Section, Table
from flagscale_perf.analysis.compare.compare import (
    MEAN,
    MEDIAN,
    NOT_SLOWER,
    Comparison,
    Figure,
    Gate,
    RunEntry,
    Stretch,
)
from flagscale_perf.analysis.compare.judge import (
    FASTER,
    MAX_RUNS,
    MIN_RUNS,
    SLOWER,
    UNDECIDED,
    UNKNOWN,
    WHOLE,
    Needed,
    Row,
)

_JUDGED = {
    MEDIAN: "the median time of {}",
    MEAN: "the mean time of {}, in which slow ones count as in tokens/s",
}
_VERDICTS = {UNDECIDED: "-", UNKNOWN: "not on both sides"}
Words = tuple[str | Quantity, ...]


def report_of(result: Comparison) -> Report:
    """The report, for every format."""
    terms = result.terms
    said = _in_words(result)
    runs = [*_runs("BASE", said.base_runs), *_runs("NEW", said.new_runs)]
    figures = [_figure(one, *terms.labels[one.name], said.unit) for one in said.figures]
    differences = [(one.name, _fact(one.base), _fact(one.new)) for one in said.differences]
    doubts = [one.words for one in said.disturbed if one.is_doubt]
    sections = [
        Section("times", "Times", "", _times(said)),
        *said.charts,
        Section("figures", "Figures", "", [Table(("figure", "BASE", "NEW", "changed by"), figures, 3)]),
        Section("differences", "Differences", "", [Table(("differs", "BASE", "NEW"), differences)]),
        Section("runs", "Runs", "", [Table(("side", "run", said.judged, "left out"), runs)]),
    ]
    return Report(
        title=(*_title(said), *_disturbed(said, doubts)),
        tone="" if doubts or said.stretches else _tone(said.whole.verdict),
        facts=[*_gate(said, doubts), *map(Note, [*_sentences(said), *said.remarks])],
        sections=sections if differences else [one for one in sections if one.key != "differences"],
        content=result,
    )


def _in_words(result: Comparison) -> Comparison:
    """The same with the parts' names in words."""
    words = result.terms.words
    return replace(
        result,
        phases=[replace(row, name=words(row.name)) for row in result.phases],
        culprits=[*map(words, result.culprits)],
        large_parts=[replace(row, name=words(row.name)) for row in result.large_parts],
        stretches=[replace(one, culprits=[*map(words, one.culprits)]) for one in result.stretches],
    )


def _title(result: Comparison) -> Words:
    whole = result.whole
    if result.same_run is not None:
        return (f"A run is compared with itself: {result.same_run} is BASE and NEW",)
    if result.stretches:
        return ("NEW is ", *_by_stretch(result.stretches, result.terms.noun))
    if _is_open(result):
        found = ("change ", *_with_interval(whole))
        if result.gate is not None and result.gate.outcome == NOT_SLOWER:
            limit = Quantity(result.gate.limit, "share", 2)
            return ("NEW is not slower than BASE by more than ", limit, ": ", *found)
        return ("Undecided whether NEW is slower than BASE: ", *found)
    named = f", above all in {result.culprits[0]}" if result.culprits else ""
    return (f"NEW is {whole.verdict} than BASE by ", Quantity(abs(whole.share or 0.0), "share", 2), named)


def _by_stretch(stretches: Sequence[Stretch], noun: str) -> Words:
    """Such as `as BASE up to iteration 299, slower by 20.00 % from iteration 300 on`."""
    words: Words = ()
    largest = max(abs(one.whole.share or 0.0) for one in stretches if one.whole.verdict != UNDECIDED)
    for place, one in enumerate(stretches):
        row = one.whole
        is_close = max(abs(row.share_low or 0.0), abs(row.share_high or 0.0)) <= largest / 2
        change: Words = (f"{row.verdict} by ", Quantity(abs(row.share or 0.0), "share", 2))
        if row.verdict == UNDECIDED:
            change = ("as BASE" if is_close else "not shown to differ",)
        is_named = one.culprits and not (place and one.culprits[0] in stretches[place - 1].culprits[:1])
        named = f", above all in {one.culprits[0]}" if is_named else ""
        words += (*([", "] if place else []), *change, f"{_where(place, stretches, noun)}{named}")
    return words


def _where(place: int, stretches: Sequence[Stretch], noun: str) -> str:
    one = stretches[place]
    if place == 0:
        return f" up to {noun} {one.last}"
    if place == len(stretches) - 1:
        return f" from {noun} {one.first} on"
    return f" from {noun} {one.first} to {one.last}"


def _disturbed(result: Comparison, doubts: Sequence[str]) -> Words:
    """What the title says of disturbances: those that may be all there is, else all of them."""
    if not result.disturbed or result.same_run is not None:
        return ()
    said = " and ".join(one.words for one in result.disturbed)
    return (f", but {said}: not comparable" if doubts else f", though {said}",)


def _is_open(result: Comparison) -> bool:
    return result.whole.verdict == UNDECIDED and result.same_run is None and not result.stretches


def _sentences(result: Comparison) -> list[Cell]:
    whole, one = result.whole, result.terms.noun
    return [
        *([] if _is_open(result) else [("change ", *_with_interval(whole))]),
        *_by_the_mean(result),
        *_large_parts(result),
        *_undecided(result),
        *_shifts(result),
        *(
            (f"{one}s {part.first} to {part.last}: change ", *_with_interval(part.whole))
            for part in result.stretches
        ),
    ]


def _method(result: Comparison) -> list[Cell]:
    """How the figures were found."""
    one = result.terms.noun
    aligned = f"the same {one}s" if result.is_by_iteration else f"the last {one}s (none in common)"
    return [
        f"compared by {_JUDGED[result.judged].format(result.terms.a_noun)}",
        f"{result.iterations} {one}s of each run, {aligned}, {result.first_iteration} to"
        f" {result.last_iteration} in BASE; bootstrap in blocks of {result.block_length}",
        (
            "noise between runs ",
            Quantity(result.noise, "share", 2),
            f" ({result.noise_source})",
            *_spread(result),
        ),
        *result.terms.remarks,
    ]


def _spread(result: Comparison) -> list[str | Quantity]:
    found: list[str | Quantity] = []
    for side, runs in (("BASE", result.base_runs), ("NEW", result.new_runs)):
        if len(runs) > 1:
            ends = sorted(run.judged for run in runs)
            found += [f"; {side}'s runs ", _time(ends[0]), " to ", _time(ends[-1]), f" {result.unit}"]
    return found


def _undecided(result: Comparison) -> list[Cell]:
    """Cells that say why there is no verdict though these runs differ, and what would give one."""
    if result.needed is None:
        return []
    side = "slower" if (result.whole.share or 0.0) > 0 else "faster"
    apart = (
        f"every {result.terms.noun} of NEW is {side} than every one of BASE: these runs differ;"
        " that may be noise between runs"
    )
    gate = result.gate
    has_answer = gate is not None and gate.needed is not None
    decides = _needed(result.needed, "0", result)
    ways = [] if has_answer else [f"slower or faster: {decides}"]
    return [*([apart] if result.is_apart else []), *ways]


def _shifts(result: Comparison) -> list[Cell]:
    return [
        (
            f"{side} changed within itself: {result.judged} ",
            _time(run.shift.before),
            f" up to {result.terms.noun} {run.shift.last_before}, ",
            _time(run.shift.after),
            f" after it ({run.session_id})",
        )
        for side, runs in (("BASE", result.base_runs), ("NEW", result.new_runs))
        for run in runs
        if run.shift is not None
    ]


def _gate(result: Comparison, doubts: Sequence[str]) -> list[Note]:
    gate = result.gate
    if gate is None:
        return []
    limit = Quantity(gate.limit, "share", 2)
    if gate.outcome == SLOWER:
        where = f" from {result.terms.noun} {_slower(result).first} on" if result.stretches else ""
        return [Note((f"SLOWER{where}: by more than noise, and by more than ", limit), "bad")]
    if gate.outcome == NOT_SLOWER:
        every = "of every stretch " if result.stretches else ""
        passed = (f"NOT SLOWER: the whole interval {every}lies below ", limit)
        return [Note(passed, "good"), *_slow_steps(result, gate)]
    if result.same_run is not None:
        return [Note("UNDECIDED: a run compared with itself shows nothing; name two runs", "warn")]
    if doubts and gate.needed is None:
        return [Note(f"UNDECIDED: {' and '.join(doubts)}; run it again where nothing else runs", "warn")]
    if result.stretches:
        return [_undecided_stretch(result, gate)]
    decides = _needed(gate.needed, "the limit", result)
    words = ("UNDECIDED: the interval reaches beyond ", limit, f"; {decides}")
    return [Note(words, "warn"), *_slow_steps(result, gate)]


def _undecided_stretch(result: Comparison, gate: Gate) -> Note:
    """The first stretch whose interval reaches beyond the limit, and what would narrow it."""
    ends = ((one, one.whole.share_high) for one in result.stretches)
    wide = next(one for one, high in ends if high is None or high >= gate.limit)
    where = f"{result.terms.noun}s {wide.first} to {wide.last}"
    few = min(len(result.base_runs), len(result.new_runs)) < MIN_RUNS
    decides = f"; {MIN_RUNS if few else 'more'} runs a side would show the noise between runs better"
    limit = Quantity(gate.limit, "share", 2)
    return Note((f"UNDECIDED: the interval of {where} reaches beyond ", limit, decides), "warn")


def _slower(result: Comparison) -> Stretch:
    """The first stretch in which NEW is slower than the limit."""
    limit = result.gate.limit if result.gate else 0.0
    return next(
        one for one in result.stretches if one.whole.verdict == SLOWER and (one.whole.share or 0.0) > limit
    )


def _needed(needed: Needed | None, near: str, result: Comparison) -> str:
    ways = []
    if needed is not None and needed.iterations is not None:
        ways.append(
            f"about {needed.iterations:,} {result.terms.noun}s of each run instead of {result.iterations:,}"
        )
    if needed is not None and needed.runs is not None:
        ways.append(f"about {needed.runs} runs a side")
    if ways:
        return f"if the change is as large as it seems, {' or '.join(ways)} would decide it"
    few = min(len(result.base_runs), len(result.new_runs)) < MIN_RUNS
    by_runs = f"; {MIN_RUNS} runs a side, in turns on a quiet host, would show the true noise" if few else ""
    return f"with this noise not even {MAX_RUNS} runs a side would tell the change from {near}{by_runs}"


def _by_the_mean(result: Comparison) -> list[Cell]:
    """The change of the mean, and of rates, which follow it: half the time is twice the rate."""
    mean = result.mean
    shares = (mean.share, mean.share_high, mean.share_low)
    rate, low, high = (_change(_of_rate(share)) for share in shares)
    rates = ("rates change by ", rate, " (", low, " to ", high, ")")
    if result.judged == MEAN:
        return [rates]
    verdict = "no difference shown" if mean.verdict == UNDECIDED else mean.verdict
    return [("by the mean: ", *_with_interval(mean), f", {verdict}; ", *rates)]


def _of_rate(share: float | None) -> float | None:
    """The change of a rate whose time changed so; None where no time is left."""
    return None if share is None or share <= -1 else 1 / (1 + share) - 1


def _large_parts(result: Comparison) -> list[Cell]:
    named: list[str | Quantity] = []
    for row in result.large_parts:
        named += [f"{', ' if named else ''}{row.name} ", Quantity(row.change, "", 2, is_change=True)]
    return [("changed as well, each perhaps by chance: ", *named, f" {result.unit}")] if named else []


def _slow_steps(result: Comparison, gate: Gate) -> list[Note]:
    """Warns where a few slow steps make the mean slower than the median suggests."""
    if result.judged == MEAN or (result.mean.share or 0.0) <= gate.limit:
        return []
    words = ": slow ones count there, and --judge mean judges it"
    return [
        Note((f"but the mean {result.terms.noun} changed by ", _change(result.mean.share), words), "warn")
    ]


def _times(result: Comparison) -> list[Block]:
    """The whole, its parts by the size of their change; what a dash says, and how it was found. Intervals are
    drawn to one scale.
    """
    rows = (result.whole, *sorted(result.phases, key=_size, reverse=True))
    ends = [abs(end) for row in rows for end in (row.share_low, row.share_high) if end is not None]
    scale = (max(ends, default=0.0), None if result.gate is None else result.gate.limit)
    head = (
        f"{result.judged}, {result.unit}",
        f"of BASE's {result.terms.noun}",
        "verdict",
        "BASE",
        "NEW",
        "changed by",
        "BASE, 95 %",
        "NEW, 95 %",
    )
    table = Table(
        head,
        [_time_row(row, *scale, result.terms.noun) for row in rows],
        tones=[_tone(row.verdict) for row in rows],
    )
    is_any_open = any(row.verdict == UNDECIDED for row in rows)
    open_ = [f"verdict {_VERDICTS[UNDECIDED]}: no difference shown"] if is_any_open else []
    return [table, *map(Note, [*open_, *_method(result)])]


def _size(row: Row) -> float:
    """Of the change; one that is not known comes last."""
    return -1.0 if row.change is None else abs(row.change)


def _time_row(row: Row, reach: float, limit: float | None, noun: str) -> Sequence[Cell]:
    ends = _change(row.share), _change(row.share_low), _change(row.share_high)
    return (
        f"whole {noun}" if row.name == WHOLE else row.name,
        None if row.share is None else Interval(*ends, reach, limit if row.name == WHOLE else None),
        _VERDICTS.get(row.verdict, row.verdict),
        _time(row.base),
        _time(row.new),
        Quantity(row.change, "", 2, is_change=True),
        (_time(row.base_low), " to ", _time(row.base_high)),
        (_time(row.new_low), " to ", _time(row.new_high)),
    )


def _figure(one: Figure, label: str, decimals: int, unit: str) -> Sequence[Cell]:
    values = (Quantity(value, "", decimals) for value in (one.base, one.new))
    return (label.format(unit=unit), *values, _change(one.change))


def _runs(side: str, runs: Sequence[RunEntry]) -> list[Sequence[Cell]]:
    rows: list[Sequence[Cell]] = []
    for run in runs:
        left_out = [f"{count} {reason}" for reason, count in run.left_out.items()]
        if run.skipped_lines:
            left_out.append(f"{run.skipped_lines} lines that are no records")
        rows.append((side, run.path, _time(run.judged), ", ".join(left_out) or "nothing"))
    return rows


def _tone(verdict: str) -> str:
    return {SLOWER: "bad", FASTER: "good"}.get(verdict, "")


def _time(value: float | None) -> Quantity:
    return Quantity(value, "", 2)


def _with_interval(row: Row) -> tuple[str | Quantity, ...]:
    ends = _change(row.share_low), " to ", _change(row.share_high)
    return (_change(row.share), ", 95 % interval ", *ends)


def _change(share: float | None) -> Quantity:
    return Quantity(share, "share", 2, is_change=True)


def _fact(value: Any) -> Cell:
    return value if value is None or isinstance(value, str) else json.dumps(value)
