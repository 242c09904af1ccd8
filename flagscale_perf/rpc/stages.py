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


Told = tuple[int, int, int]  # by a reply: its last three marks in `transport.header.Prefix`
NOTHING_TOLD: Told = (-1, -1, 0)


def told_apart(send_ns: int, whole_ns: int, told: Told) -> tuple[int, int, int | None, int | None]:
    """Send, wait, queue and server of a call. A caller that loses the processor inside `send` sees it return
    late: sending ends when the server has the call, and where the clocks differ, so early that the server's
    work has room behind it. What has none at all is not believed: queue and server are None then.

    Args:
        send_ns: until `send` returned, from the moment the message was ready.
        whole_ns: from that moment until the reply was there.
        told: by the server: how long the call waited for others there, how long the server worked, and how
            long after that moment it began; 0 where the clocks differ.
    """
    waited_ns, worked_ns, began_ns = told
    if worked_ns < 0 or began_ns + worked_ns > whole_ns or (began_ns and waited_ns > began_ns):
        return send_ns, whole_ns - send_ns, None, None
    if not began_ns:
        send_ns = min(send_ns, whole_ns - worked_ns)
        return send_ns, whole_ns - send_ns - worked_ns, None, worked_ns
    send_ns = min(send_ns, began_ns - waited_ns)
    return send_ns, whole_ns - send_ns - waited_ns - worked_ns, waited_ns, worked_ns


def stage_times(call: CallRecord) -> tuple[int, ...]:
    """Nanoseconds of each of `ALL_STAGES`; what the server does not report is 0, and contained in `wait`."""
    queue, server = call.queue_ns or 0, call.server_ns or 0
    known = (
        *(call.serialize_ns, call.send_ns, call.wait_ns, queue, server),
        *(call.receive_ns, call.deserialize_ns),
    )
    return (*known, call.total_ns - sum(known))
