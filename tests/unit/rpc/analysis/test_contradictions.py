"""What the caller and the server say of the same call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.rpc.analysis import contradictions
from flagscale_perf.rpc.analysis.columns import columns_of
from flagscale_perf.rpc.analysis.contradictions import Contradictions
from flagscale_perf.rpc.analysis.instrument import read_calls
from tests.rpc_sessions import FACTS, MS, US, make_call, make_served, write_run

# `make_call` begins at 10 ms and has 1.4 ms at the server; `make_served` 1.2 in its parts, 1.5 in all.
AGREES = {"total_ns": 1800 * US}


def found(served: dict[str, Any], **call: Any) -> Contradictions:
    pairs = Contradictions()
    pairs.add_calls(columns_of([make_call(**call)]))
    pairs.add_served(make_served(**AGREES | served))
    return pairs


def test_records_that_agree() -> None:
    pairs = found({})
    assert (pairs.compared, pairs.found, pairs.unbelieved, pairs.words()) == (1, 0, 0, [])


@pytest.mark.parametrize(
    ("served", "call", "says"),
    [
        ({}, {"server_ns": 460 * US}, "the caller has 0.460 ms at the server, the server 1.200 ms"),
        ({}, {"server_ns": 1501 * US}, "the caller has 1.501 ms at the server, the server 1.200 ms"),
        ({"start_ns": 9 * MS}, {}, "the server had it 1.000 ms before it was made"),
        ({"start_ns": 20 * MS}, {}, "the server went on with it 1.300 ms after its end"),
    ],
)
def test_records_that_do_not(served: dict[str, Any], call: dict[str, Any], says: str) -> None:
    pairs = found(served, **call)
    assert (pairs.found, pairs.first) == (1, f"call 1, BatchLinear: {says}")


def test_another_clock_is_not_compared() -> None:
    assert found({"start_ns": 9 * MS}, queue_ns=None).found == 0


def test_the_servers_record_may_come_first_or_never(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contradictions, "MOST_WAITING", 2)
    pairs = Contradictions()
    for number in (1, 2, 3):
        pairs.add_served(make_served(number, **AGREES))
    pairs.add_calls(columns_of([make_call(number) for number in (1, 2, 3)]))
    assert (pairs.compared, pairs.found) == (2, 0)  # the oldest made room


def test_a_report_says_it(tmp_path: Path) -> None:
    calls = [make_call(1, server_ns=None), make_call(2, server_ns=460 * US)]
    served = [make_served(number, **AGREES) for number in (1, 2)]
    facts = type(FACTS)(**FACTS.as_dict() | {"client": 1, "server_pid": 7})
    report = read_calls(write_run(tmp_path, [*calls, *served], facts))
    assert report.contradictions.words() == [
        "1 of 2 calls: the server's record contradicts the caller's; call 2, BatchLinear: the caller has "
        "0.460 ms at the server, the server 1.200 ms",
        "1 calls: the server says that it worked longer than they took, which is not believed; wait has its "
        "time",
    ]
