"""What holds a run back, as data."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Evidence:
    """A figure beside the limit it broke. `unit` is "share", "ms", "s", "GB", "times" or ""; `source` says
    where the limit is from.
    """

    figure: str
    value: float
    limit: float
    unit: str
    source: str


@dataclass(frozen=True)
class Change:
    """Something to change: the host's flags (or variables) as they are written, and in words what to do with
    them.
    """

    flags: list[str]
    text: str


@dataclass(frozen=True)
class Finding:
    """Something that holds the run back.

    Attributes:
        name: its kind, a key such as "data_stall".
        title: one line.
        cost_s: time of the session that it takes; None for a risk or a doubt, which costs nothing yet.
        cost_share: that of the wall time.
        gain: more of `gain_of` if it were removed altogether, 0.12 is +12 %; None like cost_s.
        gain_of: "tokens/s" for what slows the steps down, "tokens in the same time" for what stands between
            them.
        evidence: at least one.
        first_iteration, iteration: where; None for the whole run.
        ranks: whose; empty for all or where it is not known.
        causes: likely ones, the likeliest first.
        changes: what to do, the best first.
    """

    name: str
    title: str
    cost_s: float | None
    cost_share: float | None
    gain: float | None
    gain_of: str
    evidence: list[Evidence]
    first_iteration: int | None
    iteration: int | None
    ranks: list[int]
    causes: list[str]
    changes: list[Change]
