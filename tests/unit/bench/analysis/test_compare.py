"""Two runs of experiments side by side."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.bench.analysis import compare as of_instrument
from flagscale_perf.bench.recording import Clock
from flagscale_perf.cli import main
from flagscale_perf.spine.errors import PerfError
from tests.bench_runs import GB, book_in, collective, local
from tests.compared import of_paths

compare = of_paths(of_instrument.compare)


def run_of(
    directory: Path, slower: float = 1.0, seed: int = 1, repetitions: int = 20, rate: float = 100.0
) -> Path:
    """All-reduces of 1 ms and of 10 s, a copy, and 100 tokens/s, give or take 1 %; `slower` all-reduces."""
    source = random.Random(seed)

    def around(value: float) -> list[float]:
        return [value * source.lognormvariate(0, 0.01) for _ in range(repetitions)]

    with book_in(directory) as book:
        with book.part("bandwidth", None, {"ranks": 4}) as part:
            collective(part, "all_reduce", 1024, around(0.001 * slower))
            collective(part, "all_reduce", GB, around(10.0 * slower))
            local(part, "copy", 0, around(0.1))
        with book.part("latency", None, {}) as part:
            part.point("throughput", "tokens/s", {"batch": 1}, around(rate), Clock(1))
    return book.path


def test_what_is_slower_is_named_and_each_point_counts_the_same(tmp_path: Path) -> None:
    """Two of four points take a fifth longer: the whole a tenth, 10 s or 1 ms alike."""
    base, new = run_of(tmp_path / "a"), run_of(tmp_path / "b", slower=1.2, seed=2)
    result = compare([base], [new], CompareOptions(noise=0.01, fail_if_slower=0.05))
    assert result.whole.base == pytest.approx(100, rel=0.01)
    assert result.whole.share == pytest.approx(0.1, abs=0.01)
    assert (result.whole.verdict, result.gate.outcome) == ("slower", "slower")
    assert result.culprits == ["bandwidth, all_reduce"]
    assert {row.name: row.verdict for row in result.phases} == {
        "bandwidth, all_reduce": "slower",
        "bandwidth, copy": "undecided",
        "latency, throughput": "undecided",
    }


def test_a_lower_rate_is_slower(tmp_path: Path) -> None:
    """One of four points at half of its rate: twice as long."""
    base, new = run_of(tmp_path / "a"), run_of(tmp_path / "b", rate=50.0, seed=2)
    result = compare([base], [new], CompareOptions(noise=0.01))
    assert result.whole.share == pytest.approx(0.25, abs=0.01)
    assert result.culprits == ["latency, throughput"]


def test_a_point_of_each_repetition_is_one_point_of_all_of_them(tmp_path: Path) -> None:
    """In whatever order they were measured; of several requests the median counts."""
    paths = []
    for name, factor in (("a", 1.0), ("b", 1.5)):
        with book_in(tmp_path / name) as book, book.part("latency", None, {}) as part:
            for repetition in (2, 0, 1):
                case = {"arm": "single", "batch": 3, "repetition": repetition}
                base = 1.0 + repetition / 100
                part.point("ttft", "s", case, [factor * base, 9.0, 0.1], Clock(1))
        paths.append(book.path)
    result = compare([paths[0]], [paths[1]], CompareOptions(noise=0.01))
    assert result.iterations == 3 and result.whole.share == pytest.approx(0.5)
    assert [row.name for row in result.phases] == ["latency, ttft"]


def test_runs_alike_are_alike(tmp_path: Path) -> None:
    base, new = run_of(tmp_path / "a"), run_of(tmp_path / "b", seed=2)
    result = compare([base], [new], CompareOptions())
    assert (result.whole.verdict, result.culprits, result.differences) == ("undecided", [], [])


def test_the_command_says_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_of(tmp_path / "a"), run_of(tmp_path / "b", slower=1.5, seed=2)
    assert (
        main(["compare", str(base.parent), str(new.parent), "--fail-if-slower", "5%", "--noise", "1%"]) == 1
    )
    shown = capsys.readouterr().out
    assert "SLOWER: by more than noise, and by more than 5" in shown
    assert "above all in bandwidth, all_reduce" in shown


def test_points_of_one_side_alone_are_left_out(tmp_path: Path) -> None:
    base = run_of(tmp_path / "a")
    with book_in(tmp_path / "b") as book, book.part("bandwidth", None, {"ranks": 4}) as part:
        local(part, "copy", 0, [0.1, 0.1, 0.1])
    result = compare([base], [book.path], CompareOptions())
    assert (result.iterations, [row.name for row in result.phases]) == (3, ["bandwidth, copy"])
    assert result.base_runs[0].left_out == {"points that not every run has": 3, "not in every run": 17}


def test_what_has_nothing_in_common_is_refused(tmp_path: Path) -> None:
    base = run_of(tmp_path / "a")
    with book_in(tmp_path / "b") as book, book.part("bandwidth", None, {}) as part:
        local(part, "copy", 7, [0.1, 0.1])
    with pytest.raises(PerfError, match="no point of 2 repetitions in common: .*has 4 .*has 1 points"):
        compare([base], [book.path], CompareOptions())
