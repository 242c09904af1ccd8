"""What holds the step back."""

from __future__ import annotations

import random
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flagscale_perf.analysis.blocks import Quantity, Table
from flagscale_perf.analysis.job import open_session
from flagscale_perf.profile.analysis import tables
from flagscale_perf.profile.analysis.findings import judge
from flagscale_perf.profile.analysis.instrument import report_of
from flagscale_perf.profile.analysis.observer import Observer
from flagscale_perf.profile.analysis.report import ProfileReport
from flagscale_perf.profile.analysis.source import Profile, read_profile
from flagscale_perf.profile.records import Sort
from tests.profile_runs import FORWARD, MATMUL, MS, Profiled, Run


def _one_rank(tmp_path: Path, *rows: tuple[str, Sort, int], residual_ms: int = 0) -> ProfileReport:
    """Three steps of the rows' time, module, sort and milliseconds of each row in a step."""
    job = Profiled()
    process = job.rank(0, 1)
    host = sum(ms for _, sort, ms in rows if sort is Sort.HOST)
    whole = sum(ms for *_, ms in rows)
    steps = [
        job.step(process, start, whole + residual_ms, whole - host, 0, host, 0, 0, residual_ms)
        for start in (0, 1000, 2000)
    ]
    runs = []
    for module, sort, ms in rows:
        op = "" if sort is Sort.HOST else MATMUL
        job.row(process, (FORWARD, module, sort, op, 3, 3 * ms, None, None), steps=3)
        runs.append(Run(FORWARD, module, op, ms * MS))
    calls = job.runs(tmp_path, {step.number: runs for step in steps})
    job.window(process, steps=3, clean_steps=0, calls=calls)
    return report_of(read_profile(open_session(job.write(tmp_path))))


def test_nothing_is_said_of_nothing(nothing: Profile) -> None:
    assert report_of(nothing).findings == []


def _judged(found: ProfileReport, **communication: Any) -> ProfileReport:
    """As it is with these fields of its communication."""
    changed, changed.communication = copy(found), copy(found.communication)
    vars(changed.communication).update(communication)
    judge(changed)
    return changed


def _late(found: ProfileReport, *alone_ms: int) -> ProfileReport:
    """With as many steps, in each of which rank 0 waits so long for rank 1; below 0, rank 1 for rank 0."""
    lates = [
        late._replace(
            alone_ns=[sign * ms * MS for ms in alone_ms], most_ns=[max(0, sign * ms) * MS for ms in alone_ms]
        )
        for late, sign in zip(found.communication.lates, (1, -1), strict=True)
    ]
    assert [late.rank for late in lates] == [1, 0]
    return _judged(found, lates=lates)


def test_the_rank_that_others_wait_for(found: ProfileReport) -> None:
    """The second of ten, and the ninth: between these the median lies, 19 times of 20. Two steps in all."""
    (one,) = _late(found, 1, 3, 5, 5, 5, 5, 5, 5, 7, 20).findings
    assert (one.name, one.title, one.ranks) == ("late_rank", "The other ranks wait for rank 1", [1])
    assert (one.least_s, one.cost_s) == (pytest.approx(0.006), pytest.approx(0.014))
    assert one.cost_share == pytest.approx(7 / 101)
    assert one.evidence[0].figure == (
        "of a step: 3.000 to 7.000 ms; last in 2 of 4, at model.layers.0.self_attn (forward)"
    )


@pytest.mark.parametrize(
    "alone_ms",
    [(20,) * 5, (20, -20) * 5, (50, -5, -5, 30, 30, 30, 30, 30), (1,) * 10],
    ids=["too few steps", "in turns", "not always", "not worth it"],
)
def test_a_rank_is_not_accused_where_chance_explains_it(found: ProfileReport, alone_ms: tuple[int]) -> None:
    assert _late(found, *alone_ms).findings == []


