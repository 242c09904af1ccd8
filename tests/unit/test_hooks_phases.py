"""Phases, the monitor's own cost and what it switches off: through the hooks, as an adapter calls them."""

import types
from dataclasses import replace

import pytest
import torch

from flagscale_perf import hooks as hooks_module
from flagscale_perf.arguments import PerfConfig
from flagscale_perf.device import timeline as timeline_module
from flagscale_perf.device.probe import Memory
from flagscale_perf.device.timeline import NOTHING_NAMED, HostTimeline
from flagscale_perf.hooks import TrainingHooks
from flagscale_perf.training.marks import STARTS, STOPS, MarksJoin
from flagscale_perf.training.phases import PHASES
from flagscale_perf.training.records import PhaseRecord, StepRecord
from tests.unit.test_hooks import FACTS, NO_COUNTERS, FakeLogger, FakeLoop

pytestmark = pytest.mark.usefixtures("either_way")

FORWARD, OPTIMIZER = PHASES.index("forward"), PHASES.index("optimizer")
MS = 1_000_000


class Clock:
    """A clock that stands still but for `spend` and for `cost_ns` at each reading."""

    def __init__(self):
        self.now_ns = 1000
        self.cost_ns = 0

    def __call__(self):
        self.now_ns += self.cost_ns
        return self.now_ns

    def spend(self, ns):
        self.now_ns += ns


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for name in ("monotonic_ns", "thread_time_ns"):  # alone on its processor
        monkeypatch.setattr(hooks_module, name, clock)
    monkeypatch.setattr(timeline_module, "monotonic_ns", clock)
    return clock


@pytest.fixture(autouse=True)
def logger(monkeypatch):
    FakeLogger.started = []
    monkeypatch.setattr(hooks_module, "PerfLogger", FakeLogger)
    return FakeLogger


def config(**more):
    return PerfConfig(enable_perf_monitor=True, **{"perf_breakdown": True, "perf_max_overhead": 100.0} | more)


def a_step(hooks, spend=lambda ns: None):
    """1 ms before, 20 ms of forward, 2 ms between, 5 ms of optimizer, 3 ms behind; 4 ms until the next."""
    hooks.step_start()
    spend(1 * MS)
    if hooks.mark:
        hooks.mark(hooks_module.monotonic_ns() + STARTS[FORWARD])
    spend(20 * MS)
    if hooks.mark:
        hooks.mark(hooks_module.monotonic_ns() + STOPS[FORWARD])
    spend(2 * MS)
    if hooks.mark:
        hooks.mark(hooks_module.monotonic_ns() + STARTS[OPTIMIZER])
    spend(5 * MS)
    if hooks.mark:
        hooks.mark(hooks_module.monotonic_ns() + STOPS[OPTIMIZER])
    spend(3 * MS)
    hooks.step_end("result")
    spend(4 * MS)


def file_records(logger):
    """What the writer would make of the records."""
    join = MarksJoin()
    return [made for record in logger.started[0].records for made in join.take(record)]


def records_of(logger, kind):
    return [record for record in file_records(logger) if type(record) is kind]


def test_each_steps_phases_come_just_before_it_and_add_up_to_it(logger, clock):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config()))
    for _ in range(2):
        a_step(hooks, clock.spend)
    hooks.train_end(None)
    assert [(type(record), record.iteration) for record in file_records(logger)] == [
        (PhaseRecord, 1),
        (StepRecord, 1),
        (PhaseRecord, 2),
        (StepRecord, 2),
    ]
    own = {"forward_ns": 20 * MS, "optimizer_ns": 5 * MS, "other_ns": 6 * MS, "between_steps_ns": 4 * MS}
    expected = PhaseRecord(**dict.fromkeys(PhaseRecord._fields) | own | {"iteration": 1})
    assert records_of(logger, PhaseRecord) == [expected, expected._replace(iteration=2)]
    assert [record.iteration_ns for record in records_of(logger, StepRecord)] == [35 * MS] * 2


def test_evaluation_and_checkpoints_are_in_no_phase(logger, clock):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config()))
    a_step(hooks, clock.spend)
    for kind in ("eval", "checkpoint"):
        hooks.pause(kind)
        assert hooks.mark is None
        clock.spend(100 * MS)
        hooks.resume(kind)
    hooks.train_end(None)
    (phases,) = records_of(logger, PhaseRecord)
    assert (phases.between_steps_ns, sum(value or 0 for value in phases[1:])) == (4 * MS, 35 * MS)


