"""What of a rank's time is its own work and what may be waiting for others."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.ranks.blocks import Block

# Waiting for other ranks, and nothing else.
WAITING = (
    "pipeline_recv_wait",
    "pipeline_send",
    "exposed_grad_comm",
    "exposed_param_comm",
    "exposed_stat_comm",
)
# No collective inside but those of a lockstep group: work wherever it is long.
OWN = (
    "data_loading",
    "forward",
    "backward",
    "zero_grad",
    "optimizer_copy_grad",
    "optimizer_inner_step",
    "optimizer_copy_param",
)
# Work and waiting: inside, ranks agree on gradient norm and overflow or log together, or a device idles for
# another reason.
MIXED = tuple(phase for phase in PHASES if phase not in WAITING + OWN)


def _places(names: Iterable[str]) -> tuple[int, ...]:
    return tuple(PHASES.index(name) for name in names)


OWN_PLACES, MIXED_PLACES, WAITING_PLACES = _places(OWN), _places(MIXED), _places(WAITING)
_DATA = PHASES.index("data_loading")


class Work(NamedTuple):
    """Nanoseconds of a usual step of a rank.

    Attributes:
        own_ns: certainly its own work.
        mixed_ns: phases that may hold waiting, too.
        wait_ns: waiting for other ranks.
        data_ns: loading data, contained in own_ns; None if the host does not name it.
    """

    own_ns: int
    mixed_ns: int
    wait_ns: int
    data_ns: int | None


def work_of(block: Block) -> Work | None:
    """None where no phases were measured."""
    phases = block.phases_ns
    if phases is None:
        return None
    return Work(
        _sum(phases, OWN_PLACES), _sum(phases, MIXED_PLACES), _sum(phases, WAITING_PLACES), phases[_DATA]
    )


def _sum(phases: tuple[int | None, ...], places: tuple[int, ...]) -> int:
    return sum(phases[place] or 0 for place in places)


def excess_ns(work: Work, usual: Work) -> int:
    """What `work` is longer than what is usual.

    A mixed phase is taken for work only as far as the rank waits less elsewhere: a rank that the others wait
    for does not wait itself.
    """
    mixed_ns = min(max(0, work.mixed_ns - usual.mixed_ns), max(0, usual.wait_ns - work.wait_ns))
    return work.own_ns - usual.own_ns + mixed_ns


def excess_share(work: Work, usual: Work) -> float:
    """The same as a share of the usual work."""
    return excess_ns(work, usual) / max(usual.own_ns, 1)
