"""The changes that would gain a run the most, as a block of a report."""

from __future__ import annotations

from collections.abc import Sequence

from flagscale_perf.analysis.blocks import Block, Note, Quantity, Table
from flagscale_perf.analysis.replays import Offer


def table_of(offers: Sequence[Offer], of: str) -> list[Block]:
    """A row for each, in this order; `of`: what a prediction is of, see `replays.Replayable`."""
    if not offers:
        return [Note("No change that was tried would gain anything, by a replay of captured steps.")]
    rows = [
        (
            one.change,
            Quantity(one.gain, "share", is_change=True),
            Quantity(one.least, "share", is_change=True),
            None if one.most is None else Quantity(one.most, "share", is_change=True),
            one.option or None,
            one.kind,
            f"{one.hits} of {one.checks}" if one.checks else "not yet",
            "" if one.is_gain else "no gain that is sure",
        )
        for one in offers
    ]
    head = ("change", "throughput", "from", "to", "the host's option", "class", "held before", "")
    now = f"Now {offers[0].step_ms:,.1f} ms a {of}; {offers[0].evidence}"
    return [
        Table(head, rows, len(head) - 1, "What would gain the most: replayed, with 95 % intervals"),
        Note(now),
    ]
