"""Delays that are planted on purpose, as a user writes them, and which step has which one."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError

EXAMPLE = "write for example 1:decoder.layers.0,0:decoder.layers.2,ms=5/10/20"
DEFAULT_MS, DEFAULT_ROUNDS = "5/10/20", 10
MOST_PLACES, MOST_SIZES, MOST_ROUNDS, MOST_MS = 16, 8, 1000, 10_000
_PLACE = re.compile(r"(\d+)(?::([^:]*)(?::(.+))?)?")
_MS = re.compile(r"\d+(\.\d+)?")


@dataclass(frozen=True)
class Place:
    """Where a delay is planted.

    Attributes:
        rank: that is delayed.
        module: path of a module, before each forward pass of which the delay is; "": the whole model.
        op: an operator, such as "aten::mm", before each run of which it is, in that module's forward pass or,
            where none is named, anywhere in the step; "": none.
    """

    rank: int
    module: str = ""
    op: str = ""

    def __str__(self) -> str:
        return ":".join([str(self.rank), self.module, self.op]).rstrip(":")


@dataclass(frozen=True)
class Arm:
    """What is done with a step: a delay of this size at this place; at none, so that it is left as it is.

    Attributes:
        is_second: of two arms that are both left as they are, to see how much such steps differ anyway.
    """

    place: Place | None = None
    delay_ns: int = 0
    is_second: bool = False


@dataclass(frozen=True)
class Delays:
    """An experiment. In each round, every place has every size once, and two steps have none, in an order
    that is shuffled, differs from round to round, and is the same for all who parse the same text.
    """

    places: tuple[Place, ...]
    sizes_ns: tuple[int, ...]
    rounds: int = DEFAULT_ROUNDS

    @classmethod
    def parse(cls, text: str) -> Delays:
        """`RANK[:MODULE[:OP]],...[,ms=5/10/20][,rounds=10]`. Raises PerfError."""
        places, given = [], {"ms": DEFAULT_MS, "rounds": str(DEFAULT_ROUNDS)}
        for part in text.split(","):
            name, is_given, value = part.strip().partition("=")
            match = _PLACE.fullmatch(part.strip())
            if is_given and name in given:
                given[name] = value
            elif match is not None:
                places.append(Place(int(match[1]), match[2] or "", match[3] or ""))
            else:
                raise PerfError(
                    f"{text!r}: {part!r} is not a place RANK, RANK:MODULE or RANK:MODULE:OPERATOR,"
                    " nor ms=... or"
                    f" rounds=...; {EXAMPLE}"
                )
        if not places or len(set(places)) < len(places) or len(places) > MOST_PLACES:
            raise PerfError(f"{text!r} must name 1 to {MOST_PLACES} places, each once; {EXAMPLE}")
        return cls(tuple(places), _sizes(text, given["ms"]), _rounds(text, given["rounds"]))

    def __str__(self) -> str:
        sizes = "/".join(f"{size / NS_PER_MS:g}" for size in self.sizes_ns)
        return ",".join([*map(str, self.places), f"ms={sizes}", f"rounds={self.rounds}"])

    @property
    def arms(self) -> tuple[Arm, ...]:
        """The steps of a round, not yet shuffled."""
        delayed = [Arm(place, size) for place in self.places for size in self.sizes_ns]
        return (Arm(), Arm(is_second=True), *delayed)

    @property
    def length(self) -> int:
        """Steps of all rounds."""
        return self.rounds * len(self.arms)

    def arm(self, position: int) -> Arm:
        """Of the step at this place of the experiment, from 0."""
        number, place = divmod(position, len(self.arms))
        order = list(self.arms)
        random.Random(f"{self}/{number}").shuffle(order)
        return order[place]


def _sizes(text: str, sizes: str) -> tuple[int, ...]:
    parts = sizes.split("/")
    if (
        len(set(parts)) > MOST_SIZES
        or not all(map(_MS.fullmatch, parts))
        or not all(0 < float(part) <= MOST_MS for part in parts)
    ):
        raise PerfError(
            f"{text!r}: ms={sizes} is not 1 to {MOST_SIZES} times above 0 and up to {MOST_MS} ms; {EXAMPLE}"
        )
    return tuple(sorted({round(float(part) * NS_PER_MS) for part in parts}))


def _rounds(text: str, rounds: str) -> int:
    if not rounds.isdecimal() or not 1 <= int(rounds) <= MOST_ROUNDS:
        raise PerfError(f"{text!r}: rounds={rounds} is not a whole number from 1 to {MOST_ROUNDS}; {EXAMPLE}")
    return int(rounds)
