"""Trace lines in text of every kind."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.trace.analysis.lines import TraceLines
from flagscale_perf.trace.analysis.source import Traces, read_traces
from tests.trace_runs import lines_of_call, lines_of_put


def _read(directory: Path, lines: list[str], name: str = "training.log", end: str = "\n") -> Traces:
    path = directory / name
    path.write_text("\n".join(lines) + end)
    return read_traces(open_session(path))


def _figures(traces: Traces) -> dict[str, tuple[int, float, float, float, float]]:
    return {
        name: (one.calls, *(round(part / 1e6, 3) for part in (one.total.total, *one.parts())))
        for name, one in traces.sums.functions.items()
    }


ONE = {"rollout": (1, 914.024, 52.0, 800.0, 62.024)}


@pytest.mark.parametrize(
    ("before", "behind"),
    [
        ("", ""),
        ("\x1b[36m(Rollout pid=77, ip=10.0.0.3)\x1b[0m ", ""),
        ("(Rollout pid=77) INFO 2024-01-29 10:30:00 ", ""),
        ("", " | timestamp=1706524200.000000 | pid=77 | number=1"),
        ("", "\x1b[0m"),
        ("\x1b[32mINFO\x1b[0m ", "\r"),
    ],
)
def test_whatever_stands_around_them(tmp_path: Path, before: str, behind: str) -> None:
    traces = _read(tmp_path, ["step 1", *lines_of_call(before=before, behind=behind), "step 2"])
    assert _figures(traces) == ONE
    assert (traces.losses.torn, traces.losses.unfinished) == (0, 0)
    process = {process for process, _ in traces.sums.by_process}
    whose = {"ip=10": "process 77@10.0.0.3", "pid=7": "process 77"}
    assert process == {
        next((label for mark, label in whose.items() if mark in before + behind), "unknown process")
    }


def test_fields_may_come_in_another_order(tmp_path: Path) -> None:
    lines = [
        line.replace(" | func=rollout", "").replace(" | stage=", " | pid=7 | func=rollout | stage=")
        for line in lines_of_call()
    ]
    assert _figures(_read(tmp_path, lines)) == ONE


def test_interleaved_calls_that_share_an_id_or_have_none_are_as_many_as_they_are(tmp_path: Path) -> None:
    calls = [
        lines_of_call(trace_id=trace, before=f"(W pid={pid}) ")
        for trace in ("N/A", "N/A", "same", "same")
        for pid in (1, 2)
    ]
    traces = _read(tmp_path, [line for lines in zip(*calls, strict=True) for line in lines])
    assert _figures(traces)["rollout"][0] == 8
    assert [one.calls for one in traces.sums.by_process.values()] == [4, 4]
    assert traces.sums.trace_count == 5  # one id, and four calls without one


def test_two_processes_in_one_line_are_both_read(tmp_path: Path) -> None:
    one, two = lines_of_call(before="(W pid=1) "), lines_of_call("train", before="(W pid=2) ")
    lines = [*one[:-1], *two[:-1], one[-1] + two[-1]]
    assert {name: figures[0] for name, figures in _figures(_read(tmp_path, lines)).items()} == {
        "rollout": 1,
        "train": 1,
    }


@pytest.mark.parametrize("cut", range(1, 60))
def test_a_torn_line_is_counted_and_nothing_else_is_lost(tmp_path: Path, cut: int) -> None:
    whole, torn = lines_of_call(), lines_of_call(trace_id="ffffffff")
    place = torn[-1].index(" | total_duration") - 5
    traces = _read(tmp_path, [*whole, *torn[:-1], torn[-1][:place][: -cut or None]])
    assert _figures(traces)["rollout"][:2] == ONE["rollout"][:2]
    assert traces.losses.unfinished == 1
    if "[TQ-" in torn[-1][:place][:-cut]:
        assert traces.losses.torn == 1


_HEAD = "[TQ-TRACE] trace_id=a1 | func=rollout | stage="
_END = f"{_HEAD}GET_END | duration=0.052000s"


@pytest.mark.parametrize(
    ("line", "ends", "torn"),
    [
        (_END, 1, 0),
        (f"{_END[:-1]}", 0, 1),
        (f"{_HEAD}GET_END | duration=\u0663s", 0, 1),  # a digit, but none that we write
        (f"{_HEAD}GET_EN", 0, 1),
        (f"{_HEAD}GET_END | dura{_END}", 1, 1),  # another process wrote into it
        (f"{_END[:30]}{_END}", 1, 1),
        (f"[TQ-DETAIL]{_END.removeprefix('[TQ-TRACE]')}", 0, 1),
        (f"[TQ-TRA{_END}", 1, 1),
        (_END.replace("func=rollout | ", ""), 0, 1),
    ],
)
def test_what_is_whole_in_a_damaged_line_counts_and_the_rest_is_torn(line: str, ends: int, torn: int) -> None:
    lines = TraceLines()
    found = sum(len(column.seconds) for column in lines.read([line.encode()]))
    assert (found, lines.torn, lines.lines) == (ends, torn, line.count("[TQ-"))


def test_the_last_line_may_be_cut_in_a_figure(tmp_path: Path) -> None:
    lines = lines_of_call()
    traces = _read(tmp_path, [*lines[:2], lines[2][:-3]], end="")
    assert (traces.losses.torn, traces.losses.unfinished, traces.sums.calls) == (1, 1, 0)


def test_what_ray_left_out_is_counted_and_the_complete_files_named(tmp_path: Path) -> None:
    """Of 4 x 25 equal lines those of one process are there, and one for the other 75."""
    last = lines_of_call(before="\x1b[36m(W pid={pid})\x1b[0m ")[-1]
    lines = [last.format(pid=1)] * 25
    lines.append(last.format(pid=4) + "\x1b[32m [repeated 75x across cluster]\x1b[0m")
    own = tmp_path / "logs" / "trace"
    own.mkdir(parents=True)
    (own / "tq_trace_4.log").write_text("")
    traces = _read(tmp_path, lines)
    assert (traces.sums.calls, traces.losses.repeated, traces.losses.lossy) == (26, 74, {"4"})
    assert traces.complete == [str(own / "tq_trace_4.log")]


def test_gaps_in_the_numbers_are_losses_and_what_is_there_twice_is_said(tmp_path: Path) -> None:
    lines = [line for number in (1, 2, 5) for line in lines_of_call(behind=f" | pid=7 | number={number}")]
    assert _read(tmp_path, lines).losses.lost == 2
    assert _read(tmp_path, lines[:16] * 2).losses.twice == 2


def test_weights_are_of_sampled_calls(tmp_path: Path) -> None:
    traces = _read(tmp_path, lines_of_call(behind=" | number=1 | weight=10") + lines_of_call())
    one = traces.sums.functions["rollout"]
    assert (one.total.count, one.total.weight) == (2, 11)


def test_an_operation_says_its_size_and_shape(tmp_path: Path) -> None:
    behind = " | batch_size=64 | fields=4 | data_size_mb=1.000000 | pid=7 | number=1 | partition=train"
    put = _read(tmp_path, lines_of_put(took_ms=4.0, speed=250.0, behind=behind)).sums.operations
    one = put[0]  # type: ignore[index]
    assert (one.total.total, one.size.total, one.rows.total) == (4e6, 1 << 20, 64)
    assert list(one.shapes.kept) == [(64, 4, 145)]


def test_errors_are_counted_by_name(tmp_path: Path) -> None:
    lines = lines_of_call()
    lines[-1] += " | status=error | error=ValueError"
    assert dict(_read(tmp_path, lines).sums.functions["rollout"].errors) == {"ValueError": 1}


def test_stages_whose_lines_are_missing_follow_from_the_last_line(tmp_path: Path) -> None:
    lines = [line for line in lines_of_call() if "GET_END" not in line]
    calls, total, get, *_ = _figures(_read(tmp_path, lines))["rollout"]
    assert (calls, total, get) == (1, 914.024, round(914.024 * 0.0569, 3))


def test_rotated_and_compressed_parts_and_directories_of_workers(tmp_path: Path) -> None:
    text = ("\n".join(lines_of_call()) + "\n").encode()
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(text))
    (tmp_path / "a.log.1").write_bytes(text)
    (tmp_path / "a.log").write_bytes(text)
    assert read_traces(open_session(tmp_path)).sums.calls == 3
    alone = read_traces(open_session(tmp_path / "a.log"))
    assert alone.sums.calls == 1
    assert alone.events == [
        "rotated parts that are not read: a.log.2.gz, a.log.1; give them, too, or the directory"
    ]
    (tmp_path / "worker-abc-01000000-77.out").write_bytes(text)
    (tmp_path / "worker-abc-01000000-78.err").write_bytes(text)
    workers = read_traces(open_session(tmp_path))
    assert {process for process, _ in workers.sums.by_process} == {"process 77", "process 78"}
    (tmp_path / "tq_trace_77.log").write_bytes(text)
    assert read_traces(open_session(tmp_path)).sums.calls == 1
