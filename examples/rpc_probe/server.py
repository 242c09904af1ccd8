"""Somebody's server: adds up numbers. It knows nothing of flagscale_perf."""

from __future__ import annotations

import sys

import msgpack
import zmq


def main(endpoint: str) -> None:
    """Answers until it is asked to stop."""
    with zmq.Context() as context, context.socket(zmq.REP) as socket:
        socket.bind(endpoint)
        while True:
            request = msgpack.unpackb(socket.recv())
            if request["method"] == "Stop":
                socket.send(msgpack.packb(None))
                return
            socket.send(msgpack.packb(sum(request["numbers"])))


if __name__ == "__main__":
    main(sys.argv[1])
