"""Contenders take turns: in each round every one is timed at every size, and beside them what two copies of
the same memory cost.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

Timer = Callable[[int, int], list[int]]  # size, how often -> nanoseconds of each round trip

SIZES = (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26)
FLOOR = "two copies of memory"
SEALING = "AES-GCM alone, 4 passes"
TAG_BYTES, NONCE = 16, bytes(12)  # nothing here is a secret
CELL_NS = 40_000_000  # a contender's turn at one size
LEAST, MOST = 3, 400  # round trips of a turn
STEADY = 0.2  # quartiles of the rounds' ratios that are so near each other need no more rounds


@dataclass
class Cell:
    """A contender at a size: one entry a round. Nanoseconds; `floor` is that of the same round."""

    p10: list[float] = field(default_factory=list)
    p50: list[float] = field(default_factory=list)
    floor: list[float] = field(default_factory=list)

    @property
    def ratios(self) -> list[float]:
        """To the floor of the same round."""
        return [mine / floor for mine, floor in zip(self.p10, self.floor, strict=True)]

    @property
    def ratio(self) -> float:
        """The middle round's."""
        return statistics.median(self.ratios)

    @property
    def best_ratio(self) -> float:
        """Of the best rounds of both: what else the machine does only ever adds."""
        return self.best_ns / min(self.floor)

    @property
    def best_ns(self) -> float:
        """The lowest p10 of all rounds."""
        return min(self.p10)

    @property
    def spread(self) -> float:
        """Quartiles of the ratios, as a share of the middle."""
        if len(self.ratios) < 3:
            return 1.0
        low, middle, high = statistics.quantiles(self.ratios, n=4)
        return (high - low) / middle


Cells = dict[tuple[str, int], Cell]


def timer(echo: Callable[[int], object]) -> Timer:
    """Of a round trip in this process."""

    def timed(size: int, repeats: int) -> list[int]:
        times = []
        for _ in range(repeats):
            begin = perf_counter_ns()
            echo(size)
            times.append(perf_counter_ns() - begin)
        return times

    return timed


class Copies:
    """The floor: the payload copied twice, between memory that is in use."""

    def __init__(self, largest: int) -> None:
        self.source = memoryview(bytearray(b"\x5a") * largest)
        self._buffers = [memoryview(bytearray(b"\xa5") * largest) for _ in range(2)]
        self._cipher, self._sealed = AESGCM(bytes(32)), memoryview(bytearray(largest + TAG_BYTES))

    def twice(self, size: int) -> None:
        first, second = self._buffers
        first[:size] = self.source[:size]
        second[:size] = first[:size]

    def sealed(self, size: int) -> None:
        """What AES-GCM alone takes of a message and its echo: encrypted and decrypted in each direction."""
        plain, sealed = self._buffers[0][:size], self._sealed[: size + TAG_BYTES]
        for _ in range(2):
            self._cipher.encrypt_into(NONCE, plain, None, sealed)
            self._cipher.decrypt_into(NONCE, sealed, None, plain)


def measure(
    contenders: Mapping[str, Timer], copies: Copies, rounds: Sequence[int], watched: Sequence[tuple[str, int]]
) -> Cells:
    """At least `rounds[0]` rounds; more, up to `rounds[1]`, until the ratios of all `watched` are steady."""
    cells: Cells = {}
    all_of_them = {FLOOR: timer(copies.twice), **contenders}
    for number in range(rounds[1]):
        if number >= rounds[0] and all(cells[key].spread <= STEADY for key in watched if key in cells):
            break
        for size in SIZES:
            _turn(all_of_them, size, number, cells)
    return cells


def _turn(contenders: Mapping[str, Timer], size: int, number: int, cells: Cells) -> None:
    """Every contender at one size, beginning with another in each round; the floor at both ends of it."""
    names = [name for name in contenders if name != FLOOR]
    shift = number % len(names) if names else 0
    floor = _times(contenders[FLOOR], size)
    found = {name: _times(contenders[name], size) for name in (*names[shift:], *names[:shift])}
    floor = sorted([*floor, *_times(contenders[FLOOR], size)])
    for name, times in {FLOOR: floor, **found}.items():
        cell = cells.setdefault((name, size), Cell())
        cell.p10.append(_quantile(times, 0.1))
        cell.p50.append(_quantile(times, 0.5))
        cell.floor.append(_quantile(floor, 0.1))


def _times(timed: Timer, size: int) -> list[int]:
    """Of so many round trips as there is time for; the first is not counted."""
    first = min(timed(size, 2))
    return sorted(timed(size, max(LEAST, min(MOST, CELL_NS // max(first, 1)))))


def _quantile(times: Sequence[int], part: float) -> float:
    return times[int(part * (len(times) - 1))]
