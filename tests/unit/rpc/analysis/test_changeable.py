"""A session of calls predicts itself; what it cannot, it says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.analysis.predictions import Doubt, MissingRecordError, Prediction
from flagscale_perf.rpc.analysis.changeable import ChangeableCalls
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.whatif.changes import changes
from tests.rpc_sessions import FACTS, PREFILL, llama_calls, make_call, write_log, write_run

KNOWN = replace(FACTS, copy_bytes_per_s=10**10)
MOVED = sum(sent + received for _, sent, received in PREFILL)


def predicted(own: ChangeableCalls, text: str) -> Prediction:
    return own.predict(changes(text.split(), own.phases, own.checks), Doubt())


@pytest.fixture
def own(tmp_path: Path) -> ChangeableCalls:
    return ChangeableCalls(open_session(write_run(tmp_path, llama_calls(), KNOWN)))


BYTES_NS = sum(2 * sent + 1.5 * received for _, sent, received in PREFILL)  # as `llama_calls` has them


@pytest.mark.parametrize(
    ("text", "saved_ns"),
    [
        ("bytes=0.5", BYTES_NS / 2),
        ("bytes=1", 0),
        ("bytes=2", -BYTES_NS),
        ("calls=0.5", 98 * 50_000),
        ("calls=0.5 bytes=0.5", BYTES_NS / 2 + 98 * 50_000),
        ("server=0", 2 * MOVED),
        ("serialize*=0.5 deserialize*=0.5", MOVED / 2),
        ("between=0", 97 * 50_000),
    ],
)
def test_what_a_change_saves_is_as_planted(own: ChangeableCalls, text: str, saved_ns: float) -> None:
    found = predicted(own, text)
    assert found.measured_ns == own.usual_ns(text)
    assert found.gain_ns == pytest.approx(saved_ns, rel=2e-3, abs=1e5)
    assert found.is_gain is (saved_ns > 0)
    assert found.ceiling_ns is not None and found.ceiling_ns < found.measured_ns


def test_in_shared_memory_a_byte_is_copied_once_or_twice(own: ChangeableCalls) -> None:
    found = predicted(own, "transport=shm")
    assert BYTES_NS - 0.2 * MOVED <= found.gain_ns <= BYTES_NS - 0.1 * MOVED
    assert found.parts["replay"] == pytest.approx(0.05 * MOVED, rel=0.02)


def test_what_the_server_does_not_say_has_no_number(tmp_path: Path) -> None:
    calls = [one._replace(server_ns=None, queue_ns=None) for one in llama_calls()]
    own = ChangeableCalls(open_session(write_run(tmp_path, calls, KNOWN)))
    for text in ("server=0", "queue*=0.5", "s?rver*=0.5"):
        with pytest.raises(MissingRecordError, match="no answer without the server's times"):
            predicted(own, text)
    assert predicted(own, "wait*=0.5").gain_ns > 0
    assert predicted(own, "send*=0.5").ceiling_ns is None


def test_no_number_where_there_is_none(tmp_path: Path, own: ChangeableCalls) -> None:
    with pytest.raises(PerfError, match="transport may be =shm"):
        predicted(own, "transport=rdma")
    for facts, text, why in (
        (FACTS, "transport=shm", "how fast this machine copies"),
        (replace(KNOWN, payload="shared"), "transport=shm", "in shared memory already"),
    ):
        session = open_session(write_run(tmp_path, llama_calls(), facts))
        with pytest.raises(PerfError, match=why):
            predicted(ChangeableCalls(session), text)
    odd = [make_call(number, sent_bytes=100, received_bytes=100) for number in range(1, 20)]
    session = open_session(write_run(tmp_path, odd, replace(KNOWN, latency_ns=100_000)))
    with pytest.raises(MissingRecordError, match="calls that tell what they and their bytes cost"):
        predicted(ChangeableCalls(session), "bytes=0.5")
    few = open_session(write_run(tmp_path, llama_calls()[:5], KNOWN))
    with pytest.raises(MissingRecordError, match="at least 8 calls or steps, and there are 5"):
        predicted(ChangeableCalls(few), "server*=0.5")


def test_a_log_alone_predicts_as_well(tmp_path: Path) -> None:
    own = ChangeableCalls(open_session(write_log(tmp_path / "zmq_performance.log", llama_calls())))
    assert predicted(own, "bytes=0.5").gain_ns == pytest.approx(BYTES_NS / 2, rel=0.01)


def test_the_best_changes_come_first(own: ChangeableCalls) -> None:
    best = own.best(Doubt())
    assert [one.change for one in best[:3]] == ["transport=shm", "server*=0.5", "bytes=0.5"]
