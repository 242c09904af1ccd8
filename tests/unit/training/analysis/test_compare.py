"""A comparison finds what was planted, is sure only where it may be, and judges no run against itself."""

from __future__ import annotations

import pytest

from flagscale_perf.analysis.compare.blocks import report_of
from flagscale_perf.analysis.compare.compare import CompareOptions, Figure, RunEntry
from flagscale_perf.analysis.compare.judge import UNDECIDED
from flagscale_perf.report.format import shown
from flagscale_perf.spine.errors import PerfError
from flagscale_perf.training.analysis import compare as of_instrument
from flagscale_perf.training.analysis.basis import NOISE, REHEARSAL_NOISE
from flagscale_perf.training.records import StandstillRecord
from tests import synthetic
from tests.compared import of_paths
from tests.fakes import SECOND, make_interval, make_step
from tests.run_files import steady, write
from tests.synthetic import MS, STEPS, Plan, cuts_records, node_record, ranks_record

compare = of_paths(of_instrument.compare)


def test_a_phase_that_takes_longer_is_named(tmp_path) -> None:
    base, new = write(tmp_path / "a", steady(60)), write(tmp_path / "b", steady(60, more_backward_ms=6))
    result = compare([base], [new], CompareOptions())
    assert (result.whole.verdict, result.whole.change, result.culprits) == ("slower", 6, ["backward"])
    assert (result.basis, result.unit, result.is_by_iteration) == ("iteration", "ms", True)
    assert (result.iterations, result.first_iteration, result.last_iteration) == (50, 11, 60)
    assert [row.name for row in result.phases if row.verdict != "undecided"] == ["backward"]
    assert result.base_runs == [RunEntry(str(base), "20240129_103000", 100, {"warm-up": 10}, 0)]
    assert result.figures == [
        Figure("mean", 100, 106, pytest.approx(0.06)),
        Figure("p95", 101, 107, pytest.approx(6 / 101)),
        Figure("tokens_per_s", 10240, pytest.approx(10240 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("tokens_per_s_per_gpu", 1280, pytest.approx(1280 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("tflops_per_gpu", 5, pytest.approx(5 / 1.06), pytest.approx(1 / 1.06 - 1)),
        Figure("memory_peak_gb", 3, 3, 0),
    ]
    assert compare([new], [base], CompareOptions()).culprits == ["backward"]


def test_waiting_of_rank_0_is_said_to_be_for_whom(tmp_path) -> None:
    """Its phases are compared, and a late rank shows there in the exchange of gradients alone."""
    late = [
        node_record(hostname="node4"),
        ranks_record(STEPS),
        *cuts_records(lambda rank, step: {"forward_ns": 200 * MS} if rank == 5 else {}),
    ]
    plans = Plan(), Plan(extra=lambda n: {"exposed_grad_comm_ns": 200 * MS}, also=late)
    directories = tmp_path / "a", tmp_path / "b"
    for directory in directories:
        directory.mkdir()
    base, new = map(synthetic.write, plans, directories)
    result = compare([base], [new], CompareOptions())
    assert result.culprits == ["exposed_grad_comm"]
    (said,) = (remark for remark in result.remarks if "waits" in remark)
    assert said.startswith("rank 0 waits in NEW: rank 5 on node4 makes the others")
    (said,) = compare([new], [base], CompareOptions()).remarks
    assert said.startswith("rank 0 waits in BASE: rank 5 on node4 makes the others")


def test_a_host_that_was_busy_is_said(tmp_path) -> None:
    busy = Plan(
        extra=lambda n: {"data_loading_ns": 300 * MS},
        host=lambda n: {"cores": 2, "run_delay_ns": 300 * MS * n},
    )
    paths = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    for path in paths:
        path.mkdir()
    base, new, again = map(synthetic.write, (Plan(), busy, Plan(facts={"pid": 7})), paths)
    (said,) = compare([base], [new], CompareOptions()).disturbed
    assert (said.words, said.is_doubt) == ("NEW was short of CPU for 23.0 % of the time", True)
    assert said.share == pytest.approx(0.23, abs=0.005)
    (said,) = compare([again], [base, new], CompareOptions()).disturbed
    assert said.words.startswith("NEW's run 2 was short of CPU for ")
    title = shown(report_of(compare([base], [new], CompareOptions())).title)
    assert title.startswith("NEW is slower than BASE by ")
    assert title.endswith(", but NEW was short of CPU for 23.0 % of the time: not comparable")


def test_a_host_that_was_busy_for_a_while_may_have_been_so_in_the_steps_compared(tmp_path) -> None:
    busy = Plan(
        extra=lambda n: {"forward_ns": 600 * MS} if 60 < n <= 120 else {},
        host=lambda n: {"cores": 2, "run_delay_ns": 700 * MS * min(max(n - 60, 0), 60)},
    )
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        path.mkdir()
    base, new = map(synthetic.write, (Plan(steps=120), busy), paths)
    result = compare([base], [new], CompareOptions(fail_if_slower=0.03))
    (said,) = result.disturbed
    assert (said.words, said.is_doubt) == ("NEW was short of CPU for 6.6 % of the time", True)
    assert said.share == pytest.approx(42 / 146, abs=0.02)
    assert result.gate is not None and result.gate.outcome == UNDECIDED


def test_a_clock_that_was_capped_and_a_job_that_stood_still_are_disturbances(tmp_path) -> None:
    stood = Plan(also=[StandstillRecord(SECOND, 60 * SECOND, 1)], facts={"pid": 8}, after_ns=60 * SECOND)
    capped = Plan(
        extra=lambda n: {"backward_ns": 200 * MS} if n > 300 else {},
        reading=lambda n: {"sm_clock_mhz": 1200, "throttle": "power"} if n > 300 else {},
    )
    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        path.mkdir()
    base, new = map(synthetic.write, (stood, capped), paths)
    said = [one.words for one in compare([base], [new], CompareOptions()).disturbed]
    assert said[0].startswith("BASE stood still for ")
    assert said[0].endswith(" % of its session")
    assert said[1].startswith("NEW's clock was capped, which took ")


def test_twice_the_devices_and_tokens_for_the_same_time_is_no_difference(tmp_path) -> None:
    base = write(tmp_path / "a", steady(40))
    new = write(tmp_path / "b", steady(40, samples=16, tokens=2048, model_flops=8 * 10**12), world_size=16)
    result = compare([base], [new], CompareOptions())
    assert (result.basis, result.whole.base, result.whole.new) == (
        "token",
        8 * 100e3 / 1024,
        8 * 100e3 / 1024,
    )
    assert (result.whole.verdict, result.figures[3].change) == ("undecided", 0)
    assert [one.name for one in result.differences] == ["world_size"]


@pytest.mark.parametrize(
    ("more_ms", "limit", "outcome"),
    [
        (6, None, None),
        (6, 0.05, "slower"),  # by 3.1 to 8.9 %
        (6, 0.07, "undecided"),
        (6, 0.10, "not slower"),
        (1, 0.005, "undecided"),
        (0, 0.025, "undecided"),  # nothing below 2.8 % could have been seen
        (0, 0.04, "not slower"),
    ],
)
def test_the_gate_says_slower_not_slower_or_that_it_cannot_say(tmp_path, more_ms, limit, outcome) -> None:
    base, new = (write(tmp_path / str(more), steady(60, more_backward_ms=more)) for more in (0.001, more_ms))
    gate = compare([base], [new], CompareOptions(fail_if_slower=limit)).gate
    assert (gate.outcome if gate else None) == outcome
    assert gate is None or (gate.needed is not None) == (outcome == "undecided")


def test_a_run_compared_with_itself_or_its_copy_decides_nothing(tmp_path) -> None:
    path = write(tmp_path / "a", steady(60))
    copy = tmp_path / "copy"
    copy.write_bytes(path.read_bytes())
    for other in (path, copy):
        result = compare([path], [other], CompareOptions(fail_if_slower=0.5))
        assert result.same_run == "20240129_103000"
        assert (result.gate.outcome, result.gate.needed) == ("undecided", None)
    other = write(tmp_path / "b", steady(60), hostname="node1")
    assert compare([path], [other], CompareOptions()).same_run is None


def test_a_run_counts_once(tmp_path) -> None:
    path, other = write(tmp_path / "a", steady(40)), write(tmp_path / "b", steady(40), pid=7)
    with pytest.raises(PerfError, match=r"a' and '.*a' are the same run, and a run counts once; leave one"):
        compare([path, path], [other], CompareOptions())


def test_slow_steps_show_in_the_mean_and_not_in_the_median(tmp_path) -> None:
    calm, slow = steady(60), steady(60)
    for place, record in enumerate(slow):
        if getattr(record, "iteration", 0) % 4 == 0 and hasattr(record, "iteration_ns"):
            slow[place] = record._replace(iteration_ns=record.iteration_ns * 2)
    base, new = write(tmp_path / "a", calm), write(tmp_path / "b", slow)
    options = (CompareOptions(judge=judge, fail_if_slower=0.1) for judge in ("median", "mean"))
    by_median, by_mean = (compare([base], [new], one) for one in options)
    assert (by_median.whole.base, by_median.gate.outcome) == (100, "not slower")
    assert (by_mean.whole.base, by_mean.gate.outcome) == (100, "slower")
    # every fourth of the iterations 11 to 60, 13 of them, takes 99 ms more
    assert by_mean.whole.change == pytest.approx(13 * 99 / 50)
    assert by_mean.figures[2].change == pytest.approx(1 / (1 + by_mean.whole.share) - 1)  # tokens/s


def test_the_runs_are_drawn_over_each_other_and_their_phases_side_by_side(tmp_path) -> None:
    intervals = [make_interval(10), make_interval(20)]
    base = write(tmp_path / "a", [*steady(40), *intervals])
    new = write(tmp_path / "b", [*steady(40, more_backward_ms=6), *intervals])
    trend, phases = compare([base], [new], CompareOptions()).charts
    assert [line.label for line in trend.blocks[0].panels[0].lines] == ["BASE", "NEW"]
    assert [(bar.title, bar.room) for bar in phases.blocks] == [("BASE", 106), ("NEW", 106)]
    assert [part.value for bar in phases.blocks for part in bar.parts if part.label == "backward"] == [36, 42]


def test_the_bars_add_up_to_the_mean_iteration_though_phases_are_slow_in_turns(tmp_path) -> None:
    def slow(number: int) -> dict[str, int]:
        return {"forward_ns" if number % 2 else "backward_ns": 20 * MS}

    paths = tmp_path / "a", tmp_path / "b"
    for path in paths:
        path.mkdir()
    base, new = map(synthetic.write, (Plan(), Plan(extra=slow)), paths)
    result = compare([base], [new], CompareOptions())
    bars = result.charts[1].blocks
    assert [sum(part.value for part in bar.parts) for bar in bars] == [
        pytest.approx(result.figures[0].base),
        pytest.approx(result.figures[0].new),
    ]
    assert result.figures[0].new == pytest.approx(result.figures[0].base + 20)
    assert result.mean.change == pytest.approx(20)


def test_the_noise_between_runs_and_where_it_is_from(tmp_path) -> None:
    def noise(assumed: float | None = None, runs: int = 1, **facts: object) -> tuple[float, str]:
        files = [write(tmp_path / str(n), steady(40), pid=n, **facts) for n in range(2 * runs)]
        result = compare(files[:runs], files[runs:], CompareOptions(noise=assumed))
        return result.noise, result.noise_source

    assert noise() == (NOISE, "assumed for devices")
    assert noise(rehearsal=True) == (REHEARSAL_NOISE, "assumed for runs on a CPU")
    assert noise(device="CPU") == (REHEARSAL_NOISE, "assumed for runs on a CPU")
    assert noise(0.002) == (0.002, "--noise")
    assert noise(runs=3) == (0, "seen between the runs of each side")


def test_the_same_files_give_the_same_answer(tmp_path) -> None:
    files = [write(tmp_path / "a", steady(60)), write(tmp_path / "b", steady(60, more_backward_ms=2))]
    first, second = (compare(files[:1], files[1:], CompareOptions()).as_dict() for _ in range(2))
    assert first == second
    assert next(iter(first.items())) == ("comparison_version", 6)


def test_damaged_lines_are_counted(tmp_path) -> None:
    path = write(tmp_path / "a", [make_step(n) for n in range(1, 41)])
    path.write_bytes(path.read_bytes() + b"nonsense\n")
    assert compare([path], [path], CompareOptions()).base_runs[0].skipped_lines == 1


def test_without_phases_in_every_step_there_are_none(tmp_path) -> None:
    without = [step for step in steady(40) if hasattr(step, "tokens")]
    base, new = write(tmp_path / "a", without), write(tmp_path / "b", steady(40))
    assert compare([base], [new], CompareOptions()).phases == []