def test_stages_of_a_pipeline_that_wait_for_each_other(tmp_path: Path) -> None:
    """Of 100 ms, stage 0 waits 12 for each of four receives, and stage 1 for none. Even stages would wait
    1 / (4 + 1). Of both, 26 % is in collectives: with even stages the other 74 % would
    be 4 / 5 of the step.
    """
    job = Profiled()
    for rank in (0, 1):
        process = job.rank(rank, tensor=0, tensor_size=1, pipeline=rank, pipeline_size=2)
        waits = 50 if rank == 0 else 2
        step = job.step(process, 0, 100, 98 - waits, 0, 1, 0, waits, 1)
        row = (FORWARD, f"model.layers.{rank}", Sort.OPERATOR, MATMUL, 1, 98 - waits, None, None)
        job.row(process, row, steps=1)
        for number in range(4):
            took, start = (12, 10 + 20 * number) if rank == 0 else (0, 22 + 20 * number)
            for is_send in (0, 1):
                begin = start - 8 if is_send == rank else start
                job.collective(
                    process,
                    begin,
                    took or 1,
                    op="gloo:send" if is_send else "gloo:recv",
                    is_send=is_send,
                    call="c10d::send" if is_send else "c10d::recv_",
                    group="PIPELINE_X 0-1",
                    ordinal=number,
                    step=step.number,
                    exposed_ns=(took if not is_send else 0) * MS,
                )
        job.window(process, steps=1, clean_steps=0)
    found = report_of(read_profile(open_session(job.write(tmp_path))))
    (one,) = [each for each in found.findings if each.name == "uneven_stages"]
    first, last = found.communication.bubbles
    assert (first.waiting_share, first.ideal_share, last.waiting_share) == (0.48, 1 / 5, 0.0)
    assert one.title == "Stage 0 of the pipeline waits 48.0 % of a step for its neighbours"
    assert one.ranks == [1]
    assert one.cost_share == pytest.approx(1 - (1 - 0.26) / (1 - 1 / 5))


def test_together_the_findings_are_no_more_than_the_whole(tmp_path: Path) -> None:
    """Rank 1 spends 85 of 100 ms in Python, and rank 0 35 and waits for the other 50: without the waiting, 50
    ms of the step would be left, and without Python, 35 more are gained. Neither counts the other's time.
    """
    job = Profiled()
    for rank, host in ((0, 35), (1, 85)):
        process = job.rank(rank, 2)
        for number in range(6):
            step = job.step(process, 1000 * number, 100, 10, 0, host, 0, 90 - host, 0)
            start = 1000 * number + host
            job.collective(process, start, 90 - host, step=step.number, ordinal=number)
        for sort, ms in ((Sort.HOST, host), (Sort.OPERATOR, 10), (Sort.COMMUNICATION, 90 - host)):
            op = MATMUL if sort is Sort.OPERATOR else ""
            job.row(process, (FORWARD, "model", sort, op, 6, 6 * ms, None, None), steps=6)
        job.window(process, steps=6, clean_steps=0)
    late, python = report_of(read_profile(open_session(job.write(tmp_path)))).findings
    assert (late.name, late.ranks, late.cost_share) == ("late_rank", [1], pytest.approx(0.5))
    assert (python.name, python.cost_share, python.overlaps) == ("host_bound", pytest.approx(0.35), ())


def test_what_costlier_findings_leave_is_all_that_another_can_cost(found: ProfileReport) -> None:
    """Transfers of nearly the whole step beside 3 % of waiting: both at once cannot be."""
    slow = [
        replace(one, exposed_ns=(one.exposed_wait_ns or 0) + 200 * MS) for one in found.communication.waits
    ]
    first, second = _late(_judged(found, waits=slow), *(3,) * 6).findings
    assert (first.name, first.cost_share) == ("transfers", pytest.approx(100 / 101))
    assert (second.name, second.cost_share, second.overlaps) == (
        "late_rank",
        pytest.approx(1 / 101),
        ("transfers",),
    )


