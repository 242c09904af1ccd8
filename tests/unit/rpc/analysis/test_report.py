"""What is found in the calls of a session."""

from __future__ import annotations

import json

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from flagscale_perf.rpc.log import METHODS
from tests.rpc_sessions import MS, REQUIREMENT_LOG, llama_calls, make_call, write_log, write_run


def test_bytes_are_the_closed_form_and_sums_agree(tmp_path) -> None:
    found = read_calls(open_session(write_run(tmp_path, llama_calls())))
    overall = found.overall
    assert (overall.calls, len(found.totals.methods)) == (98, 4)
    assert (round(overall.sent_bytes / 2**20, 2), round(overall.received_bytes / 2**20, 2)) == (
        3328.02,
        3656.49,
    )
    assert sum(overall.stages_ns) == overall.total_ns
    for figure in ("calls", "total_ns", "sent_bytes", "received_bytes"):
        assert sum(getattr(one, figure) for _, one, _ in found.by_method()) == getattr(overall, figure)
    assert [name for name, *_ in found.by_method()] == ["Matmul", "BatchLinear", "Embedding", "LMHead"]
    assert round(sum(1000 * share for *_, share in found.by_method())) == 1000


def test_top_calls_are_five_and_sorted(tmp_path) -> None:
    found = read_calls(open_session(write_run(tmp_path, llama_calls())))
    assert [call.number for call in found.slowest] == [4, 10, 16, 22, 28]
    assert [call.number for call in found.largest] == [3, 4, 9, 10, 15]
    moved = [call.sent_bytes + call.received_bytes for call in found.largest]
    assert moved == sorted(moved, reverse=True)


def test_a_log_gives_what_its_run_file_gives_to_its_precision(tmp_path) -> None:
    calls = llama_calls()
    run, log = (
        read_calls(open_session(write_run(tmp_path, calls))),
        read_calls(open_session(write_log(tmp_path / "a.log", calls))),
    )
    assert abs(run.overall.total_ns - log.overall.total_ns) < 98 * 1000
    assert abs(run.overall.sent_bytes - log.overall.sent_bytes) < 98 * 6
    assert log.layer is not None and run.layer is not None
    assert (log.layer.repeats, len(log.layer.steps)) == (run.layer.repeats, len(run.layer.steps))
    assert (log.wall_ns, run.missing, log.missing) == (None, 0, 0)


def test_gaps_are_counted_unless_methods_were_chosen(tmp_path) -> None:
    calls = [make_call(1), make_call(5)]
    assert read_calls(open_session(write_run(tmp_path, calls))).missing == 3
    assert read_calls(open_session(write_run(tmp_path, calls, **{METHODS: ["Matmul"]}))).missing is None


def test_wall_time_is_from_the_first_start_to_the_last_end(tmp_path) -> None:
    found = read_calls(open_session(write_run(tmp_path, [make_call(2), make_call(1)])))
    assert found.wall_ns == 20 * MS


def test_without_calls_nothing_is_judged(tmp_path) -> None:
    found = read_calls(open_session(write_run(tmp_path, [])))
    assert (found.overall.calls, found.findings, found.layer, found.wall_ns) == (0, [], None, None)
    json.dumps(found.as_dict())


def test_the_last_session_of_a_log_counts(tmp_path) -> None:
    (tmp_path / "a.log").write_text(REQUIREMENT_LOG + REQUIREMENT_LOG)
    assert read_calls(open_session(tmp_path / "a.log")).overall.calls == 3


def test_all_of_it_is_json(tmp_path) -> None:
    content = json.loads(json.dumps(read_calls(open_session(write_run(tmp_path, llama_calls()))).as_dict()))
    assert content["overall"]["calls"] == 98
    assert [each["name"] for each in content["findings"]][0] == "half_precision"
    assert round(sum(stage["share"] for stage in content["overall"]["stages"].values()), 9) == 1
