"""How a call's time is split between its caller and its server."""

from __future__ import annotations

Told = tuple[int, int, int]  # by a reply, as `told_apart` takes it
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
