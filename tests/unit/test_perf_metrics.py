"""Marks and numbers in, records out: every figure here is worked out by hand."""

import pytest

from flagscale_perf.device.probe import Memory, NoDevice
from flagscale_perf.flops_calculator import Packed
from flagscale_perf.perf_metrics import MAX_PENDING, StepMeter
from flagscale_perf.training.recording.budget import Budget, Overrun
from flagscale_perf.training.recording.loop import StepNumbers
from flagscale_perf.training.records import Outcome, StepRecord


class LateDevice(NoDevice):
    """A device whose events are passed only when the test says so."""

    is_present = True

    def __init__(self):
        super().__init__("late")
        self.elapsed = {}
        self._steps = 0

    def stop(self):
        self._steps += 1
        return (self._steps, self._steps)

    def elapsed_ns(self, pair):
        return self.elapsed.get(pair[0])

    def memory(self):
        return Memory(40, 50, 60, 1)


def numbers(iteration, updated=True, samples=4):
    return StepNumbers(iteration, updated, samples, samples * 8, 2)


def record(**changes):
    base = StepRecord(
        iteration=1,
        iterations=1,
        outcome=Outcome.TRAINED,
        warmup=0,
        start_ns=0,
        iteration_ns=0,
        train_step_ns=0,
        device_ns=None,
        eval_ns=0,
        checkpoint_ns=0,
        log_ns=None,
        samples=4,
        tokens=32,
        skipped_samples=0,
        microbatches=2,
        model_flops=400,
        hardware_flops=800,
        memory_bytes=None,
        memory_peak_bytes=None,
        memory_reserved_bytes=None,
        memory_retries=None,
        self_ns=0,
        rank_tokens=None,
        rank_squared_lengths=None,
        rank_expert_tokens=None,
    )
    return base._replace(**changes)


def flops(samples, packed):
    """100 and 200 a sample; of packed documents 1 a token and 2 for the square of a length."""
    return (100 * samples, 200 * samples) if packed is None else (packed.tokens, 2 * packed.squared_lengths)


class Run:
    """A monitor with the calls of one loop."""

    def __init__(self, device=None, memory_interval=0, iteration=0):
        self.records = []
        self.monitor = StepMeter(self.records.append, flops, device or NoDevice(), memory_interval, iteration)

    def step(self, start, end, iteration, consumed, **kwargs):
        self.monitor.step_start(start, iteration - 1, consumed)
        self.monitor.step_end(end, numbers(iteration, **kwargs))


def test_an_iteration_runs_from_start_to_start_without_evaluation_and_checkpoint():
    run = Run()
    run.step(1000, 1600, 1, 0)
    run.monitor.notes.logged_ns = 1650
    run.monitor.pause("eval", 1700)
    run.monitor.resume("eval", 1900)
    run.monitor.pause("checkpoint", 1900)
    run.monitor.resume("checkpoint", 2000)
    run.step(2050, 2500, 2, 4)
    run.monitor.finish(2600)
    assert run.records == [
        record(
            warmup=1,
            start_ns=1000,
            iteration_ns=750,
            train_step_ns=600,
            eval_ns=200,
            checkpoint_ns=100,
            log_ns=650,
        ),
        record(iteration=2, start_ns=2050, iteration_ns=550, train_step_ns=450),
    ]


