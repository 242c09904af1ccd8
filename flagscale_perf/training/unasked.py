"""When marks are captured without being asked for: once the run has settled, and when a rank makes the others
wait. So seldom, and of so few steps, that nobody notices.
"""

from __future__ import annotations

from collections import deque

from flagscale_perf.spine.chance import SURE_STEPS
from flagscale_perf.spine.clock import NS_PER_S
from flagscale_perf.training.rank_records import StragglerIdentity, StragglerRecord
from flagscale_perf.training.records import StepRecord
from flagscale_perf.training.settled import MIN_STEPS, Settling, is_judged

STEPS = SURE_STEPS + 1  # the first of these begins where the one before them ends
SETTLED, STRAGGLER = "settled", "straggler"
AGAIN_NS, HOUR_NS = 600 * NS_PER_S, 3600 * NS_PER_S
RANK_BYTES = 128 << 10  # in an hour, for each rank: 1 MB at 8 of them
WINDOW_BYTES = 15 << 20  # of all ranks together: of a larger job only who asks gets a window
MARK_BYTES = 14  # as text


class Unasked:
    """Decides when the next window begins that nobody asked for."""

    def __init__(self, ranks: int, has_first: bool) -> None:
        """`ranks`: how many there are; `has_first`: the first window is asked for."""
        self._ranks, self._has_first = ranks, has_first
        self._settling = Settling()
        self._judged = 0
        self._late: set[StragglerIdentity] = set()
        self._taken: deque[tuple[int, int]] = deque()  # when, and how many bytes

    def step(self, step: StepRecord) -> None:
        """One more step of rank 0."""
        self._settling.add(step)
        self._judged += is_judged(step)

    def late(self, record: StragglerRecord) -> None:
        """A rank is named as late, or is it no more."""
        (self._late.discard if record.is_over else self._late.add)(record.identity)

    def due(self, now_ns: int, marks: int) -> str:
        """Why a window begins now; "" if none does. `marks`: that a step of a rank has, 0 where none are
        taken.
        """
        while self._taken and now_ns - self._taken[0][0] >= HOUR_NS:
            self._taken.popleft()
        size = self._ranks * STEPS * marks * MARK_BYTES
        spent = sum(each for _, each in self._taken)
        if not size or size > WINDOW_BYTES or spent + size > self._ranks * RANK_BYTES:
            return ""
        if not self._has_first:
            return SETTLED if self._has_settled() else ""
        is_soon = bool(self._taken) and now_ns - self._taken[-1][0] < AGAIN_NS
        return STRAGGLER if self._late and not is_soon else ""

    def _has_settled(self) -> bool:
        """Looks at the course of the steps when there are some more, as that takes some time."""
        if self._settling.is_final:
            return True
        if self._judged < MIN_STEPS:
            return False
        self._judged = 0
        return self._settling.result().settled_iteration is not None

    def taken(self, now_ns: int, marks: int) -> None:
        """A window has begun. Who is late now is in it."""
        self._has_first = True
        self._late.clear()
        self._taken.append((now_ns, self._ranks * STEPS * marks * MARK_BYTES))
