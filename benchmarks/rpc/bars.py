"""What was promised, beside what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from benchmarks.rpc import ours, workload
from benchmarks.rpc.rounds import Cells

KIB, MIB = 1 << 10, 1 << 20
COPYING = {  # times two copies of memory, by size
    ours.UNIX: {MIB: 1.5, 4 * MIB: 1.2, 16 * MIB: 1.15, 64 * MIB: 1.15},
    ours.ZEROMQ: {MIB: 2.2, 4 * MIB: 1.35, 16 * MIB: 1.2, 64 * MIB: 1.2},
}


class Bar(NamedTuple):
    """`value` is to be at most `bar`, or at least where `is_least`."""

    what: str
    value: float
    bar: float
    unit: str = ""
    is_least: bool = False

    @property
    def is_met(self) -> bool:
        return self.value >= self.bar if self.is_least else self.value <= self.bar


def report(bars: Iterator[Bar]) -> int:
    """Prints them, and says how many are missed."""
    missed = 0
    print()
    for bar in bars:
        missed += not bar.is_met
        sign = ">=" if bar.is_least else "<="
        verdict = "met" if bar.is_met else "MISSED"
        print(f"{bar.what:68}{bar.value:9.2f}{bar.unit}, bar {sign} {bar.bar:g}{bar.unit}: {verdict}")
    return missed


def of_round_trips(cells: Cells) -> Iterator[Bar]:
    for name, limits in COPYING.items():
        for size, limit in limits.items():
            yield Bar(f"B1 {name}, {size // MIB} MiB, times two copies", cells[name, size].best_ratio, limit)
    for name in (ours.PLACED_UNIX, ours.PLACED_ZEROMQ):
        times = cells[name, 64 * MIB].best_ns / cells[name, KIB].best_ns
        yield Bar(f"B2 {name}, 64 MiB, times 1 KiB", times, 2.0)
    yield from _small(cells)
    for size in (MIB, 16 * MIB, 64 * MIB):
        yield Bar(
            f"B11 {ours.SEALED}, {size // MIB} MiB, times two copies",
            cells[ours.SEALED, size].best_ratio,
            4.5,
        )
        faster = cells["pyzmq CURVE", size].best_ratio / cells[ours.SEALED, size].best_ratio
        yield Bar(
            f"B11 {ours.SEALED}, {size // MIB} MiB, times faster than CURVE", faster, 3.0, is_least=True
        )


def _small(cells: Cells) -> Iterator[Bar]:
    """Round trips of 1 KiB."""
    unix, zeromq, bare = (cells[name, KIB] for name in (ours.UNIX, ours.ZEROMQ, "pyzmq REQ/REP"))
    yield Bar("B3 ours over ZeroMQ, 1 KiB, times bare pyzmq", zeromq.best_ratio / bare.best_ratio, 1.3)
    yield Bar("B3 ours over a unix socket, 1 KiB, best round's median", min(unix.p50) / 1e3, 10.0, " us")
    yield Bar(
        "B3 ours over a unix socket, times faster than over ZeroMQ",
        zeromq.best_ratio / unix.best_ratio,
        3.5,
        is_least=True,
    )
    yield from beside(cells, ("gRPC unix",))


def beside(cells: Cells, others: Sequence[str]) -> Iterator[Bar]:
    """Ours is below each of them."""
    for name in others:
        times = cells[ours.ZEROMQ, KIB].best_ratio / cells[name, KIB].best_ratio
        yield Bar(f"B3 ours over ZeroMQ, 1 KiB, times {name}", times, 1.0)


def of_replays(found: workload.Replays) -> Iterator[Bar]:
    base = "msgpack over ipc"
    for path in ("shared memory, unix", "shared memory, ZeroMQ"):
        for load in (workload.PREFILL, workload.PREFILL_BF16):
            faster = found.ratio(load, base, path)
            yield Bar(f"B4 {load}: {path}, times faster than {base}", faster, 20.0, is_least=True)
            yield Bar(f"B4 {load}: {path}, times one copy", found.ratio(load, path, workload.COPY), 1.25)
        yield Bar(f"B4 {workload.FUSED_BF16}: {path}", found.best(workload.FUSED_BF16, path), 0.15, " s")
    for (load, path), _ in sorted(found.predicted_s.items()):
        yield Bar(f"B8 {load}: {path}, prediction off by", 100 * abs(found.off(load, path)), 20.0, " %")
