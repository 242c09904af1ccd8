"""Intervals: what is summed, what is left out, when one is complete."""

from __future__ import annotations

from dataclasses import replace

from flagscale_perf.spine.clock import Anchor
from flagscale_perf.training.facts import RunFacts
from flagscale_perf.training.hardware import Stretch as HardwareStretch
from flagscale_perf.training.phases import PHASES, PhaseJoin
from flagscale_perf.training.records import CurveRecord, Outcome
from flagscale_perf.training.utilisation import Scale
from flagscale_perf.training.window import IntervalWindow
from tests.fakes import (
    MS,
    SCALE,
    SECOND,
    make_interval,
    make_phases,
    make_reading,
    make_skipped_data,
    make_step,
)

START_NS = 1_706_524_200 * SECOND
ANCHOR = Anchor(wall_ns=START_NS, mono_ns=0)

NOT_READ = dict.fromkeys([*HardwareStretch._fields, "loss", "grad_norm", "learning_rate"])


def intervals_of(steps, interval=10, has_first=False):
    window = IntervalWindow(interval, ANCHOR, SCALE, has_first)
    closed = [window.add(step) for step in steps]
    return [record for record in [*closed, window.close()] if record is not None]


def test_ten_equal_steps_make_one_interval_with_their_sums() -> None:
    (record,) = intervals_of([make_step(i) for i in range(1, 11)])
    # step 10 begins at 1.0 s and takes 0.1 s
    assert record == make_interval(10, end_wall_ns=START_NS + 1100 * MS, **NOT_READ)


def test_an_interval_is_complete_when_a_multiple_is_crossed() -> None:
    records = intervals_of([make_step(i) for i in range(8, 26)])
    assert [(r.first_iteration, r.iteration, r.steps) for r in records] == [
        (8, 10, 3),
        (11, 20, 10),
        (21, 25, 5),
    ]


def test_iteration_1_is_an_interval_of_its_own_where_that_is_asked_for() -> None:
    steps = [make_step(1, warmup=1), *(make_step(i) for i in range(2, 25))]
    records = intervals_of(steps, has_first=True)
    assert [(r.first_iteration, r.iteration, r.steps, r.warmup_only) for r in records] == [
        (1, 1, 1, True),
        (2, 10, 9, False),
        (11, 20, 10, False),
        (21, 24, 4, False),
    ]
    assert intervals_of(steps[:3], 1, has_first=True) == intervals_of(steps[:3], 1)
    resumed = intervals_of(steps[4:12], has_first=True)  # from iteration 5 on, as the host's rule has it
    assert [(r.first_iteration, r.iteration) for r in resumed] == [(5, 10), (11, 12)]


def test_a_run_of_skipped_iterations_may_cross_several_multiples_at_once() -> None:
    records = intervals_of([make_step(9), make_skipped_data(33, 24), make_step(34)])
    assert [(r.first_iteration, r.iteration, r.steps, r.skipped_iterations) for r in records] == [
        (9, 33, 1, 24),
        (34, 34, 1, 0),
    ]


def test_what_the_host_logs_goes_to_the_interval_of_its_iteration() -> None:
    window = IntervalWindow(2, ANCHOR, SCALE)
    records = []
    for iteration, loss in ((1, 8.0), (2, 7.0), (3, None), (4, 6.0)):
        window.add_curve(CurveRecord(iteration, 0, loss, 1.0, 1e-4 / iteration))
        records.append(window.add(make_step(iteration)))
    found = [(each.loss, each.grad_norm, each.learning_rate) for each in records if each]
    assert found == [(7.5, 1.0, 5e-5), (6.0, 1.0, 2.5e-5)]


def test_readings_of_the_device_go_to_the_interval_they_were_made_in() -> None:
    window = IntervalWindow(2, ANCHOR, SCALE)
    for at_ms, power_mw in ((50, 100_000), (150, 600_000), (250, 700_000), (350, 800_000)):
        window.add_hardware(make_reading(at_ms * MS, power_mw=power_mw))
    records = [window.add(make_step(iteration)) for iteration in range(1, 5)]
    # steps 1 and 2 run from 100 to 300 ms, 3 and 4 from 300 to 500 ms
    assert [record and record.power_mw for record in records] == [None, 650_000, None, 800_000]


def test_the_warmup_is_left_out_of_every_sum() -> None:
    warmup = make_step(
        1, warmup=1, iteration_ns=9 * SECOND, eval_ns=5, checkpoint_ns=6, model_flops=None, skipped_samples=8
    )
    (record,) = intervals_of([warmup, *[make_step(i) for i in range(2, 11)]])
    expected = make_interval(
        10,
        end_wall_ns=START_NS + 1100 * MS,
        steps=9,
        iteration_ns=900 * MS,
        train_step_ns=810 * MS,
        device_ns=720 * MS,
        samples=72,
        tokens=9216,
        model_flops=36 * 10**12,
        hardware_flops=45 * 10**12,
        self_ns=180_000,
        **NOT_READ,
    )
    assert record == expected


def test_an_interval_of_nothing_but_warmup_shows_it() -> None:
    (record,) = intervals_of([make_step(1, warmup=1)], interval=1)
    assert (record.warmup_only, record.steps, record.iteration_ns, record.samples) == (True, 1, 100 * MS, 8)


