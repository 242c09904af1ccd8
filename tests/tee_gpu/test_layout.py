"""The analysis in the layout that its users know."""

from __future__ import annotations

from pathlib import Path

import pytest
from diagnosis.layout import layout
from diagnosis.rules import judge_split
from diagnosis.words import CHINESE, ENGLISH, Words

from flagscale_perf.analysis.job import open_session
from flagscale_perf.rpc.analysis.instrument import read_calls
from tests.golden import golden
from tests.rpc_sessions import MS, REQUIREMENT_LOG, make_call, write_log, write_run
from tests.tee_gpu.sessions import calls_of


def page(path: Path, words: Words = ENGLISH) -> str:
    return layout(judge_split(read_calls(open_session(path))), words)


def test_of_the_requirements_own_log(tmp_path) -> None:
    (tmp_path / "a.log").write_text(REQUIREMENT_LOG)
    assert page(tmp_path / "a.log") == golden("analyze_zmq_performance_foreign.txt")


@pytest.mark.parametrize(("words", "name"), [(ENGLISH, ""), (CHINESE, "_chinese")])
def test_of_the_requirements_workload(tmp_path, words, name) -> None:
    made = page(write_log(tmp_path / "a.log", calls_of()), words)
    assert made == golden(f"analyze_zmq_performance{name}.txt")


def test_percentages_add_up(tmp_path) -> None:
    lines = page(write_run(tmp_path, calls_of())).splitlines()
    shares = [float(line.split("(")[1].rstrip("%)")) for line in lines if line.endswith("%)")]
    assert (len(shares), round(sum(shares), 1)) == (7, 100.0)
    begin = lines.index("STATISTICS BY METHOD")
    methods = [line.split()[-1] for line in lines[begin + 4 : begin + 8]]
    assert round(sum(float(share.rstrip("%")) for share in methods), 1) == 100.0


def test_no_advice_where_nothing_is_above_a_threshold(tmp_path) -> None:
    quiet = make_call(1, sent_bytes=10, received_bytes=10, serialize_ns=0)
    made = page(write_run(tmp_path, [quiet]))
    assert "None: nothing is above a threshold." in made and "⚠️" not in made


def test_no_name_can_forge_a_line(tmp_path) -> None:
    made = page(write_run(tmp_path, [make_call(1, method="a\nTotal: 1\x1b[31m")]))
    assert "\x1b" not in made and "\nTotal: 1" not in made


def test_the_stages_of_the_slowest_calls_add_up(tmp_path) -> None:
    calls = [make_call(n, total_ns=(9 + n) * MS) for n in range(1, 4)]
    lines = page(write_run(tmp_path, calls)).splitlines()
    begin = next(n for n, line in enumerate(lines) if "Slowest Calls" in line)
    titles = lines[begin + 1].split()
    assert titles[2:] == [
        "Total(ms)",
        "Serialize",
        "Send",
        "Recv",
        "Deserialize",
        "Wait",
        "Queue",
        "Server",
        "Other",
    ]
    for line in lines[begin + 3 : begin + 6]:
        total, *stages = map(float, line.split()[2:])
        assert total == pytest.approx(sum(stages))