def test_without_the_option_and_without_the_hosts_timers_nothing_is_recorded(logger):
    silent = FakeLoop(config=config())
    silent.names_phases = lambda: False
    for loop in (FakeLoop(config=config(perf_breakdown=False)), silent):
        hooks = TrainingHooks()
        hooks.train_start(loop)
        hooks.step_start()
        assert hooks.mark is None
        hooks.step_end("result")
        hooks.train_end(None)
    assert [type(record) for session in logger.started for record in session.records] == [StepRecord] * 2
    assert [session.facts.missing for session in logger.started] == [
        [NO_COUNTERS],
        [NO_COUNTERS, "phases (the host has no timers that mark them)"],
    ]


def test_a_schedule_whose_bubble_is_not_known_is_said_at_the_start(logger):
    facts = replace(FACTS, pipeline_parallel=2, pipeline_schedule="interleaved")
    TrainingHooks().train_start(FakeLoop(config=config(), facts=facts))
    bubble = "pipeline bubble (it is known for the 1f1b schedule only, this one is interleaved)"
    assert logger.started[0].facts.missing == [NO_COUNTERS, bubble]


def test_steps_without_phases_say_why_once_and_keep_their_records(logger):
    loop, hooks = FakeLoop(config=config()), TrainingHooks()
    hooks.train_start(loop)
    for _ in range(3):
        hooks.step_start()
        hooks.step_end("result")
    hooks.train_end(None)
    assert records_of(logger, PhaseRecord) == [PhaseRecord(i, *[None] * len(PHASES)) for i in (1, 2, 3)]
    line = f"phases are not known for every iteration: {NOTHING_NAMED}"
    assert logger.started[0].events == [("note", 0, line)]
    assert loop.said[1:-1] == [f"flagscale_perf: {line}"]


def test_a_failing_mark_switches_the_monitor_off(logger, capsys):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config()))
    hooks.step_start()
    hooks.phase_failed(ValueError("no event"))
    assert (hooks.active, hooks.mark) == (False, None)
    line = "monitor switched off at a phase: ValueError: no event"
    assert logger.started[0].events == [("failure", 0, line)]
    assert capsys.readouterr().err == f"flagscale_perf: {line} (training goes on without it)\n"


def test_the_monitors_own_time_is_in_the_step_it_was_spent_for(logger, clock):
    hooks = TrainingHooks()
    hooks.time_mark = lambda: 7
    hooks.train_start(FakeLoop(config=config()))
    clock.cost_ns = (
        10  # each reading of the clock, so each event with n readings costs the monitor 10 (n - 1)
    )
    for _ in range(3):
        a_step(hooks)
    hooks.train_end(None)
    first, second, third = (record.self_ns for record in records_of(logger, StepRecord))
    # step_start and step_end read it twice, each of four marks takes what a mark was found to take; the end
    # of the run is nobody's
    assert (first, second, third) == (10 + 10 + 4 * 7,) * 3


def run_of(hooks, clock, steps, cost_ns):
    """Steps of 100 ms of which the monitor takes `cost_ns` in its first event."""
    for _ in range(steps):
        hooks.loop_top()
        position = hooks._loop.position
        hooks._loop.position = lambda position=position: (clock.spend(cost_ns), position())[1]
        hooks.step_start()
        hooks._loop.position = position
        clock.spend(100 * MS - cost_ns)
        hooks.step_end("result")


class FakeDevice:
    """A device that is there, and knows what it was asked."""

    name, is_present, uuid, memory_bytes = "fake", True, "f", 10

    def __init__(self):
        self.asked = []

    def start(self):
        self.asked.append("start")

    def stop(self):
        self.asked.append("stop")

    def memory(self):
        self.asked.append("memory")
        return Memory(1, 2, 3, 0)

    def timeline(self, mark_ns):
        return HostTimeline(mark_ns)


