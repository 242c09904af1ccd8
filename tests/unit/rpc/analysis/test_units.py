"""What is compared of a session of calls."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.compare.driver import MAX_UNITS
from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.units import CALL, LAYER, METHOD, STAGE, read_units
from flagscale_perf.spine.errors import PerfError
from tests.rpc_sessions import MS, fused, llama_calls, make_call, split, write_log, write_run


def decoding(tokens: int):
    """A prefill and some tokens behind it, whose calls grow with the cache."""
    calls = llama_calls()
    for token in range(tokens):
        calls += llama_calls(split(tokens=1, cached=1024 + token), first=len(calls) + 1)
    return calls


def test_layers_of_every_pass_are_found_and_their_parts_add_up(tmp_path) -> None:
    calls = decoding(3)
    read = read_units(open_session(write_run(tmp_path, calls)), warmup=0)
    assert (read.kind, len(read.units), read.left_out) == (LAYER, 64, {"calls outside of layers": 8})
    unit = read.units[0]
    assert (unit.number, unit.amounts) == (2, {"calls": 6, "moved_mib": 436})
    for kind in (STAGE, METHOD):
        assert sum(took or 0 for name, took in unit.parts.items() if name.startswith(kind)) == unit.time
    assert unit.time == sum(call.total_ns for call in calls[1:7])


def test_a_fused_layer_is_one_call(tmp_path) -> None:
    read = read_units(open_session(write_run(tmp_path, llama_calls(fused()))), warmup=0)
    assert (read.kind, len(read.units), read.units[0].amounts["calls"]) == (LAYER, 16, 1)


def test_a_log_has_the_same_units(tmp_path) -> None:
    calls = llama_calls()
    run, log = (
        read_units(open_session(path), 0)
        for path in (write_run(tmp_path, calls), write_log(tmp_path / "l", calls))
    )
    assert [unit.number for unit in run.units] == [unit.number for unit in log.units]


def test_of_several_sessions_in_a_log_the_last_one_counts(tmp_path) -> None:
    earlier = [make_call(n, method="Other", total_ns=20 * MS) for n in range(1, 41)]
    log = write_log(tmp_path / "l", earlier)
    first = log.read_text(encoding="utf-8")
    last = write_log(log, llama_calls()).read_text(encoding="utf-8")
    alone = read_units(open_session(log), 0)
    log.write_text(first + last, encoding="utf-8")
    read = read_units(open_session(log), 0)
    assert (read.kind, read.units, read.left_out) == (LAYER, alone.units, alone.left_out)


def test_a_machine_whose_calls_are_not_in_order_is_one(tmp_path) -> None:
    """As of several threads that call at once."""
    calls = [make_call(n) for n in (2, 1, 4, 3, 6, 5, 8, 7, 9)]
    read = read_units(open_session(write_run(tmp_path, calls)), warmup=0)
    assert (len(read.units), read.left_out) == (9, {})


def test_calls_without_a_pattern_are_units_themselves(tmp_path) -> None:
    methods = [f"m{n * n % 17}" for n in range(12)]
    calls = [make_call(n, method=method) for n, method in enumerate(methods, 1)]
    read = read_units(open_session(write_run(tmp_path, calls)), warmup=2)
    assert (read.kind, len(read.units), read.left_out) == (CALL, 10, {"calls at the start": 2})
    assert read.units[0].time == 10 * MS


def test_only_so_much_is_left_out_at_the_start(tmp_path) -> None:
    read = read_units(open_session(write_run(tmp_path, llama_calls())), warmup=100)
    assert (len(read.units), read.left_out["layers at the start"]) == (12, 4)


def test_a_long_session_is_read_in_bounded_memory(tmp_path) -> None:
    calls = [make_call(n) for n in range(1, MAX_UNITS + 101)]
    read = read_units(open_session(write_run(tmp_path, calls)), warmup=0)
    assert len(read.units) == MAX_UNITS and read.left_out == {f"beyond the first {MAX_UNITS}": 100}


def test_too_little_is_refused(tmp_path) -> None:
    with pytest.raises(PerfError, match="has 3 layers to compare; 8 are needed: record a longer run"):
        read_units(open_session(write_run(tmp_path, [make_call(n) for n in (1, 2, 3)])), warmup=0)
