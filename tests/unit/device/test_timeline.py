"""Marks in, marks out with their time on the right clock: every figure here is worked out by hand."""

from __future__ import annotations

import pytest

from flagscale_perf.device import timeline as timeline_module
from flagscale_perf.device.marks import END
from flagscale_perf.device.timeline import CAPTURING, NOTHING_NAMED, TOO_MANY, CudaTimeline, HostTimeline
from flagscale_perf.training.marks import STARTS, STOPS
from flagscale_perf.training.phases import PHASES

pytestmark = pytest.mark.usefixtures("either_way")

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


def mark_of(phase, now):
    """A start for a phase, a stop for its complement."""
    return now + (STARTS[phase] if phase >= 0 else STOPS[~phase])


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
    """Drives it through (time, phase) for a start, (time, ~phase) for a stop; the first and the last mark are
    times alone.
    """
    (begin, *inner, end) = marks
    tick(begin)
    timeline.begin(begin)
    for now, phase in inner:
        tick(now)
        timeline.mark(mark_of(phase, now))
    tick(end)
    return timeline.end(end)


STEP = [
    1000,
    (1010, AROUND),
    (1020, FORWARD),
    (1025, DATA),
    (1055, ~DATA),
    (1100, ~FORWARD),
    (1110, BACKWARD),
    (1310, ~BACKWARD),
    (1315, ~AROUND),
    (1320, OPTIMIZER),
    (1400, ~OPTIMIZER),
    1404,
]
MARKS = tuple(mark_of(phase, now) for now, phase in STEP[1:-1])


def host_timeline():
    return HostTimeline(mark_ns=7)


def test_the_host_gives_the_marks_as_they_came():
    timeline = host_timeline()
    assert timeline.read(run(timeline, STEP)) == MARKS
    assert timeline.trouble == ""


def test_steps_do_not_leak_into_each_other():
    timeline = host_timeline()
    first = run(timeline, [0, (10, FORWARD), 30])
    timeline.mark(mark_of(DATA, 40))  # of nobody's step
    second = run(timeline, STEP)
    assert (first, second) == ((mark_of(FORWARD, 10),), MARKS)


def test_a_step_without_a_name_is_not_measured():
    timeline = host_timeline()
    assert (run(timeline, [0, 10]), timeline.trouble) == (None, NOTHING_NAMED)
    assert run(timeline, [0, (1, FORWARD), 10]) == (mark_of(FORWARD, 1),)
    assert timeline.trouble == ""


def test_on_the_host_too_many_marks_are_given_up_and_take_no_more_memory(monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_MARKS", 10)
    timeline = host_timeline()
    assert len(run(timeline, [0, *[(1, FORWARD)] * 10, 2])) == 10
    assert (run(timeline, [0, *[(1, FORWARD)] * 1000, 2]), timeline.trouble, timeline.cost_ns) == (
        None,
        TOO_MANY,
        77,
    )


def cuda_run(cuda, timeline, marks):
    def tick(now):
        cuda.now_ms = now / 1e3  # the marks are microseconds

    return run(timeline, marks, tick)


def test_on_a_device_the_same_by_its_own_clock():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    taken = cuda_run(cuda, timeline, STEP)
    assert timeline.read(taken) is None  # and nothing was waited for
    cuda.passed = cuda.recorded
    marks = [
        1000 + 1000 * (now - 1000) + mark_of(phase, 0) for now, phase in STEP[1:-1]
    ]  # a microsecond is 1000 ns
    assert timeline.read(taken) == [*marks, 1000 + 404_000 + END]


def test_events_that_finish_three_steps_late_come_back_to_their_step_and_to_the_pool():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    waiting, known, ends = [], [], []
    for step in range(20):
        waiting.append(cuda_run(cuda, timeline, [0, (step, FORWARD), (step + 7, ~FORWARD), 100]))
        ends.append(cuda.recorded)
        cuda.passed = ends[step - 3] if step >= 3 else 0
        while waiting and (marks := timeline.read(waiting[0])) is not None:
            waiting.pop(0)
            known.append(marks)
        assert len(waiting) == min(3, step + 1)
    assert known == [
        [1000 * n + STARTS[FORWARD], 1000 * n + 7000 + STOPS[FORWARD], 100_000 + END] for n in range(17)
    ]
    assert cuda.made == 4 * 4  # four steps' events serve for ever


def test_a_step_under_graph_capture_is_not_measured_and_records_nothing_more():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    timeline.begin(0)
    timeline.mark(mark_of(FORWARD, 0))
    cuda.capturing = True
    timeline.mark(mark_of(~FORWARD, 0))
    cuda.capturing = False
    assert timeline.end(3) is None
    assert timeline.trouble == CAPTURING
    assert cuda.recorded == 2
    taken = cuda_run(cuda, timeline, STEP)
    assert (taken is not None, timeline.trouble) == (True, "")
    assert cuda.made == 12  # the two of the captured step were used again


def test_a_step_that_does_not_end_gives_its_events_back():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    timeline.begin(0)
    timeline.mark(mark_of(FORWARD, 0))
    cuda_run(cuda, timeline, [0, (1, FORWARD), 2])
    assert cuda.made == 3


def test_a_step_of_too_many_marks_is_given_up(monkeypatch):
    monkeypatch.setattr(timeline_module, "MAX_MARKS", 10)
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    assert cuda_run(cuda, timeline, [0, *[(1, FORWARD), (1, ~FORWARD)] * 9, 2]) is None
    assert (timeline.trouble, cuda.made) == (TOO_MANY, 10)


def test_without_a_name_a_device_measures_nothing_either():
    cuda = FakeCuda()
    timeline = CudaTimeline(cuda, mark_ns=7)
    assert (cuda_run(cuda, timeline, [0, 10]), timeline.trouble) == (None, NOTHING_NAMED)


@pytest.mark.parametrize(
    ("make", "cost_ns"), [(host_timeline, 14), (lambda: CudaTimeline(FakeCuda(), mark_ns=7), 14 + 5 + 3)]
)
def test_it_knows_what_its_marks_have_cost(make, cost_ns, clock):
    timeline = make()
    for _ in range(2):
        timeline.begin(0)
        for taken_ns, mark in ((5, mark_of(FORWARD, 100)), (3, mark_of(~FORWARD, 200))):
            clock.now_ns = 100 * (1 + (taken_ns == 3)) + taken_ns
            timeline.mark(mark)
        timeline.end(300)
        assert timeline.cost_ns == cost_ns
