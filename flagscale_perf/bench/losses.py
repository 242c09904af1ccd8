"""Where the time goes that several devices fail to save.

On `p` devices, work that is split perfectly takes a p-th. What a part of a step takes on `p` devices beyond a
p-th of what it takes on one is lost to that part; these losses add up to that of the step. What a token (or a
prompt) takes besides the step is the engine's and the server's, between steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

WAIT, TRANSFER, UNSPLIT = "waiting for other ranks", "transfer", "communication that is not split"
PRODUCTS, OTHER, HOST, REST = "smaller matrix products", "other operators", "host", "residual"
PROFILING, BETWEEN = "profiling itself", "between steps"
PARTS = (WAIT, TRANSFER, UNSPLIT, PRODUCTS, OTHER, HOST, REST, PROFILING, BETWEEN)


@dataclass(frozen=True)
class Step:
    """A mean profiled step of one phase, in seconds, with the times to compare it with.

    Attributes:
        parts: by name; they add up to `total`.
        total: of the profiled step; clean: of the median one that is not profiled, None without any.
        whole: what a token, or a prompt, takes as the client sees it; None where that was not measured.
    """

    parts: Mapping[str, float]
    total: float
    clean: float | None
    whole: float | None = None


class Loss(NamedTuple):
    """A part of a step: seconds on one device and on several, and how much of these is lost."""

    part: str
    one: float
    several: float
    lost: float


def losses(one: Step, several: Step, devices: int) -> list[Loss]:
    """The losses by part, in the order of `PARTS`. They add up to what the step takes beyond its perfect
    share or, if the time of a token as the client sees it is known, to what that takes beyond its share.
    """
    first, second = dict(one.parts), dict(several.parts)
    for parts, step in ((first, one), (second, several)):
        if None not in (one.clean, several.clean, one.whole, several.whole):
            parts[PROFILING] = (step.clean or 0.0) - step.total
            parts[BETWEEN] = (step.whole or 0.0) - (step.clean or 0.0)
    return [
        Loss(part, first[part], second[part], second[part] - first[part] / devices)
        for part in PARTS
        if part in first and part in second
    ]
