"""A reward model behind ZeroMQ: it scores the responses of a prompt. Lines that record its calls on this
side, too, are marked `# monitor`.

    python reward_server.py ipc:///tmp/reward.ipc logs/served --slow-ms 50
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Callable

import msgpack
import zmq

from flagscale_perf.rpc.facts import SERVER, RpcFacts, transport_of  # monitor
from flagscale_perf.rpc.recording import RecordingOptions, RpcRecorder  # monitor
from flagscale_perf.rpc.records import ServedRecord, Status  # monitor


def main() -> None:
    """Answers until it is asked to stop, or its parent is gone."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("endpoint")
    parser.add_argument("directory", help="of the run file of this side")
    parser.add_argument("--slow-ms", type=float, default=0.0, help="each score takes so much longer")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches its parent, too, which ends it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    facts = RpcFacts(role=SERVER, endpoint=args.endpoint, transport=transport_of(args.endpoint))  # monitor
    options = RecordingOptions(args.directory, log_file=None)  # monitor
    with (
        RpcRecorder.start(facts, options) as recorder,  # monitor
        zmq.Context() as context,
        context.socket(zmq.REP) as socket,
    ):
        socket.linger = 0
        socket.bind(args.endpoint)
        serve(socket, args.slow_ms / 1000, recorder.observe)


def serve(socket: zmq.Socket, slow_s: float, observe: Callable[[ServedRecord], None]) -> None:
    """One request after another. A reply says how long the planted pause of its call was."""
    parent, number = os.getppid(), 0
    while os.getppid() == parent:
        if not socket.poll(1000):
            continue
        message = socket.recv()
        began_ns = time.monotonic_ns()
        request = msgpack.unpackb(message)
        read_ns = time.monotonic_ns()
        if request["method"] == "Stop":
            socket.send(msgpack.packb(None))
            return
        reply = None
        if request["method"] == "Score":
            time.sleep(slow_s)
            slept_ns = time.monotonic_ns() - read_ns if slow_s else 0
            reply = {"scores": list(map(score, request["responses"])), "slept_ns": slept_ns}
        done_ns = time.monotonic_ns()
        packed = msgpack.packb(reply)
        packed_ns = time.monotonic_ns()
        socket.send(packed)
        sent_ns, number = time.monotonic_ns(), number + 1
        observe(
            ServedRecord(
                number=number, client=1, call=number, start_ns=began_ns, total_ns=sent_ns - began_ns,
                queue_ns=0, read_ns=read_ns - began_ns, compute_ns=done_ns - read_ns,
                write_ns=packed_ns - done_ns, send_ns=sent_ns - packed_ns, received_bytes=len(message),
                sent_bytes=len(packed), status=Status.OK, method=request["method"],
            )
        )  # monitor  # fmt: skip


def score(tokens: list[int]) -> float:
    """What the model is to learn: to say even tokens. The share of them."""
    return sum(token % 2 == 0 for token in tokens) / len(tokens)


if __name__ == "__main__":
    main()