def test_over_budget_the_monitor_sheds_phases_then_memory_then_device_events_and_keeps_the_steps(
    logger, clock, monkeypatch
):
    device = FakeDevice()
    monkeypatch.setattr(hooks_module, "current_device", lambda rehearsing: device)
    loop, hooks = FakeLoop(config=config(perf_max_overhead=0.1, perf_log_interval=10)), TrainingHooks()
    hooks.train_start(loop)
    run_of(hooks, clock, 71, cost_ns=MS)
    shed = [text for name, _, text in logger.started[0].events if name == "shed"]
    cost, limit = "the monitor takes 1000 us a step, 1 % of the time", "more than --perf-max-overhead 0.1"
    again = "it is tried again in 100 steps"
    assert shed == [
        f"phases switched off: {cost}, {limit} (for phases at least 200 us a step) allows; {again}",
        f"device memory switched off: {cost}, {limit} allows; {again}",
        f"device events switched off: {cost}, {limit} allows; {again}",
    ]
    assert [line for line in loop.said if "switched off" in line] == [
        f"flagscale_perf: {text}" for text in shed
    ]
    device.asked.clear()
    run_of(hooks, clock, 10, cost_ns=MS)
    assert (device.asked, hooks.mark) == ([], None)
    hooks.train_end(None)
    assert [record.iteration for record in records_of(logger, StepRecord)] == list(range(1, 82))
    # the first step is warm-up, ten are judged when the twelfth begins, ten more are weighed
    assert [record.iteration for record in records_of(logger, PhaseRecord)] == list(range(1, 22))


def test_what_was_switched_off_is_tried_again_and_stays_where_there_is_time_now(logger, clock, monkeypatch):
    device = FakeDevice()
    monkeypatch.setattr(hooks_module, "current_device", lambda rehearsing: device)
    loop, hooks = FakeLoop(config=config(perf_max_overhead=0.1, perf_log_interval=10)), TrainingHooks()
    hooks.train_start(loop)
    run_of(hooks, clock, 62, cost_ns=MS)  # phases, then memory, then events
    device.asked.clear()
    run_of(hooks, clock, 138, cost_ns=0)
    hooks.train_end(None)
    after = "switched on again after 100 steps, to see what the monitor takes now"
    said = [text for name, _, text in logger.started[0].events if name == "shed"]
    assert [text.partition(":")[0] for text in said[:3]] == [
        f"{part} switched off" for part in ("phases", "device memory", "device events")
    ]
    assert said[3:] == [f"{part} {after}" for part in ("phases", "device memory", "device events")]
    phases = [record.iteration for record in records_of(logger, PhaseRecord)]
    assert phases == [*range(1, 22), *range(122, 201)]
    steps = {record.iteration: record for record in records_of(logger, StepRecord)}
    assert [steps[each].memory_bytes is None for each in (40, 50, 140, 150)] == [False, True, True, False]
    assert device.asked.count("start") == device.asked.count("stop") == 200 - 161


def test_time_that_others_take_of_the_processor_is_no_reason(logger, clock, monkeypatch):
    """The clock on the wall goes on while the training thread waits for the processor."""
    monkeypatch.setattr(hooks_module, "thread_time_ns", Clock())
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_max_overhead=0.1)))
    run_of(hooks, clock, 100, cost_ns=MS)
    assert hooks.takes_marks
    hooks.train_end(None)
    assert [record.self_ns for record in records_of(logger, StepRecord)][1:-1] == [MS] * 98


@pytest.mark.parametrize(("cost_ns", "keeps"), [(200_000, True), (201_000, False)])
def test_phases_of_short_steps_are_kept_up_to_200_us_a_step_whatever_share_that_is(
    logger, clock, cost_ns, keeps
):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_max_overhead=0.1)))
    run_of(hooks, clock, 30, cost_ns=cost_ns)  # 0.2 % of 100 ms
    assert hooks.takes_marks is keeps
    hooks.train_end(None)


def test_without_phases_the_share_alone_is_the_limit(logger, clock, monkeypatch):
    monkeypatch.setattr(hooks_module, "current_device", lambda rehearsing: FakeDevice())
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_breakdown=False, perf_max_overhead=0.1)))
    run_of(hooks, clock, 22, cost_ns=150_000)
    (text,) = [text for name, _, text in logger.started[0].events if name == "shed"]
    cost = "the monitor takes 150 us a step, 0.15 % of the time"
    limit = "more than --perf-max-overhead 0.1 allows"
    assert text == f"device memory switched off: {cost}, {limit}; it is tried again in 100 steps"


@pytest.mark.parametrize("tracks", [True, False])
def test_memory_is_read_at_the_interval_where_it_is_asked_for(logger, clock, monkeypatch, tracks):
    device = FakeDevice()
    monkeypatch.setattr(hooks_module, "current_device", lambda rehearsing: device)
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_memory_tracking=tracks, perf_log_interval=10)))
    run_of(hooks, clock, 21, cost_ns=0)
    assert device.asked.count("memory") == (2 if tracks else 0)


