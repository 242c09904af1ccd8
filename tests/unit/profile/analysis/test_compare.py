"""Two profiles side by side."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions
from flagscale_perf.cli import main
from flagscale_perf.profile.analysis import compare as of_instrument
from flagscale_perf.profile.records import Sort
from flagscale_perf.report import html, json, png, text
from flagscale_perf.spine.errors import PerfError
from tests.compared import of_paths
from tests.profile_runs import FORWARD, MATMUL, MS, SILU, Profiled

compare = of_paths(of_instrument.compare)

LAYERS = ("model.layers.0", "model.layers.1", "model.layers.2")
LAYER_MS = 30


def _run(
    directory: Path,
    more_ms: Mapping[str, int] | None = None,
    *,
    seed: int = 1,
    steps: int = 20,
    clean: bool = True,
    tokens: int = 4096,
) -> Path:
    """2 ranks; a step is 3 layers of 20 ms of products and 10 ms of silu each and 10 ms of Python, give or
    take 2 %; a profiled one takes 5 ms longer. `more_ms`: of products in a layer, by the kind of step.
    """
    directory.mkdir()
    job, source = Profiled(), random.Random(seed)
    phases = more_ms or {"train": 0}
    processes = [job.rank(rank) for rank in (0, 1)]
    for phase, more in phases.items():
        own_ms = 3 * LAYER_MS + 10 + more
        for process in processes:
            for number in range(steps):
                start, took = number * 500, round(own_ms * source.lognormvariate(0, 0.02) * MS)
                job.step(
                    process,
                    start,
                    own_ms + 5,
                    own_ms - 5,
                    0,
                    10,
                    0,
                    0,
                    0,
                    phase=phase,
                    iteration=20 + 2 * number,
                    tokens=tokens,
                )
                if clean:
                    job.step(
                        process,
                        start + 200,
                        0,
                        total_ns=took,
                        phase=phase,
                        is_profiled=0,
                        iteration=21 + 2 * number,
                        tokens=tokens,
                    )
            for layer in LAYERS:
                products = 20 + (more if layer == LAYERS[1] else 0)
                for op, ms in ((MATMUL, products), (SILU, 10)):
                    row = (FORWARD, layer, Sort.OPERATOR, op, steps, ms * steps, None, None)
                    job.row(process, row, step_phase=phase, steps=steps)
            row = (FORWARD, "", Sort.HOST, "", steps, 10 * steps, None, None)
            job.row(process, row, step_phase=phase, steps=steps)
    for process in processes:
        job.window(process, steps=steps, clean_steps=steps if clean else 0)
    return job.write(directory)


def test_a_slower_layer_is_found_and_named_by_layer_and_by_kind_of_work(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", {"train": 30}, seed=2)
    found = compare([base], [new], CompareOptions(noise=0.01))
    assert (found.basis, found.iterations, found.whole.verdict) == ("clean train step", 20, "slower")
    assert found.culprits == ["kind matmul", "layer 1"]
    assert found.whole.base == pytest.approx(100, rel=0.02)
    assert found.whole.change == pytest.approx(30, rel=0.1)
    parts = {row.name: (row.base, row.new) for row in found.phases}
    assert parts == {  # of profiled steps, of the mean rank
        "kind matmul": pytest.approx((60, 90)),
        "kind activation": pytest.approx((30, 30)),
        "kind host": pytest.approx((10, 10)),
        "layer 0": pytest.approx((30, 30)),
        "layer 1": pytest.approx((30, 60)),
        "layer 2": pytest.approx((30, 30)),
        "outside of modules": pytest.approx((10, 10)),
    }
    assert found.base_runs[0].left_out == {"profiled steps": 20}
    observer = found.figures[2]
    assert (observer.name, observer.base) == ("observer", pytest.approx(1.05, rel=0.02))
    words = text.render(report_of(found))
    assert "compared by the median time of a clean train step" in words
    assert "kinds of work and places come from profiled steps, including the cost of profiling" in words


def test_the_same_again_is_no_difference_and_itself_is_said(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", seed=2)
    found = compare([base], [new], CompareOptions(fail_if_slower=0.5))
    assert (found.whole.verdict, found.culprits, found.differences) == ("undecided", [], [])
    assert found.gate is not None
    assert found.gate.outcome == "not slower"
    itself = compare([base], [base], CompareOptions(fail_if_slower=0.5))
    assert itself.same_run == base.stem
    assert itself.gate is not None
    assert itself.gate.outcome == "undecided"


def test_of_pairs_of_the_same_code_few_are_called_different(tmp_path: Path) -> None:
    runs = [_run(tmp_path / str(seed), seed=seed, steps=6) for seed in range(20)]
    options = CompareOptions(noise=0.0)  # there is none between them: what is left is that of the steps
    verdicts = [
        compare([base], [new], options).whole.verdict for base, new in zip(runs[::2], runs[1::2], strict=True)
    ]
    assert verdicts.count("undecided") >= 9


def test_with_several_runs_a_side_the_noise_is_measured(tmp_path: Path) -> None:
    base = [_run(tmp_path / f"base{seed}", seed=seed) for seed in range(3)]
    new = [_run(tmp_path / f"new{seed}", {"train": 10}, seed=10 + seed) for seed in range(3)]
    found = compare(base, new, CompareOptions(fail_if_slower=0.03))
    assert (found.noise_source, found.whole.verdict) == ("seen between the runs of each side", "slower")
    assert found.whole.share == pytest.approx(0.1, abs=0.02)
    assert found.gate is not None
    assert found.gate.outcome == "slower"
    assert found.culprits == ["kind matmul", "layer 1"]


def test_without_clean_steps_the_profiled_ones_are_judged_and_it_is_said(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", {"train": 30}, clean=False)
    found = compare([base], [new], CompareOptions())
    assert (found.basis, found.whole.base, found.whole.new) == ("profiled train step", 105, 135)
    assert [run.left_out for run in (*found.base_runs, *found.new_runs)] == [{"clean steps": 20}, {}]
    assert found.figures[2].new is None


def test_each_kind_of_step_is_judged_and_the_slower_one_decides(tmp_path: Path) -> None:
    base = _run(tmp_path / "base", {"prefill": 20, "decode": 0})
    new = _run(tmp_path / "new", {"prefill": 20, "decode": 40}, seed=2)
    found = compare([base], [new], CompareOptions(noise=0.01, fail_if_slower=0.1))
    assert (found.basis, found.whole.verdict) == ("clean decode step", "slower")
    assert found.gate is not None
    assert found.gate.outcome == "slower"
    others = {row.name: row.verdict for row in found.phases if "prefill" in row.name}
    assert others.pop("a clean prefill step") == "undecided"
    assert set(others) == {
        *("prefill, layer 0", "prefill, layer 1", "prefill, layer 2", "prefill, kind matmul"),
        *("prefill, kind activation", "prefill, kind host", "prefill, outside of modules"),
    }
    same = compare([base], [_run(tmp_path / "again", {"prefill": 20, "decode": 0}, seed=3)], CompareOptions())
    assert same.basis == "clean prefill step"  # that with the most time, where none is worse


def test_first_steps_are_left_out_by_their_iterations_while_enough_remain(tmp_path: Path) -> None:
    run, other = _run(tmp_path / "run", steps=8), _run(tmp_path / "other", steps=8, seed=2)
    found = compare([run], [other], CompareOptions(warmup=23))  # the clean ones are 21, 23, 25 ...
    assert (found.iterations, found.base_runs[0].left_out["steps at the start"]) == (6, 2)
    assert compare([run], [other], CompareOptions(warmup=100)).iterations == 6  # every fourth at most
    short = [_run(tmp_path / f"short{seed}", steps=5, seed=seed) for seed in (1, 2)]
    assert compare(short[:1], short[1:], CompareOptions(warmup=100)).iterations == 5


def test_steps_of_other_lengths_are_said(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", tokens=8192)
    found = compare([base], [new], CompareOptions())
    assert [(one.name, one.base, one.new) for one in found.differences] == [
        ("tokens of a train step", 4096, 8192)
    ]
    assert "times are per step, not per token" in text.render(report_of(found))


def test_every_format_shows_it(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", {"train": 30})
    made = report_of(compare([base], [new], CompareOptions()))
    assert "Kinds of work side by side" in html.render(made)
    assert '"basis": "clean train step"' in json.render(made)
    assert png.render(made).startswith(b"\x89PNG")


def test_the_command_says_slower(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = _run(tmp_path / "base"), _run(tmp_path / "new", {"train": 40}, seed=2)
    assert main(["compare", str(base.parent), str(new.parent), "--fail-if-slower", "5%"]) == 1
    assert "SLOWER: by more than noise, and by more than 5.00 %" in capsys.readouterr().out


@pytest.mark.parametrize("steps", [2, 3, 4])
def test_few_steps_have_a_wide_interval(tmp_path: Path, steps: int) -> None:
    base, same = _run(tmp_path / "base", steps=steps), _run(tmp_path / "same", seed=2, steps=steps)
    twice = _run(tmp_path / "twice", {"train": 100}, seed=3, steps=steps)
    whole = compare([base], [same], CompareOptions()).whole
    assert whole.verdict == "undecided"
    assert whole.share_low is not None and whole.share_low < 0 < (whole.share_high or 0)
    many = compare([_run(tmp_path / "base 20")], [_run(tmp_path / "same 20", seed=2)], CompareOptions()).whole
    assert whole.share_high - whole.share_low > (many.share_high or 0) - (many.share_low or 0)
    assert compare([base], [twice], CompareOptions()).whole.verdict == "slower"


def test_the_sort_with_enough_steps_goes_before_clean_ones(tmp_path: Path) -> None:
    base, new = _run(tmp_path / "base", steps=5, clean=False), _run(tmp_path / "new", steps=5, clean=False)
    assert compare([base], [new], CompareOptions()).basis == "profiled train step"


def test_what_cannot_be_compared_is_refused(tmp_path: Path) -> None:
    one = _run(tmp_path / "one", steps=1)
    with pytest.raises(PerfError, match=r"has 1 clean and 1 profiled train steps, .* it needs 1 more of one"):
        compare([one], [one], CompareOptions())
    run, decode = _run(tmp_path / "run"), _run(tmp_path / "decode", {"decode": 0})
    with pytest.raises(PerfError, match="no kind of profiled step in common: .* has train; .* has decode"):
        compare([run], [decode], CompareOptions())
    with pytest.raises(PerfError, match="are the same run, and a run counts once"):
        compare([run, run], [run], CompareOptions())
