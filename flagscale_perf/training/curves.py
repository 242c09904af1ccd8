"""Loss, gradient norm and learning rate, from the line that the host prints: it has read them from the
device, which nothing here does.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, NamedTuple

from flagscale_perf.spine.averages import mean_known
from flagscale_perf.spine.records import record
from flagscale_perf.spine.slots import Bytes

_RATE, _NORM, _LOSS = "learning rate:", "grad norm:", "loss:"
_HEAD = re.compile(r"iteration +(\d{1,15})/")
_PART = re.compile(r"\s*(.+): *([-+\w.]+)\s*")


@record(slot=6)
class LoggedRecord(NamedTuple):
    """A line that the host printed, shortened; in the ring only.

    Attributes:
        iteration: the last of those that it is about.
        at_ns: monotonic mark.
        text: `learning rate: 1.0E-04|grad norm: 1.250|lm loss: 8.340000E+00`.
    """

    iteration: int
    at_ns: int
    text: Annotated[str, Bytes(200)]


@record("curve", start="at_ns")
class CurveRecord(NamedTuple):
    """What the host logged of its last iterations, as exactly as it prints it. In a run file it may come
    before the last of their steps.

    Attributes:
        iteration: the last of them.
        at_ns: monotonic mark of the logging.
        loss: mean over the iterations that the host logs together; None where rank 0 has none, as in a
            pipeline, or the host has not printed it.
        grad_norm, learning_rate: of that last iteration; None where the host has not printed it.
    """

    iteration: int
    at_ns: int
    loss: float | None
    grad_norm: float | None
    learning_rate: float | None


def logged_of(line: Any, now_ns: int) -> LoggedRecord | None:
    """What a record of the ring has room for of the host's line on its last iterations; None for others, as
    evaluations print by the same function. Losses come last, of which a host may have many.
    """
    head = _HEAD.search(line) if isinstance(line, str) and _RATE in line else None
    if head is None:
        return None
    parts = [part.strip() for part in line.split("|")]
    kept = [part for part in parts if part.startswith((_RATE, _NORM))]
    return LoggedRecord(int(head[1]), now_ns, "|".join(kept + [part for part in parts if _LOSS in part]))


def curve_of(logged: LoggedRecord) -> CurveRecord:
    """The figures of a shortened line. Of several losses it is `lm loss`, or else the first."""
    found = {match[1]: _number(match[2]) for match in map(_PART.fullmatch, logged.text.split("|")) if match}
    losses = [value for name, value in found.items() if name.endswith("loss")]
    loss = found.get("lm loss", losses[0] if losses else None)
    return CurveRecord(
        logged.iteration, logged.at_ns, loss, found.get("grad norm"), found.get("learning rate")
    )


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None


class CurveWindow:
    """What the host has logged of the iterations of one interval."""

    def __init__(self) -> None:
        self._open: list[CurveRecord] = []

    def add(self, curve: CurveRecord) -> None:
        """The next one; it comes before the step of its iteration."""
        self._open.append(curve)

    def close(self) -> dict[str, Any]:
        """Means by name, as `IntervalRecord` has them; of the learning rate the last."""
        curves, self._open = self._open, []
        rates = [one.learning_rate for one in curves if one.learning_rate is not None]
        return {
            "loss": mean_known([one.loss for one in curves]),
            "grad_norm": mean_known([one.grad_norm for one in curves]),
            "learning_rate": rates[-1] if rates else None,
        }
