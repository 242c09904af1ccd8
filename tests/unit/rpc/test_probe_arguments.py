"""What a probe is given: sockets that it refuses, and names of any form."""

from __future__ import annotations

import pytest
import zmq
import zmq.asyncio

from flagscale_perf.rpc import probe as probe_module
from flagscale_perf.spine.errors import PerfError


class Green(zmq.Socket):
    __module__ = "zmq.green.core"


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (zmq.PUSH, "a socket of type PUSH has no reply for each request; give one of REQ, DEALER, PAIR"),
        (zmq.SUB, "a socket of type SUB has no reply"),
        (zmq.REP, "a socket of type REP has no reply"),
    ],
)
def test_a_type_without_replies_is_refused(probe, context, kind, why) -> None:
    with context.socket(kind) as socket, pytest.raises(PerfError, match=why):
        probe.wrap(socket)


def test_what_does_not_block_is_refused(probe, context) -> None:
    with zmq.asyncio.Context() as others, others.socket(zmq.REQ) as socket:
        with pytest.raises(PerfError, match="takes a blocking socket; this one is of asyncio, whose waits"):
            probe.wrap(socket)
        assert type(socket) is zmq.asyncio.Socket
    with Green(context, zmq.REQ) as socket, pytest.raises(PerfError, match="is of gevent, whose waits"):
        probe.wrap(socket)
    with pytest.raises(PerfError, match=r"takes a socket of pyzmq, not Context"):
        probe.wrap(context)


@pytest.mark.parametrize("name", ["a b", "pkg.Service/Call", "x" * 300, "矩阵", "", "\ud800", None, ["a"]])
def test_a_name_of_any_form_raises_nothing_and_fits_its_slot(probe, calls, name) -> None:
    with probe.call(name):
        pass
    (call,) = calls
    assert 0 < len(call.method.encode()) <= 24


def test_names_made_anew_for_each_call_do_not_pile_up(probe, monkeypatch) -> None:
    monkeypatch.setattr(probe_module, "MAX_NAMES", 2)
    for number in range(5):
        with probe.call(f"request {number}"):
            pass
    assert len(probe._calls) == 2
