"""Somebody's client of REQ and REP; the three lines that record its calls are marked `# probe`.

    python server.py ipc:///tmp/rpc_probe.ipc &
    python client.py ipc:///tmp/rpc_probe.ipc 100

Then there is a zmq_performance.log, and `flagscale-perf report logs/rpc` says where the time went.
"""

from __future__ import annotations

import sys

import msgpack
import zmq

from flagscale_perf.rpc.probe import Probe


def main(endpoint: str, calls: int) -> None:
    """Asks for so many sums, and lets the server stop."""
    numbers = list(range(10_000))
    with (
        Probe.start(endpoint) as probe,  # probe: 1
        zmq.Context() as context,
        probe.wrap(context.socket(zmq.REQ)) as socket,  # probe: 2
    ):
        socket.linger = 0
        socket.connect(endpoint)
        for _ in range(calls):
            with probe.call("Sum"):  # probe: 3
                socket.send(msgpack.packb({"method": "Sum", "numbers": numbers}))
                total = msgpack.unpackb(socket.recv())
            assert total == sum(numbers)
        with probe.call("Stop"):
            socket.send(msgpack.packb({"method": "Stop"}))
            socket.recv()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
