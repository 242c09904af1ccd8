"""The face that records calls, and what its writer makes of them."""

from __future__ import annotations

import pytest

from flagscale_perf.arguments import PerfConfig
from flagscale_perf.rpc.facts import RpcFacts
from flagscale_perf.rpc.recording import RecordingOptions, RpcPipeline, RpcRecorder, ServerSource
from flagscale_perf.spine.clock import Anchor
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.spine.peers.node import News
from flagscale_perf.writer.task import WriterTask
from tests.rpc_sessions import FACTS, make_call, make_served


def pipeline(tmp_path) -> RpcPipeline:
    return RpcPipeline(WriterTask({}, FACTS.as_dict(), Anchor.now(), 1, tmp_path), None)


def test_a_slot_is_a_record_and_the_last_number_the_position(tmp_path) -> None:
    made = pipeline(tmp_path)
    records = [make_call(1), make_call(3), make_call(2), make_served(2)]
    assert made.join(records, is_full=False) == (records, 4)
    assert [made.fold(record, 0) for record in records] == [[]] * 4
    assert made.position == 3
    made.begin()
    assert made.position == 0
    made.replay(make_call(7), 0)
    assert (made.position, made.owed(), made.collect(), made.close(0)) == (7, [], [], [])


def test_it_looks_often_enough_for_a_live_log(tmp_path) -> None:
    assert pipeline(tmp_path).period_s <= 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"log_file": "."}, "is a directory; name a file in it"),
        ({"methods": "a,,b"}, "methods 'a,,b' has an empty name"),
        ({"directory": " "}, "directory is ' '; give a path"),
        ({"monitor": PerfConfig(perf_prometheus_port="x")}, "^--perf-prometheus-port: 'x' has no port"),
    ],
)
def test_what_cannot_be_meant_is_refused_at_once(options, message) -> None:
    with pytest.raises(PerfError, match=message):
        RpcRecorder.start(RpcFacts(), RecordingOptions(**options))


def test_options_are_in_the_header(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = RecordingOptions(log_file="a.log", methods="Matmul", append=True).as_dict()
    assert (config["rpc_log_file"], config["rpc_methods"], config["rpc_append"]) == (
        str(tmp_path / "a.log"),
        ["Matmul"],
        True,
    )
    assert config["perf_log_dir"] == "logs/rpc"


class Late:
    """A server whose last record comes only when it has been looked for three times."""

    def __init__(self, items) -> None:
        self.items = items

    def cycle(self) -> News:
        return News(items=self.items.pop(0) if self.items else [])

    def close(self) -> News:
        return self.cycle()


def test_the_servers_record_of_the_last_call_is_waited_for() -> None:
    source = ServerSource(Late([[make_served(1)], [], [], [make_served(2)]]))
    assert source.take() == [make_served(1)]
    assert source.close(2) == [make_served(2)]


def test_a_server_that_records_nothing_is_not_waited_for() -> None:
    late = Late([[], [make_served(1)], [make_served(2)]])
    source = ServerSource(late)
    assert source.take() == []
    assert source.close(2) == [make_served(1)]
    assert late.items == [[make_served(2)]]


def test_paths_are_texts_or_paths_and_nothing_else(tmp_path) -> None:
    given = RecordingOptions(directory=tmp_path, log_file=tmp_path / "a.log").as_dict()
    assert (given["perf_log_dir"], given["rpc_log_file"]) == (str(tmp_path), f"{tmp_path}/a.log")
    for wrong in ({"directory": 3}, {"log_file": 3}):
        with pytest.raises(PerfError, match=r"is 3; give a path, for example 'logs/run1'"):
            RecordingOptions(**wrong).as_dict()
    with pytest.raises(PerfError, match=r"methods 3 is no list of names; write names, such as Lookup,Matmul"):
        RecordingOptions(methods=3).as_dict()