@pytest.mark.parametrize(("interval", "judged"), [(1, 10), (20, 20), (1000, 100)])
def test_as_many_steps_as_the_interval_are_judged_but_not_too_few_or_too_many(
    logger, clock, interval, judged
):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_max_overhead=0.1, perf_log_interval=interval)))
    # the first one is warm-up, and the last one has not ended
    run_of(hooks, clock, 2 * judged + 1, cost_ns=MS)
    assert hooks.takes_marks
    run_of(hooks, clock, 1, cost_ns=MS)
    assert not hooks.takes_marks


def test_a_later_training_is_told_again_what_it_lacks(logger):
    hooks = TrainingHooks()
    for _ in range(2):
        hooks.train_start(FakeLoop(config=config()))
        hooks.step_start()
        hooks.step_end("result")
        hooks.train_end(None)
    assert [[name for name, *_ in session.events] for session in logger.started] == [["note"]] * 2


def test_within_budget_nothing_is_shed_and_a_single_dear_step_is_no_reason(logger, clock):
    hooks = TrainingHooks()
    hooks.train_start(FakeLoop(config=config(perf_max_overhead=1.0, perf_log_interval=10)))
    for _ in range(5):
        run_of(hooks, clock, 9, cost_ns=MS)
        run_of(hooks, clock, 1, cost_ns=80 * MS)
    hooks.train_end(None)
    assert [name for name, *_ in logger.started[0].events] == ["note"]
    assert len(records_of(logger, PhaseRecord)) == 50


ALLOWED = {"is_initialized", "current_device", "get_device_name", "get_device_properties", "Event"}
ALLOWED |= {"is_current_stream_capturing", "memory_stats_as_nested_dict"}


class LateEvent:
    """An event the device passes three steps after its own; anything but these methods is an
    AttributeError.
    """

    step = 0

    def record(self):
        self.at_step, self.at_ms = LateEvent.step, LateEvent.now_ms

    def query(self):
        return LateEvent.step - self.at_step >= 3

    def elapsed_time(self, end):
        assert end.query(), "the event was not passed: a real one would raise"
        return end.at_ms - self.at_ms


def test_nothing_is_waited_for_on_a_device_whose_events_are_three_steps_late(logger, monkeypatch):
    asked = []

    def counted(where, name, answer):
        def call(*args, **kwargs):
            asked.append(f"{where}.{name}")
            return answer

        return call

    functions = (types.FunctionType, types.BuiltinFunctionType)
    answers = {"is_initialized": True, "get_device_name": "late", "is_current_stream_capturing": False}
    answers["get_device_properties"] = types.SimpleNamespace(total_memory=10)
    answers["memory_stats_as_nested_dict"] = {"allocated_bytes": {"all": {"current": 5, "peak": 6}}}
    for where, module in (("cuda", torch.cuda), ("distributed", torch.distributed)):
        for name in [name for name, value in vars(module).items() if type(value) in functions]:
            monkeypatch.setattr(module, name, counted(where, name, answers.get(name)))
    monkeypatch.setattr(torch.cuda, "Event", lambda enable_timing: LateEvent())
    for waiting in ("item", "tolist", "cpu", "numpy"):
        monkeypatch.setattr(torch.Tensor, waiting, counted("Tensor", waiting, 0))

    loop, hooks = FakeLoop(config=config()), TrainingHooks()
    loop.rehearsing = False
    hooks.train_start(loop)
    for LateEvent.step in range(20):
        LateEvent.now_ms = LateEvent.step * 100.0

        def spend(ns):
            LateEvent.now_ms += ns / 1e6

        a_step(hooks, spend)
    assert hooks.active
    phases = records_of(logger, PhaseRecord)
    # 17 is the last one that was passed when 20 began
    assert [record.iteration for record in phases] == list(range(1, 18))
    assert {(record.forward_ns, record.optimizer_ns, record.other_ns) for record in phases} == {
        (20 * MS, 5 * MS, 6 * MS)
    }
    assert {record.device_ns for record in records_of(logger, StepRecord)} == {31 * MS}
    assert {call.partition(".")[2] for call in asked} <= ALLOWED
    assert {call.partition(".")[0] for call in asked} == {"cuda"}
    hooks.train_end(None)
    assert len(records_of(logger, StepRecord)) == 20
    assert {call.partition(".")[2] for call in asked} <= ALLOWED
