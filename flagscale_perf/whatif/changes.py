"""The text form of changes: words such as `rank=3 forward*=peers m=16 pp=4 layers=6,6,6,4 p2p*=0.5`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from flagscale_perf.analysis.predictions import Change, Check
from flagscale_perf.spine.errors import PerfError, did_you_mean

PEERS, EQUAL, ASYNC = "peers", "equal", "async"
SELECTORS, PAUSES = ("rank", "stage"), ("checkpoint", "evaluation", "gc")
WORK, BATCHES, STAGES, CHUNKS, SCHEDULE, LAYERS, REPLICAS = "work", "m", "pp", "v", "schedule", "layers", "dp"
SCHEDULES = ("1f1b", "interleaved")
_WORD = re.compile(r"(?P<name>[A-Za-z0-9_*?\[\]-]*?)(?P<how>\*=|\+=|-=|=)(?P<value>.*)")
_TIME = re.compile(r"(?P<number>\d+(\.\d+)?|\.\d+)(?P<unit>ns|us|ms|s)")
_FACTOR = re.compile(r"\d+(\.\d+)?|\.\d+")
_PLACES = re.compile(r"(\d+(-\d+)?|[0-9*?\[\]-]+)(,(\d+(-\d+)?|[0-9*?\[\]-]+))*")
_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_TIMES = "a factor (NAME*=0.5), a time (NAME=20ms, NAME+=5ms), 0, or NAME=peers"
MOST_NS, MOST_TIMES = 86_400 * 10**9, 1_000_000  # of one part of a step


class _Known(NamedTuple):
    """What words may name: phases, what else is changed by a word of its own, pauses."""

    phases: Mapping[str, tuple[int, ...]]
    checks: Mapping[str, Check]
    pauses: Sequence[str]

    @property
    def others(self) -> list[str]:
        """All but phases."""
        return [*self.checks, *self.pauses]


def changes(
    words: Sequence[str], phases: Mapping[str, tuple[int, ...]], checks: Mapping[str, Check] | None = None
) -> list[Change]:
    """The changes that words mean. `rank=` and `stage=` choose whose durations the words behind them change,
    up to the next of these. Raises PerfError for a word that means nothing, and for one that is given twice.

    Args:
        checks: what else than durations is changed; None for that of a training.
    """
    known = _Known(phases, _CHECKS, PAUSES) if checks is None else _Known(phases, checks, ())
    found, chooser = list[Change](), _Chooser()
    for word in (part for each in words for part in each.split()):
        parsed = _WORD.fullmatch(word)
        if parsed is None or not parsed["value"]:
            raise PerfError(f"{word!r} is no change; write NAME=VALUE or NAME*=FACTOR, such as m=16")
        name, told = parsed["name"] or "*", (parsed["how"], parsed["value"])
        if name in SELECTORS:
            chooser.add(word, name, told)
        else:
            found.append(chooser.of(_change(word, name, told, known)))
    chooser.end()
    for change in found:
        is_once = change.kind != "A" or change.name in (checks or ())
        if is_once and sum(change.name == other.name for other in found) > 1:
            raise PerfError(f"{change.name}= is given twice; give it once")
    return found


class _Chooser:
    """The ranks and stages that words have chosen so far."""

    def __init__(self) -> None:
        self._where: dict[str, str] = {}
        self._is_used = True

    def add(self, word: str, name: str, told: tuple[str, str]) -> None:
        """One that chooses. Raises PerfError."""
        how, value = told
        if how != "=" or not _PLACES.fullmatch(value):
            raise PerfError(f"{word!r} chooses no {name}; write {name}=3, {name}=0-7,12 or {name}=*")
        self._where = {**({} if self._is_used else self._where), name: value}
        self._is_used = False

    def of(self, change: Change) -> Change:
        """The change with what is chosen, where it is about durations."""
        if change.kind != "A" or change.name in PAUSES:
            return change
        self._is_used = True
        return change._replace(where=self._text())

    def end(self) -> None:
        """Raises PerfError where the last ones chose for nothing."""
        if not self._is_used:
            raise PerfError(
                f"{self._text()} changes nothing; name what, such as {self._text()} forward=peers"
            )

    def _text(self) -> str:
        return " ".join(f"{name}={value}" for name, value in sorted(self._where.items()))


def _change(word: str, name: str, told: tuple[str, str], known: _Known) -> Change:
    how, value = told
    if (check := known.checks.get(name)) is not None:
        kind, allowed, right = check
        if how != "=" or (canonical := allowed(value)) is None:
            raise PerfError(f"{word!r}: {name} may be {right}")
        return Change(name, how, canonical, "", kind)
    if name in known.pauses:
        return Change(name, *_pause(word, name, told), "", "A")
    if not numbers_of(name, known.phases):
        near = did_you_mean(name, [*known.phases, *known.others, *SELECTORS])
        listed = near or f"; phases are {', '.join(sorted(known.phases))}; besides {', '.join(known.others)}"
        raise PerfError(f"{word!r}: {name!r} is nothing that can be changed{listed}")
    return Change(name, *_duration(word, told), "", "A")


def _duration(word: str, told: tuple[str, str]) -> tuple[str, str]:
    how, value = told
    if value == PEERS and how in ("=", "*="):
        return "=", value
    time, factor = _TIME.fullmatch(value), _FACTOR.fullmatch(value)
    if (time and time_ns(value) > MOST_NS) or (factor and float(value) > MOST_TIMES):
        raise PerfError(f"{word!r}: a part of a step lasts a day at most; write a shorter one")
    if how == "*=" and factor:
        return how, f"{float(value):g}"
    if (how == "=" and value == "0") or (how != "*=" and time):
        return how, value
    raise PerfError(f"{word!r}: a duration may be changed to {_TIMES}")


def _pause(word: str, name: str, told: tuple[str, str]) -> tuple[str, str]:
    how, value = told
    if (how == "=" and (value == "0" or (value, name) == (ASYNC, "checkpoint"))) or (
        how == "*=" and _FACTOR.fullmatch(value)
    ):
        return how, value
    also = "=async, " if name == "checkpoint" else ""
    raise PerfError(f"{word!r}: {name} may be {also}=0 or *=FACTOR")


def numbers_of(name: str, phases: Mapping[str, tuple[int, ...]]) -> list[int]:
    """The phases that a name means, wildcards included."""
    return sorted({number for each, own in phases.items() if fnmatchcase(each, name) for number in own})


def time_ns(value: str) -> int:
    """A time such as `20ms`, or `0`."""
    parsed = _TIME.fullmatch(value)
    return 0 if parsed is None else round(float(parsed["number"]) * _NS[parsed["unit"]])


def chosen(where: str, key: str, number: int) -> bool:
    """Whether this rank, or stage, is among those that a change is about."""
    patterns = dict(word.split("=") for word in where.split()).get(key, "*")
    return any(_is_in(pattern, number) for pattern in patterns.split(","))


def _is_in(pattern: str, number: int) -> bool:
    first, dash, last = pattern.partition("-")
    if dash and first.isdecimal() and last.isdecimal():
        return int(first) <= number <= int(last)
    return fnmatchcase(str(number), pattern)


def _count(value: str) -> str | None:
    return str(int(value)) if value.isdecimal() and int(value) else None


def _split(value: str) -> str | None:
    counts = [_count(each) for each in value.split(",")]
    return None if None in counts else ",".join(each for each in counts if each)


def _one_of(*words: str) -> Callable[[str], str | None]:
    return lambda value: value if value in words else None


_A_COUNT = "a whole number, 1 or more"
_CHECKS: Mapping[str, Check] = {
    WORK: ("A", _one_of(EQUAL), "=equal"),
    BATCHES: ("B", _count, _A_COUNT),
    STAGES: ("B", _count, _A_COUNT),
    CHUNKS: ("B", _count, _A_COUNT),
    REPLICAS: ("B", _count, _A_COUNT),
    SCHEDULE: ("B", _one_of(*SCHEDULES), " or ".join(SCHEDULES)),
    LAYERS: ("B", _split, "the layers of each stage, such as 6,6,6,4"),
    "recompute": ("C", _one_of("full", "selective", "none"), "full, selective or none"),
    "overlap": ("C", _one_of("on", "off"), "on or off"),
    "fp8": ("C", _one_of("on", "off"), "on or off"),
    **{name: ("C", _count, _A_COUNT) for name in ("mbs", "tp", "cp", "ep", "seq")},
}
