"""`flagscale-perf profile watch`, its runs made by hand."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from flagscale_perf.cli import main, profile_watch
from flagscale_perf.cli.profile_watch import _next, noise_of
from flagscale_perf.cli.stopping import Stop
from flagscale_perf.spine.errors import PerfError
from tests.profile_runs import make_profile

Watch = Callable[..., int]


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Watch:
    """`watch(scales, *options)`: each run's profile takes so many times as long; None fails."""

    def run(scales: Sequence[float | None], *options: str) -> int:
        waiting, names = iter(scales), _names()

        def one(words: Sequence[str], directory: Path, _: Stop) -> None:
            assert list(words[-2:]) == ["--dir", str(directory)]
            scale = next(waiting)
            directory.mkdir(parents=True)
            if scale is None:
                raise PerfError("flagscale-perf profile run ended with 2: out of memory")
            make_profile(scale).write(directory)

        monkeypatch.setattr(profile_watch, "_run", one)
        monkeypatch.setattr(profile_watch.time, "strftime", lambda _: next(names))
        monkeypatch.setattr(profile_watch.time, "sleep", lambda _: None)
        words = ["--baseline", str(tmp_path / "base"), "--dir", str(tmp_path / "runs"), *options]
        return main(["profile", "watch", "--times", str(len(scales)), *words])

    return run


def _names() -> Iterator[str]:
    return (f"20240129_1030{second:02}" for second in range(60))


def test_the_first_runs_are_the_baseline_and_a_slower_one_is_found(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch([1.0, 1.0, 1.0, 1.5]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert (
        lines[0] == f"run_20240129_103000: 1 of 3 runs of the baseline, {tmp_path}/base/run_20240129_103000"
    )
    assert lines[3].startswith("run_20240129_103003: +14.4 % (") and ", slower" in lines[3]
    assert sorted(path.name for path in (tmp_path / "base").iterdir()) == [
        f"run_20240129_10300{number}" for number in range(3)
    ]
    assert "SLOWER" in (tmp_path / "runs/run_20240129_103003/comparison.md").read_text()
    history = (tmp_path / "runs/history.csv").read_text().splitlines()
    assert history[0] == "run,outcome,change,low,high,noise,baseline_runs,worst"
    assert [line.split(",")[1] for line in history[1:]] == ["baseline"] * 3 + ["slower"]


def test_one_that_fails_is_said_and_the_next_one_runs(
    watch: Watch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert watch([1.0, None], "--baseline-runs", "1") == 2
    kept = tmp_path / "runs/failed_run_20240129_103001"
    assert (
        "run_20240129_103001: flagscale-perf profile run ended with 2: out of memory; what it wrote is in "
        f"{kept}\n"
    ) in capsys.readouterr().out
    assert kept.is_dir() and not (tmp_path / "runs/run_20240129_103001").exists()
    assert watch([None, 1.0], "--baseline-runs", "1", "--fail-if-slower", "90%") == 0


def test_only_the_newest_are_kept(watch: Watch, tmp_path: Path) -> None:
    watch([1.0] * 5, "--baseline-runs", "1", "--keep", "2", "--fail-if-slower", "90%")
    assert sorted(path.name for path in (tmp_path / "runs").glob("run_*")) == [
        "run_20240129_103003",
        "run_20240129_103004",
    ]
    assert len((tmp_path / "runs/history.csv").read_text().splitlines()) == 6


def test_what_is_no_measurement_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["profile", "watch", "--once", "--baseline", str(tmp_path)]
    assert main([*typed, "--", "profile", "report"]) == 2
    assert capsys.readouterr().err.startswith(
        "'profile report' is not watched; write profile run ... or bench"
    )
    with pytest.raises(SystemExit):
        main([*typed, "--every", "1 hour"])
    assert "'1 hour' is not a period; write one such as 30s, 10m, 1h or 1d" in capsys.readouterr().err


def test_a_real_command_that_fails_says_its_last_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = ["profile", "watch", "--once", "--baseline", str(tmp_path), "--dir", str(tmp_path / "runs")]
    assert main([*typed, "--", "bench", "latency", "--model", "nowhere"]) == 2
    assert "ended with 2: --model nowhere: there is no nowhere/config.json" in capsys.readouterr().out


def test_what_few_runs_show_of_their_noise() -> None:
    assert noise_of([1.0, 1.0]) is None
    found = noise_of([99.0, 100.0, 101.0])
    # deviation 1 of 100; t of 2 degrees of freedom is 4.303 where a normal distribution has 1.960
    assert found is not None and math.isclose(found, 0.01 * 4.3027 / 1.95996, rel_tol=1e-4)


def test_a_period_that_a_long_run_has_missed_is_left_out() -> None:
    assert [_next(0.0, 10, now) for now in (3.0, 10.0, 25.0)] == [10.0, 20.0, 30.0]
