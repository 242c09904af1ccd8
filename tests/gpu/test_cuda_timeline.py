"""Phases on a real device: right times, adding up, not one synchronise, and none under graph capture."""

import pytest
import torch

from flagscale_perf.device.timeline import CAPTURING, CudaTimeline
from flagscale_perf.spine.clock import monotonic_ns
from flagscale_perf.training.marks import STARTS, STOPS, own_times
from flagscale_perf.training.phases import PHASES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

FORWARD, BACKWARD, OTHER = map(PHASES.index, ("forward", "backward", "other"))


def test_phases_are_read_without_waiting_and_add_up_to_the_step():
    timeline = CudaTimeline(torch.cuda, mark_ns=0)
    matrix = torch.randn(4096, 4096, device="cuda")
    truth = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    matrix @ matrix
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        truth[0].record()
        timeline.begin(0)
        for phase, products in ((FORWARD, 10), (BACKWARD, 20)):
            timeline.mark(monotonic_ns() + STARTS[phase])
            for _ in range(products):
                matrix @ matrix
            timeline.mark(monotonic_ns() + STOPS[phase])
        taken = timeline.end(0)
        truth[1].record()
        marks = timeline.read(taken)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    torch.cuda.synchronize()
    own_ns = own_times(marks or timeline.read(taken), 0, 0)
    assert sum(own_ns) == pytest.approx(truth[0].elapsed_time(truth[1]) * 1e6, rel=0.05)
    assert own_ns[BACKWARD] == pytest.approx(2 * own_ns[FORWARD], rel=0.2)
    assert own_ns[OTHER] < 0.05 * sum(own_ns)


def test_a_step_that_is_captured_into_a_graph_is_not_measured():
    timeline = CudaTimeline(torch.cuda, mark_ns=0)
    vector = torch.zeros(16, device="cuda")
    graph = torch.cuda.CUDAGraph()
    timeline.begin(0)
    with torch.cuda.graph(graph):
        timeline.mark(monotonic_ns() + STARTS[FORWARD])
        vector += 1
        timeline.mark(monotonic_ns() + STOPS[FORWARD])
    assert timeline.end(0) is None
    assert timeline.trouble == CAPTURING
