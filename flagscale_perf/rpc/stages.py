"""The stages of a call, in the order in which they follow one another: the one table of them."""

from __future__ import annotations

from operator import attrgetter
from typing import NamedTuple

from flagscale_perf.rpc.records import CallRecord

OTHER = "other"  # the caller's own work between the stages


class Stage(NamedTuple):
    """A stage of a call.

    Attributes:
        name: its field in `CallRecord`, without "_ns".
        colour: a name of the palette.
        column, width: of the log, without its unit.
        meaning: from where to where it is timed.
        is_required: other logs of this kind have its column, too.
        is_told: None where nobody says it: `queue` and `server` are then contained in `wait`, and `wait` in
            `receive`.
    """

    name: str
    colour: str
    column: str
    width: int
    meaning: str
    is_required: bool = False
    is_told: bool = False


STAGES = (
    Stage(
        "serialize",
        "blue",
        "Serialize",
        16,
        "until the message is ready: headers, copies into frames or shared memory",
        is_required=True,
    ),
    Stage(
        "send",
        "orange",
        "Send",
        13,
        "until the socket has taken it, at most until the server has it; ZeroMQ only queues it",
        is_required=True,
    ),
    Stage(
        "wait",
        "yellow",
        "Wait",
        11,
        "from the send until the reply was there, less Queue and Server: transport, and waking up; `-` where "
        "Recv has it",
        is_told=True,
    ),
    Stage(
        "queue",
        "grey",
        "Queue",
        11,
        "at the server, until it began; `-` where it does not say: Wait has it then",
        is_told=True,
    ),
    Stage(
        "server",
        "green",
        "Server",
        12,
        "at the server, from its beginning to its reply; `-` like Queue",
        is_told=True,
    ),
    Stage(
        "receive", "sky", "Recv", 13, "taking the reply from the socket, once it is there", is_required=True
    ),
    Stage("deserialize", "red", "Deserialize", 18, "until the result can be used", is_required=True),
)
OTHER_STAGE = Stage(
    OTHER, "faint", "Other", 11, "the caller's own work between the stages: Total less all of them"
)
ALL_STAGES = (*STAGES, OTHER_STAGE)
FIELDS = tuple(f"{stage.name}_ns" for stage in STAGES)
_of = attrgetter(*FIELDS)


def stage_times(call: CallRecord) -> tuple[int | None, ...]:
    """Nanoseconds of each of `ALL_STAGES`; None for what nobody says, which is contained in another."""
    times: tuple[int | None, ...] = _of(call)
    return (*times, call.total_ns - sum(took for took in times if took is not None))
