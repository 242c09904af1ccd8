"""Points of a result."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flagscale_perf.analysis.job import open_session
from flagscale_perf.bench.analysis.served import drift_of, remarks_of
from flagscale_perf.bench.analysis.source import read_bench
from flagscale_perf.bench.recording import Clock
from flagscale_perf.bench.serving.cases import Arm, Case, Load, arms_of
from flagscale_perf.bench.serving.measure import Result, Value, job, keep, measure, points_of
from flagscale_perf.bench.serving.model import read_model
from flagscale_perf.bench.serving.options import Chosen
from flagscale_perf.bench.serving.vllm_python import Devices
from flagscale_perf.spine.errors import PerfError
from tests.bench_runs import book_in


def test_a_result_is_a_point_of_each_figure(tmp_path: Path) -> None:
    result = Result([0.5], [0.25], 1, [1.0, 2.0], 2.0, prompt_tokens=8, output_tokens=6)
    with book_in(tmp_path) as book, book.part("latency", 6, {}) as part:
        keep(part, {"arm": "single"}, result, Clock(1, 2))
    found = read_bench(open_session(book.path)).parts["latency"]
    assert {point.figure: (point.unit, point.samples) for point in found.points} == {
        "ttft": ("s", [0.5]),
        "tpot": ("s", [0.25]),
        "latency": ("s", [1.0, 2.0]),
        "duration": ("s", [2.0]),
        "throughput": ("tokens/s", [3.0]),
        "tokens": ("tokens/s", [7.0]),
    }
    assert [(one.figure, one.value) for one in found.figures] == [("in_few_pieces", 1.0)]


def chosen(tensor: list[int], cases: list[Case]) -> Chosen:
    devices = Devices("core", ("0", "1"))
    arms = arms_of(tensor, [])
    return Chosen("python", read_model(None, 64), devices, arms, cases, 3, [], Path("out"), True)


def test_one_token_makes_a_point_less_and_several_arms_are_followed_by_the_first() -> None:
    assert points_of(chosen([], [Case(1, 8, 2)]), 1) == 3 * 6
    assert points_of(chosen([], [Case(1, 8, 1)]), 1) == 3 * 5
    assert points_of(chosen([2], [Case(1, 8, 2)]), 2) == 2 * (2 * 3 + 1) * 6


class Slowing:
    """An engine on a machine that becomes slower with each arm; TP 4 does not come up."""

    name = "slowing"

    def __init__(self, fails_behind: int = 99) -> None:
        self.said: list[str] = []
        self.fails_behind = fails_behind

    @contextmanager
    def serve(self, arm: Arm) -> Iterator[None]:
        if arm.tensor == 4 or self.said.count("end") == self.fails_behind:
            raise PerfError("too small")
        self.said.append(arm.name)
        yield
        self.said.append("end")

    def run(self, load: Load) -> Result:
        seconds = 1.0 + 0.1 * self.said.count("end")
        return Result([seconds], [], 0, [seconds], seconds, 8, 1)

    def values(self) -> Iterator[Value]:
        yield "memory", "GB", 1.0, ""


def test_one_arm_after_another_and_the_first_again_tell_the_drift(tmp_path: Path) -> None:
    wanted, engine = chosen([4, 2], [Case(1, 8, 1)]), Slowing()
    with book_in(tmp_path) as book, book.part("latency", 30, {"repeats": 3}) as part:
        measure(part, wanted, engine, {"": job})
    assert engine.said == ["single", "end", "TP 2", "end", "single", "end"]
    found = read_bench(open_session(book.path)).parts["latency"]
    points = [(point.case["arm"], point.case["repetition"], *point.samples) for point in found.of("duration")]
    assert points == [
        *(("single", number, 1.0) for number in range(3)),
        *(("TP 2", number, 1.1) for number in range(3)),
        ("single", 3, 1.2),
    ]
    assert [one.why for one in found.values("duration", arm="TP 4")] == ["too small"]
    assert [one.case["arm"] for one in found.values("memory")] == ["single", "TP 2"]
    assert drift_of(found) == [pytest.approx(0.2)]
    (drift,) = remarks_of(found)
    assert drift.text.startswith("Measured again at the end, the single device takes +20.0% longer")
    assert drift.tone == "warn"


def test_what_was_measured_outlasts_a_first_arm_that_fails_only_when_it_is_measured_again(
    tmp_path: Path,
) -> None:
    wanted = chosen([2], [Case(1, 8, 1)])
    with book_in(tmp_path) as book, book.part("latency", 30, {"repeats": 3}) as part:
        measure(part, wanted, Slowing(fails_behind=2), {"": job})
        with pytest.raises(PerfError, match="too small"):
            measure(part, wanted, Slowing(fails_behind=0), {"": job})
    found = read_bench(open_session(book.path)).parts["latency"]
    assert [one.why for one in found.values("duration", arm="single")] == [
        "at the end, for the drift: too small"
    ]
    assert drift_of(found) == []
