"""Two trees of runs compared: the runs of one with those of the other, by configuration."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import stdev
from typing import Any

from flagscale_perf.analysis.blocks import Block, Cell, Interval, Note, Quantity, Report, Section, Table
from flagscale_perf.analysis.compare import student
from flagscale_perf.analysis.compare.blocks import report_of as report_of_one
from flagscale_perf.analysis.compare.compare import (
    COMPARISON_VERSION,
    NOT_SLOWER,
    CompareOptions,
    Comparison,
    Gate,
)
from flagscale_perf.analysis.compare.judge import CONFIDENCE, FASTER, SLOWER, UNDECIDED
from flagscale_perf.analysis.session import Session
from flagscale_perf.spine.averages import mean
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.jsonl import finite
from flagscale_perf.training.analysis import compare, settings
from flagscale_perf.training.analysis.basis import ITERATION
from flagscale_perf.training.analysis.ledgers import words
from flagscale_perf.training.facts import RunFacts

MIN_PAIRS = 3  # from which on they show by themselves how surely all of them changed
_MOST_NAMED = 6
_VERDICTS = {UNDECIDED: "-"}
_COUNTED = {SLOWER: "slower", FASTER: "faster", UNDECIDED: "without a difference shown"}
_TONES = {SLOWER: "bad", FASTER: "good"}


@dataclass(frozen=True)
class Pair:
    """A configuration that both trees have.

    Attributes:
        settings: keys in which configurations of one tree differ, and their values here.
        result: its runs compared; intervals of all pairs together hold with 95 %.
    """

    settings: Mapping[str, Any]
    result: Comparison

    @property
    def is_doubted(self) -> bool:
        """Whether something from outside may be all there is to its verdict."""
        return any(one.is_doubt for one in self.result.disturbed)

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON."""
        result = self.result
        return {
            "settings": dict(self.settings),
            "base_runs": [run.path for run in result.base_runs],
            "new_runs": [run.path for run in result.new_runs],
            "unit": result.unit,
            "whole": asdict(result.whole),
            "culprits": result.culprits,
            "is_doubted": self.is_doubted,
            "gate": None if result.gate is None else result.gate.outcome,
        }


@dataclass(frozen=True)
class Change:
    """The change of all pairs together: the mean of the logarithms of their ratios, and its interval at 95 %
    from how they scatter; None for what fewer than `MIN_PAIRS` do not show.
    """

    share: float
    low: float | None
    high: float | None

    @property
    def verdict(self) -> str:
        """`SLOWER`, `FASTER` or `UNDECIDED`."""
        if self.low is None or self.high is None:
            return UNDECIDED
        return SLOWER if self.low > 0 else FASTER if self.high < 0 else UNDECIDED


@dataclass(frozen=True)
class Pairs:
    """Two trees.

    Attributes:
        names: of the trees.
        pairs: the largest slowdown first.
        change: over the pairs that nothing from outside puts in doubt; of all, where it does all of them.
        differs: keys that are of one value in each tree, with both values.
        left_out: what has no counterpart or cannot be compared, a line each.
        gate: the answer to --fail-if-slower; None without it.
    """

    names: tuple[str, str]
    pairs: Sequence[Pair]
    change: Change
    differs: Sequence[tuple[str, Any, Any]]
    left_out: Sequence[str]
    gate: Gate | None

    def as_dict(self) -> dict[str, Any]:
        """As data ready for JSON."""
        content = {
            "comparison_version": COMPARISON_VERSION,
            "base": self.names[0],
            "new": self.names[1],
            "change": asdict(self.change) | {"verdict": self.change.verdict},
            "differences": [dict(zip(("name", "base", "new"), one, strict=True)) for one in self.differs],
            "pairs": [one.as_dict() for one in self.pairs],
            "left_out": list(self.left_out),
            "gate": None if self.gate is None else {"limit": self.gate.limit, "outcome": self.gate.outcome},
        }
        return dict(finite(content))


Member = tuple[Session, Mapping[str, Any]]
Values = tuple[str, ...]


def compare_trees(
    base: Sequence[Session], new: Sequence[Session], names: tuple[str, str], options: CompareOptions
) -> tuple[Report, Gate | None]:
    """The report of the runs of two trees, and the answer to --fail-if-slower. Raises PerfError where no
    configuration is in both.
    """
    sides = [[(one, _settings(one)) for one in side] for side in (base, new)]
    keys = _keys_within(sides)
    groups = [_grouped(side, keys) for side in sides]
    both = [values for values in groups[0] if values in groups[1]]
    if not both:
        raise _nothing_in_common(keys, sides, names)
    left_out = _unpaired(groups, names)
    pairs = _pairs([(groups[0][values], groups[1][values]) for values in both], keys, options, left_out)
    if len(pairs) == 1:
        alone, report = pairs[0].result, report_of_one(pairs[0].result)
        return replace(report, facts=[*report.facts, *map(Note, left_out)]), alone.gate
    change = _change([one for one in pairs if not one.is_doubted] or pairs)
    gate = _gate(pairs, change, options.fail_if_slower)
    found = Pairs(names, pairs, change, _between(sides, keys), left_out, gate)
    return report_of(found), gate


