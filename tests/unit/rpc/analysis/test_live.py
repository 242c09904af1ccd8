"""Calls while they are made."""

from __future__ import annotations

from flagscale_perf.report.watch import Frame, as_text
from flagscale_perf.rpc.analysis.live import LiveCalls
from flagscale_perf.spine.records import EventRecord
from tests.golden import golden
from tests.rpc_sessions import SECOND, ended, llama_calls, make_call, make_session

START_NS = make_session().start_wall_ns


def live_of(*records) -> LiveCalls:
    live = LiveCalls(make_session())
    for record in records:
        live.add(record)
    return live


def screen(live: LiveCalls, seconds: float = 0, has_writer: bool = True, width: int = 100) -> str:
    report = live.report(has_writer, START_NS + round(seconds * SECOND))
    return as_text(Frame(report, ("perf_records.jsonl",)), width)


def test_the_screen() -> None:
    live = live_of(*llama_calls(), EventRecord("failure", 1, 2, "no room"))
    assert screen(live, 31.5) == golden("rpc_watch.txt")


def test_before_the_first_call_and_after_the_last() -> None:
    assert "no call yet" in screen(live_of())
    assert "no call for 9.0 s" in screen(live_of(make_call(99)), 10)
    assert screen(live_of(make_call(1), ended())).startswith("COMPLETED")
    assert screen(live_of(make_call(1)), has_writer=False).startswith("KILLED")


def test_failures_are_said() -> None:
    assert "1 failed, the last one call 2: TIMEOUT" in screen(live_of(make_call(1), make_call(2, status=1)))


def test_memory_is_bounded() -> None:
    live = live_of(*(make_call(n, start_ns=n * SECOND, method=f"m{n}") for n in range(1, 1000)))
    assert len(live._seconds) == 240 and "more methods" in screen(live)
    assert live.before() == "before: session 20240129_103000, 999 calls"


def test_a_stage_that_only_some_calls_tell_is_said() -> None:
    shown = " ".join(screen(live_of(make_call(1), make_call(2, queue_ns=None, server_ns=None))).split())
    assert "not told by all 2 calls: queue by 1, server by 1; sums and means are of these" in shown