def test_python_between_operators(tmp_path: Path) -> None:
    found = _one_rank(tmp_path, ("model.layers.0", Sort.OPERATOR, 70), ("model.layers.0", Sort.HOST, 30))
    assert [one.title for one in found.findings] == ["Python takes 30.0 % of a train step"]


def test_a_layer_that_takes_longer_than_the_others(tmp_path: Path) -> None:
    layers = [(f"model.layers.{place}", Sort.OPERATOR, 30 if place == 2 else 10) for place in range(4)]
    (one,) = _one_rank(tmp_path, *layers).findings
    assert one.title == "Layer 2 takes 3.0 times as long as the other layers (train)"
    assert one.least_s == one.cost_s == pytest.approx(0.060)  # 20 ms in each of 3 steps


def test_a_layer_that_sleeps_is_named_and_not_called_python_between_operators(tmp_path: Path) -> None:
    """It spends 40 ms of a step of 80 in Python, all of which is the layer's."""
    layers = [(f"model.layers.{place}", Sort.OPERATOR, 10) for place in range(4)]
    (one,) = _one_rank(tmp_path, *layers, ("model.layers.2.mlp", Sort.HOST, 40)).findings
    assert one.title == "Layer 2 takes 5.0 times as long as the other layers (train)"
    assert one.evidence[0].figure == (
        "layer 2 to the median layer of the same step, 5.00 to 5.00 in 3 steps: 40.000 to 40.000 ms more,"
        " most of it in mlp (host)"
    )
    assert one.cost_share == pytest.approx(0.5)


def test_a_module_that_is_no_layer_and_sleeps_is_named(tmp_path: Path) -> None:
    """The output layer spends 35 ms of a step of 100 in Python, each of 4 layers 5."""
    layers = [
        (f"model.layers.{place}", sort, ms)
        for place in range(4)
        for sort, ms in ((Sort.OPERATOR, 10), (Sort.HOST, 5))
    ]
    found = _one_rank(tmp_path, *layers, ("lm_head", Sort.HOST, 35), ("lm_head", Sort.OPERATOR, 5)).findings
    assert [one.title for one in found] == [
        "Python in lm_head takes 30.0 % of a train step",
        "Python takes 25.0 % of a train step",
    ]
    assert found[0].evidence[0].figure == (
        "of a train step beyond its median layer, 30.0 to 30.0 % in 3 steps: 30.000 to 30.000 ms"
    )
    assert found[0].least_s == found[0].cost_s == pytest.approx(0.090)


@pytest.mark.parametrize("held_up", [1, 3])
def test_a_module_that_a_few_steps_have_held_up_is_not_named(held_up: int, tmp_path: Path) -> None:
    """The head waits for the processor for 500 ms in so many steps of 12, of 60 ms each: 41 to 68 % of all
    their time, and nothing of the median step's.
    """
    job = Profiled()
    process, runs = job.rank(0, 1), {}
    for place in range(12):
        late = 500 * (place < held_up)
        step = job.step(process, 1000 * place, 60 + late, 40, 0, 20 + late, 0, 0, 0)
        layers = [(f"model.layers.{each}", op, 5) for each in range(4) for op in (MATMUL, "")]
        parts = [*layers, ("lm_head", "", late), ("lm_head", MATMUL, 20)]
        runs[step.number] = [Run(FORWARD, module, op, ms * MS) for module, op, ms in parts]
    for module, op, ms in (*layers, ("lm_head", "", 500 * held_up / 12), ("lm_head", MATMUL, 20)):
        row = (FORWARD, module, Sort.OPERATOR if op else Sort.HOST, op, 12, int(12 * ms), None, None)
        job.row(process, row, steps=12)
    job.window(process, steps=12, clean_steps=0, calls=job.runs(tmp_path, runs))
    found = report_of(read_profile(open_session(job.write(tmp_path)))).findings
    assert "python_in_module" not in {one.name for one in found}