def test_data_passed_over_counts_as_skipped_and_in_no_rate() -> None:
    (with_skips,) = intervals_of([*[make_step(i) for i in range(1, 6)], make_skipped_data(10, 5, eval_ns=7)])
    (without,) = intervals_of([make_step(i) for i in range(1, 6)])
    assert with_skips == replace(
        without,
        iteration=10,
        end_wall_ns=START_NS + 1005 * MS + 7,
        skipped_iterations=5,
        skipped_samples=40,
        eval_ns=7,
    )


def test_data_passed_over_beside_a_warmup_alone_keeps_its_skipped_samples() -> None:
    (record,) = intervals_of([make_step(1, warmup=1), make_skipped_data(10, 9)])
    assert (record.warmup_only, record.steps, record.skipped_iterations, record.skipped_samples) == (
        True,
        1,
        9,
        72,
    )


def test_an_interval_of_skipped_data_alone_has_no_steps_and_no_quantiles() -> None:
    (record,) = intervals_of([make_skipped_data(10, 10)])
    assert (
        record.steps,
        record.iteration_ns,
        record.iteration_p50_ns,
        record.iteration_max_ns,
        record.warmup_only,
    ) == (
        0,
        0,
        None,
        None,
        False,
    )


def test_a_skipped_update_is_a_step_that_trained_nothing() -> None:
    skipped = make_step(
        2,
        outcome=int(Outcome.UPDATE_SKIPPED),
        samples=0,
        tokens=0,
        skipped_samples=8,
        model_flops=0,
        hardware_flops=0,
    )
    (record,) = intervals_of([make_step(1), skipped])
    assert (record.steps, record.skipped_iterations, record.samples, record.skipped_samples) == (2, 1, 8, 8)
    assert (record.iteration_ns, record.model_flops) == (200 * MS, 4 * 10**12)


def test_one_unknown_value_makes_its_sum_unknown() -> None:
    steps = [make_step(1), make_step(2, device_ns=None), make_step(3, model_flops=None), make_step(4)]
    (record,) = intervals_of(steps)
    assert (record.device_ns, record.model_flops, record.hardware_flops) == (None, None, 20 * 10**12)
    assert (record.mfu, record.hfu) == (None, 0.0625)


def test_phases_are_summed_where_every_step_has_them() -> None:
    join = PhaseJoin(RunFacts.of({"pipeline_parallel": 2, "pipeline_schedule": "1f1b"}))
    window = IntervalWindow(2, ANCHOR, SCALE)
    records = []
    for iteration in (1, 2, 3, 4):
        if iteration != 4:
            join.hold(make_phases(iteration, optimizer_clip_ns=iteration * MS))
        step = make_step(iteration)
        records.append(window.add(step, phases=join.take(step)))
    whole, holed = records[1], records[3]
    assert whole is not None and holed is not None and whole.phases_ns is not None
    known = {
        "data_loading": 4,
        "forward": 36,
        "backward": 72,
        "pipeline_recv_wait": 30,
        "pipeline_send": 2,
        "exposed_grad_comm": 6,
    }
    known |= {
        "optimizer": 2,
        "optimizer_inner_step": 8,
        "forward_backward_other": 8,
        "other": 12,
        "between_steps": 20,
        "optimizer_clip": 3,
    }
    assert whole.phases_ns == dict.fromkeys(PHASES) | {phase: value * MS for phase, value in known.items()}
    # a stage computes 56 ms for 2 micro-batches: 28 ms are more than it waits
    assert (whole.bubble_ns, whole.imbalance_ns) == (30 * MS, 0)
    assert (holed.phases_ns, holed.bubble_ns, holed.imbalance_ns) == (None, None, None)


def test_memory_is_the_last_known_reading() -> None:
    unread = dict.fromkeys(["memory_bytes", "memory_peak_bytes", "memory_reserved_bytes", "memory_retries"])
    steps = [
        make_step(1, memory_bytes=7, memory_peak_bytes=9, memory_reserved_bytes=8, memory_retries=3),
        make_step(2, **unread),
    ]
    (record,) = intervals_of(steps)
    assert (
        record.memory_bytes,
        record.memory_peak_bytes,
        record.memory_reserved_bytes,
        record.memory_retries,
    ) == (7, 9, 8, 3)


def test_quantiles_are_the_durations_of_steps() -> None:
    (record,) = intervals_of([make_step(i, iteration_ns=i * MS) for i in range(1, 21)], interval=100)
    assert (record.iteration_p50_ns, record.iteration_p95_ns, record.iteration_max_ns) == (
        10 * MS,
        19 * MS,
        20 * MS,
    )


def test_the_drop_count_is_handed_through() -> None:
    window = IntervalWindow(1, ANCHOR, SCALE)
    record = window.add(make_step(1), dropped=4)
    assert record is not None
    assert (record.dropped, window.close()) == (4, None)


def test_without_a_peak_an_interval_has_no_share_of_it() -> None:
    window = IntervalWindow(10, ANCHOR, Scale(8, None))
    window.add(make_step(1))
    record = window.close()
    assert record is not None
    assert (record.mfu, record.hfu, record.model_flops) == (None, None, 4 * 10**12)
