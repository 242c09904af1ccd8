"""The server's records on their way to its client's session."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator

import pytest

from flagscale_perf.rpc import peers
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.peers import MAX_RINGS, SERVED, ServedRings, Serving, server_of
from flagscale_perf.spine.peers import own
from tests.rpc_sessions import make_served


@pytest.fixture
def rings() -> Iterator[ServedRings]:
    made = ServedRings(os.getpid())
    yield made
    made.close()
    for thread in threading.enumerate():
        if thread.name == "flagscale_perf ring":
            thread.join(60)


@pytest.fixture(autouse=True)
def few_tries(monkeypatch) -> None:
    monkeypatch.setattr(own, "LAST_TRIES", 1)


def client_side(client: int):
    return server_of(RpcFacts(server_pid=os.getpid(), client=client), os.close)


def test_each_client_has_its_own(rings) -> None:
    for call in (1, 2):
        rings.observe(make_served(call, client=7))
    rings.observe(make_served(1, client=8))
    for client, count in ((7, 2), (8, 1)):
        records = client_side(client).close().items
        assert [(record.client, record.call) for record in records] == [(client, n + 1) for n in range(count)]


def test_clients_that_come_and_go_take_no_more_than_so_much(rings) -> None:
    for client in range(MAX_RINGS + 3):
        rings.observe(make_served(1, client=client))
    assert len(rings._rings) == MAX_RINGS


def test_without_memory_the_server_goes_on(rings, monkeypatch) -> None:
    def refuse(*_) -> None:
        raise OSError("no memory")

    monkeypatch.setattr(peers.OwnRing, "begin", refuse)
    rings.observe(make_served(1))
    rings.observe(make_served(2))


def test_what_travels_is_checked() -> None:
    assert SERVED.decode_owner([1, 2]) == Serving(1, 2)
    for wrong in (None, [], ["1", 2], [1]):
        with pytest.raises(ValueError, match="not who serves whom"):
            SERVED.decode_owner(wrong)
