"""Checks reported or expected figures of calls against arithmetic and against this machine.

A file of them is TOML: what was measured under [run], then one [[claim]] each with its `kind`.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from flagscale_perf.rpc.costs.model import Calibration
from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError

MIB = 1024 * 1024
_OFF = 0.005  # deviation that rounding, or 1000 for 1024 in the last digit, does not explain
_TIMES = 20.0  # a figure this many times the measured round trip is not one of that transport
_UNITS = {
    1024.0: "1024 times too large: the unit is wrong",
    1000.0: "1000 times too large: the unit is wrong",
}


class Verdict(NamedTuple):
    """The verdict on one figure.

    Attributes:
        says: the figure, as it was given.
        can_be: None where nothing decides it.
        because: the arithmetic.
    """

    says: str
    can_be: bool | None
    because: str


class Claim(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind"):
    """One figure.

    Attributes:
        says: as it was written.
        note: what else is to be said about it.
    """

    says: str
    note: str = ""

    def judge(self, here: Calibration) -> Verdict:
        """The verdict on the figure."""
        can_be, because = self.held(here)
        return Verdict(self.says, can_be, "; ".join(filter(None, (because, self.note))))

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """The verdict and its arithmetic."""
        raise NotImplementedError


class Rate(Claim, tag="rate", frozen=True, kw_only=True):
    """A transfer of so many MiB in so many ms: no message is faster than the copies it needs."""

    mib: float
    ms: float
    copies: int = 1

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """Compared with the copy speed of this machine."""
        claimed, copy = self.mib * MIB / (self.ms / 1e3), here.memory.warm.bytes_per_s
        text = f"{self.mib:,g} MiB in {self.ms:,g} ms is {_gb(claimed)}"
        if copy is None:
            return None, f"{text}; how fast memory is copied here was not measured"
        least_ms = self.copies * here.memory.warm.at(self.mib * MIB) / NS_PER_MS
        copies = "one copy" if self.copies == 1 else f"the {self.copies} copies"
        text += f"; memory is copied at {_gb(copy)} here: {_plain(least_ms)} ms for {copies} of it"
        return self.ms >= least_ms, text


class Parts(Claim, tag="parts", frozen=True, kw_only=True):
    """Parts, and the whole (or its range) that they should add up to."""

    parts: list[float]
    whole: float | tuple[float, float]
    unit: str = ""

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """By addition."""
        made = math.fsum(self.parts)
        low, high = self.whole if isinstance(self.whole, tuple) else (self.whole, self.whole)
        slack = _OFF * max(abs(low), abs(high))
        whole = f"{low:,g}" if low == high else f"{low:,g} to {high:,g}"
        added = " ".join(f"{'-' if part < 0 else '+'} {abs(part):,g}" for part in self.parts).removeprefix(
            "+ "
        )
        is_so = low - slack <= made <= high + slack
        return is_so, f"{added} = {made:,.6g}{_spaced(self.unit)}{'' if is_so else f', not {whole}'}"


class Product(Claim, tag="product", frozen=True, kw_only=True):
    """Factors and their claimed product in the same unit; `within` is the relative tolerance."""

    factors: list[float]
    claimed: float
    divided_by: list[float] = []
    unit: str = ""
    within: float = _OFF

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """By multiplication."""
        made = math.prod(self.factors) / math.prod(self.divided_by)
        text = " x ".join(f"{factor:,g}" for factor in self.factors)
        text += "".join(f" / {each:,g}" for each in self.divided_by)
        text += f" = {made:,.6g}{_spaced(self.unit)}"
        ratio = self.claimed / made
        if abs(ratio - 1) <= self.within:
            return True, text
        why = next((f": {what}" for size, what in _UNITS.items() if abs(ratio / size - 1) <= _OFF), "")
        return False, f"{text}, not {self.claimed:,.10g}{why}"


class RoundTrip(Claim, tag="round_trip", frozen=True, kw_only=True):
    """The claimed time of a call without data over one of ZeroMQ's transports ("IPC", "TCP")."""

    transport: str
    ms: float

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """Compared with the round trips of this machine."""
        name = self.transport.upper()
        times = [
            p.round_trip_ns / NS_PER_MS for p in here.paths if (p.transport, p.control) == (name, "zeromq")
        ]
        if not times:
            return None, f"no round trip of ZeroMQ over {name} was measured here"
        best, worst = min(times), max(times)
        measured = f"a round trip of ZeroMQ over {name} takes {best:.3g} ms here"
        if self.ms > _TIMES * worst:
            return False, f"{measured}: {self.ms:g} ms is {self.ms / best:,.0f} times that"
        if self.ms < best / 2:
            return False, f"{measured}: {self.ms:g} ms is less than its wake-ups and system calls take"
        return True, measured


class Overlap(Claim, tag="overlap", frozen=True, kw_only=True):
    """A claimed gain (a part of 1) from running something of `shorter_s` concurrently with the rest of
    `whole_s`.
    """

    gain: float
    shorter_s: float
    whole_s: float

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """Overlapping saves at most the overlapped part."""
        most = self.shorter_s / self.whole_s
        text = f"what overlaps is {self.shorter_s:g} of {self.whole_s:g} s: at most {100 * most:.2f} %"
        return self.gain <= most, text


class Rows(Claim, tag="rows", frozen=True, kw_only=True):
    """A table that should have this many rows, in falling order."""

    values: list[float]
    rows: int

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """By counting and comparing."""
        wrong = [f"{len(self.values)} rows, not {self.rows}"] if len(self.values) != self.rows else []
        wrong += ["the largest is not first"] if self.values != sorted(self.values, reverse=True) else []
        return not wrong, "; ".join(wrong)


class Remark(Claim, tag="remark", frozen=True, kw_only=True):
    """A claim that cannot be calculated: `note` explains it, `can_be` tells whether it holds."""

    can_be: bool | None = None

    def held(self, here: Calibration) -> tuple[bool | None, str]:
        """As given."""
        return self.can_be, ""


AnyClaim = Rate | Parts | Product | RoundTrip | Overlap | Rows | Remark


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What was measured of a run; None if unknown.

    Attributes:
        calls: how many.
        sent_mib, received_mib: of all calls.
        rpc_s: in calls, from the message's beginning to the reply's arrival.
        total_s: of the run.
        serialize_ms, deserialize_ms: of a call, on the caller's side.
        server_s: of rpc_s, in the methods themselves.
    """

    calls: int
    sent_mib: float
    received_mib: float
    rpc_s: float | None = None
    total_s: float | None = None
    serialize_ms: float | None = None
    deserialize_ms: float | None = None
    server_s: float | None = None


class Reported(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of figures."""

    run: Run | None = None
    claim: list[AnyClaim] = []


def read_figures(path: Path) -> Reported:
    """Raises PerfError if the file cannot be read or its content is invalid."""
    try:
        return msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Reported)
    except OSError as error:
        raise PerfError(f"{path}: {error.strerror}; name a file of figures in TOML") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise PerfError(f"{path}: {error}; docs/rpc_benchmarks.md shows what such a file holds") from error


def judge_all(claims: Sequence[Claim], here: Calibration) -> list[Verdict]:
    """The verdicts in the order of the claims."""
    return [claim.judge(here) for claim in claims]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _gb(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e9:,.3g} GB/s"


def _spaced(unit: str) -> str:
    return f" {unit}" if unit else ""
