"""Whether a device's clock is held down: one rule for live remarks, the report's findings and all ranks."""

from __future__ import annotations

from flagscale_perf.spine.limits import Limit
from flagscale_perf.training.hardware import CAPS, reasons_in

LOWER_CLOCK = Limit(
    0.97, "share", "ours: of the clock it is compared with; one or two clock steps below it are normal"
)


def is_lower(clock_mhz: float | None, usual_mhz: float | None) -> bool | None:
    """Whether a clock is below the usual one by more than what is normal; None where one is not known."""
    if clock_mhz is None or usual_mhz is None:
        return None
    return clock_mhz < LOWER_CLOCK.value * usual_mhz


def caps_in(throttle: str | None, clock_mhz: float | None, usual_mhz: float | None) -> list[str]:
    """The caps that were read, in the order of the alphabet; none where the clock is known not to be lower.

    A device at its power limit reports that cap all the time, also while it runs as fast as ever. So a cap
    alone explains nothing unless the clocks could not be read.
    """
    if is_lower(clock_mhz, usual_mhz) is False:
        return []
    return sorted(reasons_in(throttle or "") & set(CAPS))


def capped_by(caps: list[str]) -> str:
    """`clock capped by power and temperature`."""
    return f"clock capped by {' and '.join(caps)}"
