"""A probe, the calls that it has recorded, and a context for sockets."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import zmq

from flagscale_perf.rpc.probe import Probe
from flagscale_perf.rpc.records import CallRecord


@pytest.fixture
def calls() -> list[CallRecord]:
    return []


@pytest.fixture
def probe(calls) -> Probe:
    return Probe(calls.append, lambda reason: None)


@pytest.fixture
def context() -> Iterator[zmq.Context]:
    with zmq.Context() as made:
        yield made
        made.destroy(linger=0)