def _pairs(
    chosen: Sequence[tuple[Sequence[Member], Sequence[Member]]],
    keys: Sequence[str],
    options: CompareOptions,
    left_out: list[str],
) -> list[Pair]:
    """The configurations compared, the largest slowdown first; `left_out` is told of those that cannot be.
    Raises PerfError where none can.
    """
    pairs, own = list[Pair](), replace(options, tests=len(chosen))
    for base, new in chosen:
        try:
            result = compare.compare([one for one, _ in base], [one for one, _ in new], own)
        except PerfError as error:
            left_out.append(str(error))
            continue
        pairs.append(Pair({key: base[0][1].get(key) for key in keys}, result))
    if not pairs:
        raise PerfError(f"no pair of runs can be compared: {left_out[-1]}")
    return sorted(pairs, key=lambda one: -(one.result.whole.share or 0.0))


def _between(sides: Sequence[Sequence[Member]], keys: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """The keys that are of one value in each tree and differ."""
    everything = [own for side in sides for _, own in side]
    names = [name for name in settings.differing(everything) if name not in keys]
    base, new = (side[0][1] for side in sides)
    return [(name, base.get(name), new.get(name)) for name in names if not settings.is_seed(name)]


def _settings(session: Session) -> dict[str, Any]:
    return settings.settings_of(session.header, RunFacts.of(session.header.facts))


def _keys_within(sides: Sequence[Sequence[Member]]) -> list[str]:
    """Keys in which the configurations of a tree differ; seeds make none."""
    found = dict.fromkeys(name for side in sides for name in settings.differing([one for _, one in side]))
    return [name for name in found if not settings.is_seed(name)]


def _grouped(side: Sequence[Member], keys: Sequence[str]) -> dict[Values, list[Member]]:
    groups = defaultdict[Values, list[Member]](list)
    for session, own in side:
        groups[tuple(settings.shown(own.get(key)) for key in keys)].append((session, own))
    return dict(groups)


def _unpaired(groups: Sequence[Mapping[Values, Sequence[Member]]], names: tuple[str, str]) -> list[str]:
    lines = []
    for own, other, name in ((groups[0], groups[1], names[0]), (groups[1], groups[0], names[1])):
        alone = [side[0][0].path.parent for values, side in own.items() if values not in other]
        if alone:
            count = f"{len(alone):,} configuration{'s' * (len(alone) != 1)}"
            lines.append(f"in {name} alone: {count}, such as that of {alone[0]}")
    return lines


def _nothing_in_common(
    keys: Sequence[str], sides: Sequence[Sequence[Member]], names: tuple[str, str]
) -> PerfError:
    told = []
    for key in keys:
        there = [sorted({settings.shown(own.get(key)) for _, own in side}) for side in sides]
        if not set(there[0]) & set(there[1]):
            base, new = (", ".join(each[:_MOST_NAMED]) for each in there)
            told.append(f"{key} is {base} in {names[0]!r} and {new} in {names[1]!r}")
    why = "; ".join(told) or f"they differ in {', '.join(keys)}"
    return PerfError(
        f"no configuration is in both directories: {why}; name two runs, or directories further down"
    )


def _change(pairs: Sequence[Pair]) -> Change:
    logs = [math.log1p(one.result.whole.share or 0.0) for one in pairs]
    middle = mean(logs)
    if len(logs) < MIN_PAIRS:
        return Change(math.expm1(middle), None, None)
    reach = student.quantile((1 + CONFIDENCE) / 2, len(logs) - 1) * stdev(logs) / math.sqrt(len(logs))
    return Change(math.expm1(middle), math.expm1(middle - reach), math.expm1(middle + reach))


def _gate(pairs: Sequence[Pair], change: Change, limit: float | None) -> Gate | None:
    """`SLOWER` where all together are, or one configuration is by itself; `NOT_SLOWER` where all together are
    not, or each by itself. What is in doubt has no part in what they are together.
    """
    if limit is None:
        return None
    outcomes = {one.result.gate.outcome for one in pairs if one.result.gate is not None}
    is_known = sum(not one.is_doubted for one in pairs) >= MIN_PAIRS
    low, high = (change.low or 0.0, change.high or 0.0) if is_known else (0.0, limit)
    if SLOWER in outcomes or (low > 0 and change.share > limit):
        return Gate(limit, SLOWER)
    return Gate(limit, NOT_SLOWER if high < limit or outcomes == {NOT_SLOWER} else UNDECIDED)


def report_of(found: Pairs) -> Report:
    """The report, for every format."""
    doubted = sum(one.is_doubted for one in found.pairs)
    counts = Counter(one.result.whole.verdict for one in found.pairs)
    said = [
        "by themselves "
        + ", ".join(f"{counts[verdict]:,} {word}" for verdict, word in _COUNTED.items() if counts[verdict])
        + f" of {len(found.pairs):,}; all their intervals hold together with 95 %"
    ]
    if doubted:
        said.append(f"{doubted:,} of them were disturbed from outside and are left out of the mean")
    shown = [(name, settings.shown(base), settings.shown(new)) for name, base, new in found.differs]
    differs = Table(("differs", "BASE", "NEW"), shown)
    sections = [
        Section("pairs", "Configurations", "", [_table(found.pairs)]),
        Section("differences", "Differences", "What differs in all of them", [differs]),
        Section("alone", "Left out", "Left out", [Note(line) for line in found.left_out]),
    ]
    return Report(
        title=_title(found),
        tone=_TONES.get(found.change.verdict, ""),
        facts=[*_answer(found.gate), *_interval(found.change), *map(Note, said)],
        sections=[one for one in sections if one.blocks and (one.key != "differences" or shown)],
        content=found,
    )


def _title(found: Pairs) -> Cell:
    change, count = found.change, len(found.pairs)
    of = f"the mean of {count:,} configurations"
    if change.verdict == UNDECIDED:
        size = Quantity(change.share, "share", 2, is_change=True)
        return (f"Undecided whether NEW is slower than BASE in {of}: change ", size)
    size = Quantity(abs(change.share), "share", 2)
    named = Counter(one.result.culprits[0] for one in found.pairs if one.result.culprits).most_common(1)
    above = f", above all in {words(named[0][0])}" if named else ""
    return (f"NEW is {change.verdict} than BASE by ", size, f" in {of}{above}")


def _interval(change: Change) -> list[Note]:
    """Of the mean; none where it is not known."""
    if change.low is None:
        return []
    share, low, high = (Quantity(end, "share", 2, True) for end in (change.share, change.low, change.high))
    return [Note(("change ", share, ", 95 % interval ", low, " to ", high))]


def _answer(gate: Gate | None) -> list[Note]:
    if gate is None:
        return []
    tone = {SLOWER: "bad", NOT_SLOWER: "good"}.get(gate.outcome, "warn")
    limit = Quantity(gate.limit, "share", 2)
    answers: dict[str, Cell] = {
        SLOWER: ("SLOWER: all together or a configuration by itself, by more than noise and than ", limit),
        NOT_SLOWER: ("NOT SLOWER: the whole interval lies below ", limit),
    }
    return [Note(answers.get(gate.outcome, ("UNDECIDED: the interval reaches beyond ", limit)), tone)]


def _table(pairs: Sequence[Pair]) -> Block:
    keys = [*pairs[0].settings][: settings.MOST_KEYS]
    rows = [one.result.whole for one in pairs]
    reach = max(
        (abs(end) for row in rows for end in (row.share_low, row.share_high) if end is not None), default=0
    )
    named = [settings.HEADS.get(key, key) for key in keys]
    head = ("changed by", *named, "verdict", "above all in", "runs", "BASE", "NEW")
    return Table(
        head,
        [_row(one, keys, reach) for one in pairs],
        3,
        title=f"By the {pairs[0].result.judged} {ITERATION}",
        tones=[_TONES.get(row.verdict, "") for row in rows],
        notes=[_doubts(one) for one in pairs],
    )


def _row(one: Pair, keys: Sequence[str], reach: float) -> Sequence[Cell]:
    whole, culprits = one.result.whole, one.result.culprits
    share, low, high = (
        Quantity(end, "share", 2, True) for end in (whole.share, whole.share_low, whole.share_high)
    )
    return (
        Interval(share, low, high, reach),
        *(settings.shown(one.settings.get(key)) for key in keys),
        _VERDICTS.get(whole.verdict, whole.verdict),
        words(culprits[0]) if culprits else "-",
        f"{len(one.result.base_runs)} and {len(one.result.new_runs)}",
        Quantity(whole.base, one.result.unit, 2),
        Quantity(whole.new, one.result.unit, 2),
    )


def _doubts(one: Pair) -> Cell:
    doubts = [each.words for each in one.result.disturbed if each.is_doubt]
    return f"not comparable: {' and '.join(doubts)}" if doubts else None
