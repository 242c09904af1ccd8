"""What the road's stages took, as a Markdown table."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from .road import Measured

MS, MIB = 1e6, 2**20
HEAD = (
    "stage", "calls", "MiB moved", "time ms", "spread", "times faster", "transport ms a call",
    "floor: copies ms", "floor: one process ms", "of one process", "not split ms",
)  # fmt: skip
NOTE = """\
The time is the median of the rounds, the spread the distance of their quartiles in percent of it. Transport
is what calls took beyond the server's computing. The copies are one copy in memory of each call's arguments
and results; one process is the same split without a second one, and "of one process" the median of the
rounds' ratios to it. Not split is transformers' own model, with torch's fused attention. Where micro-batches
overlap, two cores work at once, and one process is no floor."""


def table(measured: Sequence[Measured]) -> str:
    """A line a stage."""
    base = median(measured[0].total_ns) / measured[0].stop.sequences
    rows = [HEAD, ("---", *["---:"] * (len(HEAD) - 1)), *(_row(each, base) for each in measured)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def ratio(each: Measured) -> float:
    """Median over the rounds: with a transport to without."""
    return median(took / alone for took, alone in zip(each.total_ns, each.in_process_ns, strict=True))


def spread(values: Sequence[int]) -> float:
    """Distance of the quartiles, as a share of the median."""
    ordered = sorted(values)
    quarter = len(ordered) // 4
    return (ordered[-1 - quarter] - ordered[quarter]) / median(ordered)


def _row(each: Measured, base: float) -> tuple[str, ...]:
    took = median(each.total_ns)
    transport = f"{median(each.transport_ns) / each.calls / MS:.3f}" if each.transport_ns else "-"
    return (
        each.stop.name, str(each.calls), f"{each.moved_bytes / MIB:.1f}", f"{took / MS:.1f}",
        f"{spread(each.total_ns):.0%}", f"{base * each.stop.sequences / took:.2f}", transport,
        f"{median(each.copy_ns) / MS:.2f}", f"{median(each.in_process_ns) / MS:.1f}", f"{ratio(each):.2f}",
        f"{median(each.whole_ns) / MS:.1f}",
    )  # fmt: skip