def test_every_value_of_a_step_is_in_the_field_of_its_name():
    """The monitor makes the record by position, as naming 22 fields takes a microsecond more."""
    device = LateDevice()
    device.elapsed = {1: 580}
    run = Run(device, memory_interval=1, iteration=8)
    run.monitor.step_start(1000, 8, 0)
    run.monitor.step_end(1600, StepNumbers(9, True, 4, 33, 2))
    run.monitor.notes.logged_ns, run.monitor.notes.spent_ns = 1650, 17
    run.monitor.notes.work = 31, 310, 5
    run.monitor.pause("eval", 1700)
    run.monitor.resume("eval", 1900)
    run.monitor.pause("checkpoint", 1900)
    run.monitor.resume("checkpoint", 2000)
    run.monitor.finish(2600)
    assert [(type(step), step._asdict()) for step in run.records] == [
        (
            StepRecord,
            {
                "iteration": 9,
                "iterations": 1,
                "outcome": 0,
                "warmup": 1,
                "start_ns": 1000,
                "iteration_ns": 1300,
                "train_step_ns": 600,
                "device_ns": 580,
                "eval_ns": 200,
                "checkpoint_ns": 100,
                "log_ns": 650,
                "samples": 4,
                "tokens": 33,
                "skipped_samples": 0,
                "microbatches": 2,
                "model_flops": 400,
                "hardware_flops": 800,
                "memory_bytes": 40,
                "memory_peak_bytes": 50,
                "memory_reserved_bytes": 60,
                "memory_retries": 1,
                "self_ns": 17,
                "rank_tokens": 31,
                "rank_squared_lengths": 310,
                "rank_expert_tokens": 5,
            },
        )
    ]
    assert [len(step) for step in run.records] == [len(StepRecord._fields)]


def test_the_last_iteration_ends_where_the_host_leaves_its_loop():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.pause("checkpoint", 20)
    run.monitor.resume("checkpoint", 50)
    run.monitor.loop_left(60)  # 30 of its own and a pause of 30
    run.monitor.pause("checkpoint", 70)
    run.monitor.resume("checkpoint", 75)
    run.monitor.finish(1000)
    assert [(r.iteration_ns, r.checkpoint_ns) for r in run.records] == [(30, 35)]


def test_a_pause_inside_a_pause_of_its_kind_counts_once():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.pause("checkpoint", 20)
    run.monitor.pause("checkpoint", 25)
    run.monitor.resume("checkpoint", 30)
    run.monitor.resume("checkpoint", 50)
    run.monitor.finish(60)
    assert [(r.checkpoint_ns, r.iteration_ns) for r in run.records] == [(30, 30)]


def test_a_skipped_update_trains_nothing_and_its_samples_are_told():
    run = Run()
    run.step(0, 10, 1, 0, updated=False)
    run.monitor.finish(20)
    assert run.records == [
        record(
            outcome=Outcome.UPDATE_SKIPPED,
            warmup=1,
            iteration_ns=20,
            train_step_ns=10,
            samples=0,
            tokens=0,
            skipped_samples=4,
            model_flops=0,
            hardware_flops=0,
        )
    ]


SKIP = record(
    outcome=Outcome.DATA_SKIPPED, samples=0, tokens=0, microbatches=0, model_flops=0, hardware_flops=0
)


def test_data_skipped_in_a_call_of_its_own():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.data_skipped(15, 25, 4)
    run.step(30, 40, 3, 8)
    run.monitor.finish(45)
    assert run.records == [
        record(warmup=1, iteration_ns=15, train_step_ns=10),
        SKIP._replace(iteration=2, start_ns=15, iteration_ns=10, skipped_samples=4),
        record(iteration=3, start_ns=30, iteration_ns=15, train_step_ns=10),
    ]


def test_data_skipped_without_any_call_is_seen_from_the_iteration_number():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.notes.loop_top_ns = 12
    run.step(100, 110, 5, 16)  # iterations 2, 3 and 4 went by: 12 samples
    run.monitor.finish(115)
    assert run.records == [
        record(warmup=1, iteration_ns=12, train_step_ns=10),
        SKIP._replace(iteration=4, iterations=3, start_ns=12, iteration_ns=88, skipped_samples=12),
        record(iteration=5, start_ns=100, iteration_ns=15, train_step_ns=10),
    ]


def test_batch_rampup_counts_each_step_with_its_own_batch():
    run = Run()
    run.step(0, 10, 1, 0, samples=4)
    run.step(20, 30, 2, 4, samples=8)
    run.monitor.finish(40)
    assert [(r.samples, r.tokens, r.model_flops) for r in run.records] == [(4, 32, 400), (8, 64, 800)]


def test_real_tokens_of_packed_batches_replace_the_padded_ones():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.packed(Packed(19, 131))
    run.step(12, 14, 2, 4)
    run.monitor.finish(16)
    assert [(r.tokens, r.model_flops, r.hardware_flops) for r in run.records] == [
        (19, 19, 262),
        (32, 400, 800),
    ]


