"""How close the work comes to what the device can do: FLOPs and bytes against roofs measured on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from flagscale_perf.profile.analysis.source import Profile
from flagscale_perf.profile.analysis.sums import Amount, PhaseSums
from flagscale_perf.spine.clock import NS_PER_S

MATMUL_ROOF, COPY_ROOF = "matmul.", "copy"


@dataclass(frozen=True)
class Roofs:
    """The roofs of the job; each is the lowest of its ranks.

    Attributes:
        flop_per_s: speed of a matmul, by data type.
        bytes_per_s: bandwidth of a copy, read and written; None where it was not measured.
    """

    flop_per_s: Mapping[str, float]
    bytes_per_s: float | None

    @property
    def best(self) -> float | None:
        """FLOP/s of the fastest data type; None where none was measured."""
        return max(self.flop_per_s.values(), default=None)

    def floor_ns(self, flops: float, moved_bytes: float) -> float | None:
        """The least time that this work can take; None if a roof is unknown."""
        if self.best is None or self.bytes_per_s is None:
            return None
        return max(flops / self.best, moved_bytes / self.bytes_per_s) * NS_PER_S

    def bound(self, flops: float, moved_bytes: float) -> str | None:
        """The roof that this work meets first, "compute" or "memory"; None if a roof is unknown."""
        if self.best is None or self.bytes_per_s is None:
            return None
        return "compute" if flops / self.best >= moved_bytes / self.bytes_per_s else "memory"


@dataclass(frozen=True)
class Point:
    """Some work placed below the roofs, per step.

    Attributes:
        label: what it is.
        kind: of work.
        self_ns: its time.
        flop_per_s, bytes_per_s: the speeds that it reaches; None where FLOPs or bytes are not known.
        intensity: FLOPs for each byte; None where one of them is not known.
        roof_share: its speed as a share of what the roofs allow; None without roofs.
        floor_ns: the time that the roofs allow.
        bound: as of `Roofs.bound`.
    """

    label: str
    kind: str
    self_ns: float
    flop_per_s: float | None
    bytes_per_s: float | None
    intensity: float | None
    roof_share: float | None
    floor_ns: float | None
    bound: str | None


def roofs_of(profile: Profile) -> Roofs:
    """The roofs over all ranks."""
    found: dict[str, float] = {}
    for rank in profile.ranks:
        for name, value in zip(rank.roofs["roof"].tolist(), rank.roofs["per_second"].tolist(), strict=True):
            found[name] = min(found.get(name, float(value)), float(value))
    matmul = {
        name.removeprefix(MATMUL_ROOF): value for name, value in found.items() if name.startswith(MATMUL_ROOF)
    }
    return Roofs(matmul, found.get(COPY_ROOF))


def points_of(sums: PhaseSums, roofs: Roofs) -> list[Point]:
    """Points by place and kind of work, the most time first; only work whose FLOPs or bytes are known."""
    amounts = sums.by_place(lambda cell: (cell.place.name, cell.kind))
    points = (_point(f"{place} {kind}", kind, one, roofs) for (place, kind), one in amounts.items())
    return [point for point in points if point is not None]


def operators_of(sums: PhaseSums, roofs: Roofs) -> dict[str, Point]:
    """Points by operator, as `points_of` makes them."""
    amounts = sums.by(lambda cell: (cell.op, cell.kind))
    points = ((op, _point(op, kind, one, roofs)) for (op, kind), one in amounts.items())
    return {op: point for op, point in points if point is not None}


def _point(label: str, kind: str, one: Amount, roofs: Roofs) -> Point | None:
    worked_ns = max(one.counted_ns, one.moved_ns)
    if not (one.flops or one.moved_bytes) or not one.self_ns or worked_ns <= 0:
        return None
    floor_ns = roofs.floor_ns(one.flops, one.moved_bytes)
    return Point(
        label,
        kind,
        one.self_ns,
        flop_per_s=_per_s(one.flops, one.counted_ns),
        bytes_per_s=_per_s(one.moved_bytes, one.moved_ns),
        intensity=one.flops / one.moved_bytes if one.flops and one.moved_bytes else None,
        roof_share=None if floor_ns is None else floor_ns / worked_ns,
        floor_ns=floor_ns,
        bound=roofs.bound(one.flops, one.moved_bytes),
    )


def _per_s(amount: float, time_ns: float) -> float | None:
    return amount / time_ns * NS_PER_S if time_ns else None