def test_on_a_gpu_layers_have_the_devices_time_and_python_costs_what_the_device_idles(tmp_path: Path) -> None:
    """The host launches each layer in 10 ms and is Python for the other 60; kernels take 30 in layer 2 and 10
    in the others, so the device is busy for 60 of 100 ms.
    """
    job = Profiled()
    process = job.rank(0, 1)
    steps = [
        job.step(process, start, 100, 40, 0, 60, 0, 0, 0, device_busy_ns=60 * MS) for start in (0, 1000, 2000)
    ]
    runs = []
    for place in range(4):
        device_ns, module = 3 * (30 if place == 2 else 10) * MS, f"model.layers.{place}"
        runs.append(Run(FORWARD, module, MATMUL, 10 * MS, device_ns // 3))
        job.row(
            process, (FORWARD, module, Sort.OPERATOR, MATMUL, 3, 30, None, None), steps=3, device_ns=device_ns
        )
    job.row(process, (FORWARD, "", Sort.HOST, "", 3, 180, None, None), steps=3, device_ns=0)
    calls = job.runs(tmp_path, {step.number: runs for step in steps})
    job.window(process, steps=3, clean_steps=0, calls=calls)
    found = report_of(read_profile(open_session(job.write(tmp_path))))
    (table,) = tables.layers(found, found.sums["train"])
    assert isinstance(table, Table)
    assert table.head == ("layer", "device ms", "of its busy time", "host ms", "matmul")
    rows = [[one.value for one in row[1:4] if isinstance(one, Quantity)] for row in table.rows]
    assert rows[:4] == [[10, 1 / 6, 10], [10, 1 / 6, 10], [30, 0.5, 10], [10, 1 / 6, 10]]
    assert {one.name: one.cost_share for one in found.findings} == {
        "host_bound": pytest.approx(0.4),
        "slow_layer": pytest.approx(0.2),
    }
    assert found.findings[1].title == "Layer 2 takes 3.0 times as long as the other layers (train)"


def test_recomputation_that_takes_a_large_part(tmp_path: Path) -> None:
    job = Profiled()
    process = job.rank(0, 1)
    for start in (0, 1000, 2000):
        job.step(process, start, 100, 100, 0, 0, 0, 0, 0)
    for part, ms in (("recompute", 20), ("backward", 50), (FORWARD, 30)):
        job.row(process, (part, "model.layers.0", Sort.OPERATOR, MATMUL, 3, 3 * ms, None, None), steps=3)
    job.window(process, steps=3, clean_steps=0)
    (one,) = report_of(read_profile(open_session(job.write(tmp_path)))).findings
    assert (one.title, one.cost_share) == ("Recomputation takes 20.0 % of a train step", pytest.approx(0.2))


def _noisy(
    directory: Path,
    seed: int,
    *slow: float,
    layers: int = 0,
    spread: float | None = None,
    holdups: float | None = None,
) -> list[str]:
    """Layers that are called slow, of some alike ones of 10 ms that spread and are held up now and then, as
    on a machine that others use; those after the first take `slow` times as long. Where nothing is given,
    slow layers spread by 5 % and are never held up, others by 5 to 40 % and in one step of five or twenty.
    """
    source, job = random.Random(seed), Profiled()
    layers, steps, ranks = layers or source.randint(3, 8), source.randint(3, 8), source.choice((1, 2))
    factors = dict(enumerate(slow, start=1))
    if spread is None or holdups is None:
        spread = 0.05 if slow else source.choice((0.05, 0.2, 0.4))
        holdups = 0.0 if slow else source.choice((0.05, 0.2))
    else:
        steps += 7
    for process in [job.rank(rank, ranks) for rank in range(ranks)]:
        rows, runs = [0] * layers, {}
        for number in range(2 * steps):
            own = [
                round(
                    10 * MS * source.lognormvariate(0, spread) * factors.get(place, 1.0)
                    + (source.random() < holdups) * 10 * MS * source.expovariate(1 / 3)
                )
                for place in range(layers)
            ]
            if number % 2:
                job.step(process, 1000 * number, 0, is_profiled=0, total_ns=sum(own))
                continue
            step = job.step(process, 1000 * number, 0, 0, total_ns=sum(own), operators_ns=sum(own))
            runs[step.number] = [
                Run(FORWARD, f"model.layers.{place}", MATMUL, one) for place, one in enumerate(own)
            ]
            rows = [taken + more for taken, more in zip(rows, own, strict=True)]
        for place, taken in enumerate(rows):
            row = (FORWARD, f"model.layers.{place}", Sort.OPERATOR, MATMUL, steps, 0, None, None)
            job.row(process, row, steps=steps, self_ns=taken, total_ns=taken)
        job.window(process, steps=steps, clean_steps=steps, calls=job.runs(directory, runs))
    found = report_of(read_profile(open_session(job.write(directory)))).findings
    return [one.title for one in found if one.name == "slow_layer"]


def test_of_a_hundred_noisy_profiles_no_layer_is_called_slow(tmp_path: Path) -> None:
    assert [title for seed in range(100) for title in _noisy(tmp_path, seed)] == []


def test_a_layer_of_twice_the_time_is_found_where_steps_spread_by_little(tmp_path: Path) -> None:
    found = [_noisy(tmp_path, seed, 2.0) for seed in range(20)]
    assert all(len(titles) == 1 and titles[0].startswith("Layer 1 takes ") for titles in found)


def test_a_layer_of_three_times_the_time_is_found_on_a_busy_machine(tmp_path: Path) -> None:
    """Layers spread by 20 %, and each is held up in one of five steps, for three times as long on average."""
    found = [_noisy(tmp_path, seed, 3.0, spread=0.2, holdups=0.2) for seed in range(20)]
    assert all(title.startswith("Layer 1 takes ") for titles in found for title in titles)
    assert sum(map(len, found)) >= 16


def test_layers_on_a_slope_are_not_called_slow(tmp_path: Path) -> None:
    """As something else makes them that runs at the same place of each step."""
    slope = (1.7, 1.6, 1.4)
    assert [_noisy(tmp_path, seed, *slope, layers=8, spread=0.1, holdups=0.0) for seed in range(20)] == [
        []
    ] * 20


def test_the_slowest_of_two_slow_layers_is_found_in_few_steps(tmp_path: Path) -> None:
    found = [_noisy(tmp_path, seed, 30.0, 25.0, layers=8) for seed in range(20)]
    assert all(any(title.startswith("Layer 1 takes ") for title in titles) for titles in found)


def test_a_layer_of_thirty_times_the_time_is_found_however_far_it_spreads(tmp_path: Path) -> None:
    found = [_noisy(tmp_path, seed, 30.0, layers=8, spread=0.8, holdups=0.0) for seed in range(20)]
    assert all(len(titles) == 1 and titles[0].startswith("Layer 1 takes ") for titles in found)


def test_a_layer_that_one_slow_step_has_held_up_is_not_called_slow(tmp_path: Path) -> None:
    job = Profiled()
    process = job.rank(0, 1)
    for start, ms in ((0, 40), (1000, 40), (2000, 100)):  # in 40 ms each of 4 layers takes 10
        job.step(process, start, ms, ms, 0, 0, 0, 0, 0)
    for place in range(4):
        ms = 90 if place == 3 else 30  # 60 of them in the last step
        row = (FORWARD, f"model.layers.{place}", Sort.OPERATOR, MATMUL, 3, ms, None, None)
        job.row(process, row, steps=3)
    job.window(process, steps=3, clean_steps=0)
    assert report_of(read_profile(open_session(job.write(tmp_path)))).findings == []


def test_what_too_few_steps_leave_open_is_said(found: ProfileReport, tmp_path: Path) -> None:
    assert found.unjudged == ["whether the others wait for one rank: that needs 6 profiled steps"]
    job = Profiled()
    process = job.rank(0, 1)
    job.step(process, 0, 90, 90)
    for place in range(3):
        job.row(
            process, (FORWARD, f"model.layers.{place}", Sort.OPERATOR, MATMUL, 1, 30, None, None), steps=1
        )
    job.window(process, steps=1, clean_steps=0)
    assert report_of(read_profile(open_session(job.write(tmp_path)))).unjudged[-1] == (
        "whether a layer of train steps is slow, or Python in another module: that needs 3 profiled steps"
        " whose runs were kept"
    )


GRAPH = "## Call CompiledFxGraph fabc ##"


@pytest.mark.parametrize("flops", [None, 100])
def test_compiled_code_without_an_event_of_a_product_is_said(tmp_path: Path, flops: int | None) -> None:
    job = Profiled()
    process = job.rank(0, 1)
    job.step(process, 0, 90, 90)
    job.row(process, (FORWARD, "net", Sort.OPERATOR, GRAPH, 1, 60, None, None), steps=1)
    job.row(process, (FORWARD, "net", Sort.OPERATOR, MATMUL, 1, 30, flops, 400), steps=1)
    job.window(process, steps=1, clean_steps=0)
    said = report_of(read_profile(open_session(job.write(tmp_path)))).unjudged
    assert (
        "the FLOPs of 1 compiled region of train steps: no event of a matrix product lies within, as with"
        " Inductor's C++ wrapper or its own kernels for products, so what they multiply is missing" in said
    ) == (flops is None)


def test_a_dispatch_mode_of_the_program_is_named(tmp_path: Path) -> None:
    found = _one_rank(tmp_path, ("net", Sort.OPERATOR, 30))
    assert not [line for line in found.unjudged if "Dispatch" in line]
    job = Profiled()
    process = job.rank(0, 1)
    job.step(process, 0, 90, 30, 0, 60)
    job.row(process, (FORWARD, "net", Sort.HOST, "PythonDispatchMode", 1, 60, None, None), steps=1)
    job.row(process, (FORWARD, "net", Sort.OPERATOR, MATMUL, 1, 30, None, None), steps=1)
    job.window(process, steps=1, clean_steps=0)
    assert report_of(read_profile(open_session(job.write(tmp_path)))).unjudged[-1] == (
        "train steps without PythonDispatchMode, which takes 66.7 % of them: a TorchDispatchMode of the"
        " program, such as FlopCounterMode, is called for every operator; leave it out of profiled steps"
    )


def test_transfers_that_are_no_waiting(found: ProfileReport) -> None:
    def names(exposed: int) -> list[str]:
        slow = [
            replace(
                one,
                transfer_ns=2 * one.transfer_ns,
                exposed_ns=(one.exposed_wait_ns or 0) + exposed * 2 * one.transfer_ns,
            )
            for one in found.communication.waits
        ]
        return [one.name for one in _judged(found, waits=slow).findings]

    assert names(1) == ["transfers"]
    assert names(0) == []  # those that compute hides cost nothing


def test_books_that_do_not_close(tmp_path: Path) -> None:
    found = _one_rank(tmp_path, ("model.layers.0", Sort.OPERATOR, 90), residual_ms=10)
    assert [one.title for one in found.findings] == ["10.0 % of a train step are in no row"]
    assert found.unjudged == ["what the device could do at best: no roofs were measured"]


def test_a_profiler_that_changes_what_it_measures(found: ProfileReport) -> None:
    def with_ratio(*ratios: float, clean: float = 1.0) -> list[str]:
        found.observers = {"train": Observer(ratios, [clean], None, None)}
        return [one.title for one in _judged(found).findings if one.name == "costly_observer"]

    assert with_ratio(1.5) == ["Profiling makes a train step x1.50"]
    assert with_ratio(1.05) == []
    assert with_ratio(1.2, 2.14, 6.0) == []  # x2.14 +- 1.2: wider than what it would say
    assert with_ratio(1.5, clean=1.6) == []  # clean steps differ as much
