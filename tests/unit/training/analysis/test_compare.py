from __future__ import annotations

import pytest

from flagscale_perf.analysis.compare.compare import CompareOptions, Figure, RunEntry
from flagscale_perf.training.analysis.compare import NOISE, REHEARSAL_NOISE, compare
from tests.fakes import make_step
from tests.run_files import steady, write


def test_a_phase_that_takes_longer_is_named(tmp_path) -> None:
    base, new = write(tmp_path / "a", steady(60)), write(tmp_path / "b", steady(60, more_backward_ms=6))
    result = compare([base], [new], CompareOptions())
    assert (result.whole.verdict, result.whole.change, result.culprits) == ("slower", 6, ["backward"])
    assert (result.basis, result.unit, result.is_by_iteration) == ("iteration", "ms", True)
    assert (result.iterations, result.first_iteration, result.last_iteration) == (50, 11, 60)
    assert [row.name for row in result.phases if row.verdict != "no difference"] == ["backward"]
    assert result.base_runs == [RunEntry(str(base), "20240129_103000", 100, {"warm-up": 10}, 0)]
    assert result.figures == [
        Figure("mean", 100, 106, pytest.approx(0.06)),
        Figure("p95", 101, 107, pytest.approx(6 / 101)),
        Figure("tokens_per_s", 10240, pytest.approx(10240 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("tokens_per_s_per_gpu", 1280, pytest.approx(1280 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("tflops_per_gpu", 5, pytest.approx(5 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("memory_peak_gb", 3, 3, 0),
    ]
    assert compare([new], [base], CompareOptions()).culprits == []


def test_twice_the_devices_and_tokens_for_the_same_time_is_no_difference(tmp_path) -> None:
    base = write(tmp_path / "a", steady(40))
    new = write(tmp_path / "b", steady(40, samples=16, tokens=2048, model_flops=8 * 10**12), world_size=16)
    result = compare([base], [new], CompareOptions())
    assert (result.basis, result.whole.base, result.whole.new) == (
        "token",
        8 * 100e3 / 1024,
        8 * 100e3 / 1024,
    )
    assert (result.whole.verdict, result.figures[3].change) == ("no difference", 0)
    assert [one.name for one in result.differences] == ["world_size"]


@pytest.mark.parametrize(
    ("more_ms", "limit", "is_failed", "could_be_slower"),
    [
        (6, None, False, False),
        (6, 0.05, True, False),
        (6, 0.07, False, True),
        (6, 0.10, False, False),
        (1, 0.005, False, True),
    ],
)
def test_the_gate_needs_more_than_noise_and_more_than_the_limit(
    tmp_path, more_ms, limit, is_failed, could_be_slower
) -> None:
    base, new = write(tmp_path / "a", steady(60)), write(tmp_path / "b", steady(60, more_backward_ms=more_ms))
    result = compare([base], [new], CompareOptions(fail_if_slower=limit))
    assert (result.is_failed, result.could_be_slower) == (is_failed, could_be_slower)


def test_the_noise_between_runs_and_where_it_is_from(tmp_path) -> None:
    def noise(assumed: float | None = None, runs: int = 1, **facts: bool) -> tuple[float, str]:
        files = [write(tmp_path / str(n), steady(40), **facts) for n in range(2 * runs)]
        result = compare(files[:runs], files[runs:], CompareOptions(noise=assumed))
        return result.noise, result.noise_source

    assert noise() == (NOISE, "assumed for devices")
    assert noise(rehearsal=True) == (REHEARSAL_NOISE, "assumed for rehearsals on a CPU")
    assert noise(0.002) == (0.002, "--noise")
    assert noise(runs=3) == (0, "seen between the runs of each side")


def test_the_same_files_give_the_same_answer(tmp_path) -> None:
    files = [write(tmp_path / "a", steady(60)), write(tmp_path / "b", steady(60, more_backward_ms=2))]
    first, second = (compare(files[:1], files[1:], CompareOptions()).as_dict() for _ in range(2))
    assert first == second
    assert next(iter(first.items())) == ("comparison_version", 1)


def test_damaged_lines_are_counted(tmp_path) -> None:
    path = write(tmp_path / "a", [make_step(n) for n in range(1, 41)])
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    assert compare([path], [path], CompareOptions()).base_runs[0].skipped_lines == 1


def test_without_phases_in_every_step_there_are_none(tmp_path) -> None:
    without = [step for step in steady(40) if hasattr(step, "tokens")]
    base, new = write(tmp_path / "a", without), write(tmp_path / "b", steady(40))
    assert compare([base], [new], CompareOptions()).phases == []
