"""Marks in, own times of phases out: every figure here is worked out by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.core.phases import PHASES
from flagscale_perf.device import timeline as timeline_module
from flagscale_perf.device.timeline import CAPTURING, NOTHING_NAMED, TOO_MANY, CudaTimeline, HostTimeline

FORWARD, BACKWARD, DATA, AROUND, OPTIMIZER = map(
    PHASES.index, ("forward", "backward", "data_loading", "forward_backward_other", "optimizer")
)


class FakeEvent:
    """An event on the clock of a `FakeCuda`; the device passes it when the test says so."""

    def __init__(self, cuda, enable_timing):
        assert enable_timing
        cuda.made += 1
        self._cuda = cuda

    def record(self):
        assert not self._cuda.capturing
        self.at_ms = self._cuda.now_ms
        self.number = self._cuda.recorded = self._cuda.recorded + 1

    def query(self):
        return self.number <= self._cuda.passed

    def elapsed_time(self, end):
        assert end.query() and self.query(), "the event was not passed"
        return end.at_ms - self.at_ms


class FakeCuda:
    """The calls of `torch.cuda` that may be made; any other one is an AttributeError."""

    def __init__(self):
        self.now_ms = 0.0
        self.made = self.recorded = self.passed = 0
        self.capturing = False

    def Event(self, enable_timing):
        return FakeEvent(self, enable_timing)

    def is_current_stream_capturing(self):
        return self.capturing


def named(own_ns):
    return {PHASES[phase]: value for phase, value in enumerate(own_ns) if value}


class Clock:
    """Stands at `now_ns`."""

    now_ns = 0

    def __call__(self):
        return self.now_ns


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timeline_module, "monotonic_ns", clock)
    return clock


def run(timeline, marks, tick=lambda now: None):
    """Drives it through (time, phase) for a start, (time, ~phase) for a stop; the first and the last mark are times alone."""
    (begin, *inner, end) = marks
    tick(begin)
    timeline.begin(begin)
    for now, phase in inner:
        tick(now)
        timeline_module.monotonic_ns.now_ns = now
        timeline.start(phase) if phase >= 0 else timeline.stop(~phase)
    tick(end)
    return timeline.end(end)


STEP = [
    1000,
    (1010, AROUND), (1020, FORWARD), (1025, DATA), (1055, ~DATA), (1100, ~FORWARD),
    (1110, BACKWARD), (1310, ~BACKWARD), (1315, ~AROUND),
    (1320, OPTIMIZER), (1400, ~OPTIMIZER),
    1404,
]  # fmt: skip
OWN = {"other": 10 + 5 + 4, "forward_backward_other": 10 + 10 + 5, "forward": 5 + 45, "data_loading": 30, "backward": 200, "optimizer": 80}


def test_the_time_between_two_marks_belongs_to_the_innermost_open_phase():
    timeline = HostTimeline()
    own_ns = timeline.read(run(timeline, STEP))
    assert named(own_ns) == OWN
    assert sum(own_ns) == 1404 - 1000
    assert timeline.trouble == ""


def test_steps_do_not_leak_into_each_other():
    timeline = HostTimeline()
    first = run(timeline, [0, (10, FORWARD), 30])  # never stopped
    second = run(timeline, STEP)
    assert (named(first), named(second)) == ({"other": 10, "forward": 20}, OWN)


@pytest.mark.parametrize(
    ("marks", "own"),
    [
        # a stop without a start: only a mark
        ([0, (4, ~FORWARD), (6, BACKWARD), (9, ~BACKWARD), 10], {"other": 7, "backward": 3}),
        # an inner phase left open ends with the outer one
        ([0, (1, FORWARD), (2, DATA), (5, ~FORWARD), 10], {"other": 6, "forward": 1, "data_loading": 3}),
        # a phase inside itself
        ([0, (1, FORWARD), (2, FORWARD), (5, ~FORWARD), (9, ~FORWARD), 10], {"other": 2, "forward": 8}),
    ],
)
def test_unbalanced_names_still_add_up(marks, own):
    timeline = HostTimeline()
    own_ns = timeline.read(run(timeline, marks))
    assert (named(own_ns), sum(own_ns)) == (own, 10)


def test_a_step_without_a_name_is_not_measured():
    timeline = HostTimeline()
    assert (run(timeline, [0, 10]), timeline.trouble) == (None, NOTHING_NAMED)
    assert named(run(timeline, [0, (1, FORWARD), 10])) == {"other": 1, "forward": 9}
    assert timeline.trouble == ""


def cuda_run(cuda, timeline, marks):
    def tick(now):
        cuda.now_ms = now / 1e3  # the marks are microseconds

    return run(timeline, marks, tick)


def test_on_a_device_the_same_by_its_own_clock():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    taken = cuda_run(cuda, timeline, STEP)
    assert timeline.read(taken) is None  # and nothing was waited for
    cuda.passed = cuda.recorded
    own_ns = timeline.read(taken)
    assert named(own_ns) == {phase: value * 1000 for phase, value in OWN.items()}
    assert sum(own_ns) == 404_000


def test_events_that_finish_three_steps_late_come_back_to_their_step_and_to_the_pool():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    waiting, known, ends = [], [], []
    for step in range(20):
        waiting.append(cuda_run(cuda, timeline, [0, (step, FORWARD), (step + 7, ~FORWARD), 100]))
        ends.append(cuda.recorded)
        cuda.passed = ends[step - 3] if step >= 3 else 0
        while waiting and (own_ns := timeline.read(waiting[0])) is not None:
            waiting.pop(0)
            known.append(own_ns[FORWARD])
        assert len(waiting) == min(3, step + 1)
    assert known == [7000] * 17
    assert cuda.made == 4 * 4  # four steps' events serve for ever


def test_a_step_under_graph_capture_is_not_measured_and_records_nothing_more():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    timeline.begin(0)
    timeline.start(FORWARD)
    cuda.capturing = True
    timeline.stop(FORWARD)
    cuda.capturing = False
    assert timeline.end(3) is None
    assert timeline.trouble == CAPTURING
    assert cuda.recorded == 2
    taken = cuda_run(cuda, timeline, STEP)
    assert (taken is not None, timeline.trouble) == (True, "")
    assert cuda.made == 12  # the two of the captured step were used again


def test_a_step_that_does_not_end_gives_its_events_back():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    timeline.begin(0)
    timeline.start(FORWARD)
    cuda_run(cuda, timeline, [0, (1, FORWARD), 2])
    assert cuda.made == 3


def test_a_step_of_too_many_marks_is_given_up(monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_MARKS", 10)
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    assert cuda_run(cuda, timeline, [0, *[(1, FORWARD), (1, ~FORWARD)] * 9, 2]) is None
    assert (timeline.trouble, cuda.made) == (TOO_MANY, 10)


def test_without_a_name_a_device_measures_nothing_either():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda)
    assert (cuda_run(cuda, timeline, [0, 10]), timeline.trouble) == (None, NOTHING_NAMED)


@pytest.mark.parametrize("make", [HostTimeline, lambda: CudaTimeline(FakeCuda())])
def test_it_knows_what_its_marks_have_cost(make, monkeypatch):
    readings = iter(range(0, 1000, 7))
    monkeypatch.setattr(timeline_module, "monotonic_ns", lambda: next(readings))
    timeline = make()
    timeline.begin(0)
    timeline.start(FORWARD)
    timeline.stop(FORWARD)
    timeline.end(100)
    assert timeline.cost_ns == 14
    timeline.begin(100)
    assert timeline.cost_ns == 0
