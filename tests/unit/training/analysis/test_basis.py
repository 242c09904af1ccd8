"""Runs are compared by what their sizes and models allow, and refused where nothing is comparable."""

from pathlib import Path

import pytest

from flagscale_perf.analysis.compare import driver
from flagscale_perf.analysis.compare.compare import Difference
from flagscale_perf.analysis.job import open_session
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis import basis, steps
from tests.fakes import make_step
from tests.run_files import write

MODEL = {"hidden": 64, "vocab": 8064, "recompute": {"modules": []}}


def runs(tmp_path: Path, *facts: dict, **overrides) -> list[steps.RunSteps]:
    files = [
        write(tmp_path / str(n), [make_step(i, **overrides) for i in range(1, 21)], **more)
        for n, more in enumerate(facts)
    ]
    return [steps.read_steps(open_session(file), 0, None) for file in files]


def chosen(tmp_path: Path, *facts: dict, **overrides) -> list[basis.Basis]:
    found = runs(tmp_path, *facts, **overrides)
    return basis.choose_basis([run.facts for run in found], steps.align(found))


def test_runs_of_one_size_are_compared_by_the_iteration(tmp_path) -> None:
    (base, new) = chosen(tmp_path, {}, {"dtype": "fp16", "tensor_parallel": 4})
    assert base == new == basis.Basis("iteration", "ms", 1)
    assert base.of(make_kept(), 250_000_000) == 250


def make_kept() -> steps.Step:
    return steps.Step(1, 250_000_000, 8, 1000, 2 * 10**12, None)


@pytest.mark.parametrize("facts", [{"world_size": 16}, {"seq_length": 256}])
def test_of_other_sizes_the_device_time_of_a_token_is_compared(tmp_path, facts) -> None:
    (base, new) = chosen(tmp_path, {}, facts)
    assert (base, new) == (
        basis.Basis("token", "GPU-us/token", 8),
        basis.Basis("token", "GPU-us/token", facts.get("world_size", 8)),
    )
    assert base.of(make_kept(), 250_000_000) == 8 * 250_000 / 1000


def test_of_other_models_the_device_time_of_a_flop_is_compared(tmp_path) -> None:
    (base, new) = chosen(tmp_path, {"model": MODEL}, {"model": MODEL | {"hidden": 128}})
    assert base == new == basis.Basis("FLOP", "GPU-ms/TFLOP", 8)
    assert base.of(make_kept(), 250_000_000) == 8 * 250 / 2


def test_recomputation_makes_no_other_model_and_neither_does_padding_for_tensor_parallel_ranks(
    tmp_path,
) -> None:
    recomputing = {"model": MODEL | {"recompute": {"modules": ["mlp"]}}}
    assert chosen(tmp_path, {"model": MODEL}, recomputing)[0].name == "iteration"
    padded = {"model": MODEL | {"vocab": 8192}}
    assert chosen(tmp_path, {"model": MODEL}, padded | {"tensor_parallel": 4})[0].name == "iteration"
    assert chosen(tmp_path, {"model": MODEL}, padded)[0].name == "FLOP"


def test_models_whose_flops_are_not_known_are_refused(tmp_path) -> None:
    with pytest.raises(
        PerfError,
        match=(
            r"^the runs train different models \(llama, mamba\) and their FLOPs are not known; compare "
            r"runs of"
        ),
    ):
        chosen(tmp_path, {}, {"model": {"hidden": 1}, "model_family": "mamba"}, model_flops=None)


def test_sizes_whose_tokens_are_not_known_are_refused(tmp_path) -> None:
    with pytest.raises(PerfError, match="batch or world size and their tokens are not known"):
        chosen(tmp_path, {}, {"world_size": 16}, tokens=0)


def test_a_rehearsal_is_not_compared_with_a_real_run(tmp_path) -> None:
    real, rehearsed = runs(tmp_path, {}, {"rehearsal": True})
    for sides in ([real], [rehearsed]), ([rehearsed], [real]):
        with pytest.raises(PerfError) as refusal:
            basis.check_sides(*sides)
        assert str(refusal.value).startswith(
            f"'{rehearsed.session.path}' is a rehearsal on the CPU and '{real.session.path}' is not"
        )


def test_runs_of_one_side_must_be_of_one_configuration(tmp_path) -> None:
    one, other = runs(tmp_path, {}, {"world_size": 16})
    with pytest.raises(PerfError) as refusal:
        basis.check_sides([one], [one, other])
    told = f"world_size is 8 in '{one.session.path}' and 16 in '{other.session.path}'; leave one of them out"
    assert str(refusal.value) == f"runs of one side must be of one configuration: {told}"


def differences(base: steps.RunSteps, new: steps.RunSteps) -> list[Difference]:
    return driver.differences(basis.configuration(base), basis.configuration(new))


def test_differences_are_those_of_the_configuration(tmp_path) -> None:
    model = MODEL | {"hidden": 128, "micro_batch": 2}
    base, new = runs(
        tmp_path, {"model": MODEL}, {"model": model, "micro_batch_size": 2, "pid": 7, "dtype": "fp16"}
    )
    assert differences(base, new) == [
        Difference("dtype", "bf16", "fp16"),
        Difference("micro_batch_size", 1, 2),
        Difference("model.hidden", 64, 128),
    ]


def test_differing_options_are_named_also_where_one_side_has_none(tmp_path) -> None:
    steps_of = [make_step(i) for i in range(1, 21)]
    files = [
        write(tmp_path / "a", steps_of, {"perf_max_log_files": 3}),
        write(tmp_path / "b", steps_of, {"perf_new": 1}),
    ]
    base, new = (steps.read_steps(open_session(file), 0, None) for file in files)
    assert differences(base, new) == [Difference("perf_new", None, 1)]


def test_settings_of_bridge_keep_the_names_that_it_has_for_them(tmp_path) -> None:
    usual = {"dataset.num_workers": 0, "checkpoint.save": "a", "model.seq_length": 64}
    changed = usual | {"dataset.num_workers": 2, "checkpoint.save": "b"}
    base, new = runs(tmp_path, {"arguments": usual}, {"arguments": changed})
    assert differences(base, new) == [Difference("dataset.num_workers", 0, 2)]


def test_a_strange_header_is_no_configuration_and_no_crash(tmp_path) -> None:
    odd = {"world_size": [], "model": ["x"], "seq_length": {}}
    assert chosen(tmp_path, odd, odd)[1] == basis.Basis("iteration", "ms", 1)
    with pytest.raises(PerfError, match="compare runs of one size"):
        chosen(tmp_path, odd, {"model": None})
