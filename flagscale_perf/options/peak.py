"""The value of `--perf-peak-tflops`: one figure for all devices, or one for each type by name."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import NamedTuple

from flagscale_perf.spine.errors import PerfError

_LIMIT = 1e6
_EXAMPLE = "write for example 989.4, or A800=312,BI-V150=192"


class NamedPeak(NamedTuple):
    """One entry of the list: devices whose name contains `name`, in any case, reach `tflops` at best."""

    name: str
    tflops: float

    def __str__(self) -> str:
        return f"{self.name}={self.tflops:g}"


@dataclass(frozen=True)
class PeakOption:
    """Dense peaks in TFLOP/s as the user gave them.

    Attributes:
        every: the peak of every device; None where a list was given.
        named: the list; empty where one figure was given.
    """

    every: float | None
    named: tuple[NamedPeak, ...] = ()

    @classmethod
    def parse(cls, text: str) -> PeakOption:
        """`989.4` or `NAME=989.4,NAME=312`. Raises PerfError.

        A name that is part of another one with another peak is refused: a device that the longer one matches
        would match both.
        """
        if "=" not in text:
            return cls(_tflops(text, text))
        named = tuple(_entry(part, text) for part in text.split(","))
        for one, other in combinations(named, 2):
            names = one.name.lower(), other.name.lower()
            if one.tflops != other.tflops and (names[0] in names[1] or names[1] in names[0]):
                raise PerfError(
                    f"{text!r} gives two peaks to devices that {one} and {other} both match; write names of"
                    " which none is a part of another"
                )
        return cls(None, named)

    def tflops_of(self, device: str) -> float | None:
        """The peak for a device of this name; None if no entry matches. Raises PerfError if two disagree."""
        if self.every is not None:
            return self.every
        matches = [entry for entry in self.named if entry.name.lower() in device.lower()]
        if len({entry.tflops for entry in matches}) > 1:
            raise PerfError(
                f"{' and '.join(map(str, matches))} both match {device!r}; write names of which only one"
                " matches it"
            )
        return matches[0].tflops if matches else None


def _entry(part: str, text: str) -> NamedPeak:
    name, _, tflops = (word.strip() for word in part.partition("="))
    if not name or not name.isprintable():
        raise PerfError(f"{text!r} has a peak without a device's name; {_EXAMPLE}")
    return NamedPeak(name, _tflops(tflops, text))


def _tflops(word: str, text: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = 0.0
    if not 0 < number < _LIMIT:
        raise PerfError(
            f"{text!r} is neither a number of TFLOP/s above 0 and below 1000000 nor a list of NAME=TFLOPS;"
            f" {_EXAMPLE}"
        )
    return number