def test_documents_are_counted_again_where_they_or_the_samples_differ():
    counted = []

    def count_flops(samples, packed):
        counted.append((samples, packed))
        return flops(samples, packed)

    run = Run()
    run.monitor._count_flops = count_flops
    steps = [(4, Packed(19, 131)), (4, Packed(19, 131)), (4, Packed(19, 132)), (5, Packed(19, 132))]
    for place, (samples, packed) in enumerate(steps):
        run.step(12 * place, 12 * place + 10, place + 1, 4 * place, samples=samples)
        run.monitor.packed(packed)
    run.monitor.finish(60)
    assert counted == [steps[0], steps[2], steps[3]]
    assert [r.hardware_flops for r in run.records] == [262, 262, 264, 264]


def test_of_a_skipped_update_the_packed_documents_were_not_trained():
    run = Run()
    run.step(0, 10, 1, 0, updated=False)
    run.monitor.packed(Packed(19, 131))
    run.monitor.finish(12)
    assert [(r.tokens, r.model_flops, r.hardware_flops) for r in run.records] == [(0, 0, 0)]


def test_a_resumed_run_goes_on_counting_and_has_no_skip():
    run = Run(iteration=100)
    run.step(0, 10, 101, 400)
    run.monitor.finish(12)
    assert run.records == [record(iteration=101, warmup=1, iteration_ns=12, train_step_ns=10)]


def test_a_step_that_did_not_end_is_not_a_finished_iteration():
    run = Run()
    run.step(0, 10, 1, 0)
    run.monitor.step_start(20, 1, 4)
    run.monitor.finish(30)
    assert [r.iteration for r in run.records] == [1]
    assert run.monitor.iteration == 1


def test_device_time_is_joined_to_its_own_step_when_the_device_gets_there():
    device = LateDevice()
    run = Run(device)
    for iteration in (1, 2, 3, 4):
        run.step(iteration * 100, iteration * 100 + 50, iteration, 0)
    assert run.records == []
    device.elapsed = {1: 41, 2: 42}
    run.step(500, 550, 5, 0)
    assert [(r.iteration, r.device_ns) for r in run.records] == [(1, 41), (2, 42)]
    run.monitor.finish(600)
    assert [(r.iteration, r.device_ns) for r in run.records] == [
        (1, 41),
        (2, 42),
        (3, None),
        (4, None),
        (5, None),
    ]


def test_a_device_that_never_answers_holds_back_a_bounded_number_of_records():
    run = Run(LateDevice())
    for iteration in range(1, 2 * MAX_PENDING):
        run.step(iteration * 100, iteration * 100 + 50, iteration, 0)
    assert len(run.records) == (2 * MAX_PENDING - 2) - MAX_PENDING


@pytest.mark.parametrize(("interval", "expected"), [(0, [None, None, None]), (2, [None, (40, 50), (40, 50)])])
def test_memory_is_read_once_an_interval_and_at_the_end(interval, expected):
    run = Run(LateDevice(), memory_interval=interval)
    for iteration in (1, 2, 3):
        run.step(iteration * 100, iteration * 100 + 50, iteration, 0)
    run.monitor.finish(400)
    memory = [
        (r.memory_bytes, r.memory_peak_bytes, r.memory_reserved_bytes, r.memory_retries) for r in run.records
    ]
    assert memory == [(*pair, 60, 1) if pair else (None,) * 4 for pair in expected]


def test_so_many_steps_are_judged_at_a_time_without_the_warm_up_and_then_weighed():
    run = Run()
    run.monitor.budget = Budget(0.1, 2)
    for iteration in range(1, 7):  # of 100 ns each
        run.step(iteration * 100, iteration * 100 + 50, iteration, 0)
        assert run.monitor.weighs is (iteration in (4, 5))
        assert run.monitor.verdict == (Overrun(15, 0.15) if iteration == 6 else None)
        run.monitor.notes.spent_ns += 20
        run.monitor.notes.cpu_ns += 15 * run.monitor.weighs
    assert run.monitor.shed() is None  # there is nothing but the record
    assert run.monitor.verdict is None
    assert [step.self_ns for step in run.records] == [20] * 5
