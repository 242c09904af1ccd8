"""What a change of a run is, and what is predicted of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from flagscale_perf.spine.clock import NS_PER_MS
from flagscale_perf.spine.errors import PerfError

MOST_TIMES = 1000.0  # as much as recorded that is believed of a change


class MissingRecordError(PerfError):
    """A change that cannot be predicted as a record is missing: which one, and the command that makes it."""

    def __init__(self, change: str, record: str, command: str) -> None:
        super().__init__(f"{change}: no answer without {record}; record it: {command}")
        self.record, self.command = record, command


class Change(NamedTuple):
    """One change of a run, such as `rank=3 forward=peers` or `m=16`.

    Attributes:
        name: of a phase, wildcards included, or of what else is changed.
        how: "=", "*=", "+=" or "-=".
        value: in its canonical form.
        where: which ranks' or stages' durations are changed, such as "rank=3"; "" for those of all.
        kind: "A": the same graph; "B": another graph of the recorded durations; "C": it takes operators.
    """

    name: str
    how: str
    value: str
    where: str
    kind: str

    @property
    def text(self) -> str:
        """As the user may write it."""
        return f"{self.where} {self.name}{self.how}{self.value}".strip()


# Of a change by a word of its own: its kind, the canonical form of a value or None, and what it may be.
Check = tuple[str, Callable[[str], str | None], str]


def factor_of(value: str) -> str | None:
    """The canonical form of a factor such as `0.5`; None for another text."""
    try:
        factor = float(value)
    except ValueError:
        return None
    return f"{factor:g}" if 0 <= factor <= MOST_TIMES and value[0].isdecimal() else None


class Doubt(NamedTuple):
    """What is known of predictions beside the steps that they are made of.

    Attributes:
        drift: standard deviation between the usual steps of two runs of one configuration, a share.
        drift_source: where that is from.
        scores: by kind, of each prediction that was checked: how far the outcome was from it, in plain half
            widths (see `Prediction`); and whether the interval that was given held it.
    """

    drift: float = 0.01
    drift_source: str = "assumed for devices"
    scores: Mapping[str, Sequence[tuple[float, bool]]] = {}


class Prediction(NamedTuple):
    """A usual step after changes.

    Attributes:
        text: the changes in their canonical form.
        kind: of the one whose answer is the least sure: "A", "B" or "C".
        measured_ns: the usual step as it was recorded.
        predicted_ns: the usual step after the changes.
        low_ns, high_ns: between these it is, 95 times of 100.
        parts: half widths in nanoseconds by what they are from: the spread of what the replay does not
            explain ("replay"), the steps' own differences ("sampling"), those between runs ("drift"), and
            how predictions of this kind did ("record"). Together the root of the sum of their squares.
        plain_ns: the whole half width, had no prediction of this kind been checked yet.
        ceiling_ns: the same if, besides, messages took no time and no rank was later than its peers.
        steps: how many it is made of.
        evidence: which ones, in words.
        checked: of predictions of this kind so far, those that held the outcome, and all.
        gain_half_ns: half width of the interval of the gain: of this very run with the change, so that what
            differs between runs is not in it.
        samples, ranks: how many times as many a step trains, and the job has, as before.
        notes: what was assumed, one line each.
    """

    text: str
    kind: str
    measured_ns: float
    predicted_ns: float
    low_ns: float
    high_ns: float
    parts: Mapping[str, float]
    plain_ns: float
    ceiling_ns: float | None
    steps: int
    evidence: str
    checked: tuple[int, int]
    gain_half_ns: float
    samples: float = 1.0
    ranks: float = 1.0
    notes: Sequence[str] = ()

    @property
    def gain_ns(self) -> float:
        """What a usual step gains, where it trains more samples against as much more time as before; below 0
        what it loses.
        """
        return self.samples * self.measured_ns - self.predicted_ns

    @property
    def is_gain(self) -> bool:
        """Whether there is a gain even at the low end of its interval."""
        return self.gain_ns > self.gain_half_ns


_LEAST = 0.2  # of a prediction: an interval that reaches further down bounds no gain


@dataclass(frozen=True)
class Offer:
    """A change that is worth a try.

    Attributes:
        change: in its canonical form.
        kind: "A", "B" or "C", as of a prediction.
        gain: more of what is trained in the same time on as many devices, 0.12 is +12 %.
        least, most: between these it is, 95 times of 100; `most` is None where nothing bounds it.
        step_ms, predicted_ms: a usual step, as recorded and after the change.
        evidence: which steps that is from.
        hits, checks: of predictions of this kind so far, those that held the outcome, and all.
        option: of the host; "" where it has none for that.
    """

    change: str
    kind: str
    gain: float
    least: float
    most: float | None
    step_ms: float
    predicted_ms: float
    evidence: str
    hits: int
    checks: int
    option: str

    @property
    def is_gain(self) -> bool:
        """Whether it gains something even at the low end."""
        return self.least > 0


def offered(found: Prediction, option: str) -> Offer:
    """A prediction as an offer."""
    work_ns = found.samples * found.measured_ns / found.ranks
    low_ns, high_ns = (found.predicted_ns + sign * found.gain_half_ns for sign in (-1, 1))
    return Offer(
        found.text,
        found.kind,
        work_ns / found.predicted_ns - 1,
        work_ns / high_ns - 1,
        work_ns / low_ns - 1 if low_ns > _LEAST * found.predicted_ns else None,
        found.measured_ns / NS_PER_MS,
        found.predicted_ns / NS_PER_MS,
        found.evidence,
        *found.checked,
        option,
    )
