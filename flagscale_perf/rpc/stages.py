"""The stages of a call, in the order in which they follow one another."""

from __future__ import annotations

from typing import NamedTuple

from flagscale_perf.rpc.records import CallRecord

OTHER = "other"  # the caller's own work between the stages


class Stage(NamedTuple):
    """A stage of a call.

    Attributes:
        name: its field in `CallRecord`, without "_ns".
        title: in words.
        colour: a name of the palette.
    """

    name: str
    title: str
    colour: str


STAGES = (
    Stage("serialize", "serialize", "blue"),
    Stage("send", "send", "orange"),
    Stage("wait", "wait", "yellow"),
    Stage("queue", "queue", "grey"),
    Stage("server", "server", "green"),
    Stage("receive", "receive", "sky"),
    Stage("deserialize", "deserialize", "red"),
)
OTHER_STAGE = Stage(OTHER, "other", "faint")
ALL_STAGES = (*STAGES, OTHER_STAGE)


def stage_times(call: CallRecord) -> tuple[int, ...]:
    """Nanoseconds of each of `ALL_STAGES`; what the server does not report is 0, and contained in `wait`."""
    queue, server = call.queue_ns or 0, call.server_ns or 0
    known = (
        *(call.serialize_ns, call.send_ns, call.wait_ns, queue, server),
        *(call.receive_ns, call.deserialize_ns),
    )
    return (*known, call.total_ns - sum(known))
