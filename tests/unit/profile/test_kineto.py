"""A session of the profiler, and what is read of it."""

from __future__ import annotations

import pytest
import torch

from flagscale_perf.profile import kineto
from flagscale_perf.profile.attribution import Attribution
from flagscale_perf.profile.communication import collectives_of
from flagscale_perf.profile.events import Events
from flagscale_perf.profile.kineto import Range, Session
from flagscale_perf.profile.pieces import Pieces, exposed
from flagscale_perf.profile.ranges import MODULE, STEP
from flagscale_perf.profile.rows import rows_of
from flagscale_perf.spine.clock import monotonic_ns
from tests.gpu_events import COMPUTE, NCCL, Raw, kernel


def recorded(**how: bool) -> tuple[Session, int, int]:
    """A product in a range; when it began and ended."""
    one = torch.ones(4, 8)
    session = Session(**how)
    session.start()
    begin = monotonic_ns()
    with Range("mine"):
        torch.mm(one, one.T)
    end = monotonic_ns()
    session.stop()
    return session, begin, end


def times(events: Events, name: str) -> tuple[int, int]:
    """Start and end of the one event with this name."""
    (index,) = [i for i, n in enumerate(events.name) if events.names[n] == name]
    return int(events.start_ns[index]), int(events.end_ns[index])


def off_ns(events: Events, begin: int, end: int) -> int:
    """By how much the one event is out of the time in which it was made; 0 and below: it is within."""
    start, stop = times(events, "mine")
    inner, inner_stop = times(events, "aten::mm")
    assert start <= inner <= inner_stop <= stop
    return max(begin - start, stop - end)


def test_events_are_on_the_monotonic_clock() -> None:
    """Of a few sessions, the one in which nobody took the processor away between two readings of clocks."""
    found = [(session.events(1000), begin, end) for session, begin, end in (recorded() for _ in range(3))]
    assert min(off_ns(*each) for each in found) < 50_000
    events = found[0][0]
    assert events.dropped == 0
    assert events.inputs is None and events.allocations is None and events.kernels is None


def test_what_is_more_than_may_be_kept_is_counted() -> None:
    session, _, _ = recorded()
    count = len(recorded()[0].events(1000))
    events = session.events(1)
    assert (len(events), events.dropped) == (1, count - 1)


def test_shapes_and_memory_are_read_where_they_were_asked_for() -> None:
    session, _, _ = recorded(shapes=True, memory=True)
    events = session.events(1000)
    assert events.inputs is not None and events.allocations is not None
    (index,) = [i for i, n in enumerate(events.name) if events.names[n] == "aten::mm"]
    assert events.inputs.shapes[index] == [[4, 8], [8, 4]]
    assert list(events.inputs.dtypes[index]) == ["float", "float"]
    assert events.allocations.size_bytes.tolist()[:1] == [4 * 4 * 4]


def test_a_profiler_that_runs_is_seen_and_not_disturbed() -> None:
    assert not kineto.is_running()
    with torch.autograd.profiler.profile() as theirs:
        assert kineto.is_running()
        with pytest.raises(RuntimeError, match="another profiler"):
            Session().start()
        torch.ones(2)
    assert any(event.key == "aten::ones" for event in theirs.key_averages())


def test_kernels_of_a_gpu_are_its_operators_and_layers_and_overlap_is_of_streams() -> None:
    """A step of 1000 whose host only launches: two layers' products of 300 and 100 on one stream, and an
    all-reduce on another from 350 to 600, of which the products hide 50 and 100.
    """
    said = '"Process Group Name": "0", "Group size": 2, "dtype": "Float", "In msg nelems": 8'
    raw = [
        Raw(STEP, 0, 1000, "user_annotation", 1, _scope=7),
        Raw(f"{MODULE}layers.0", 10, 60, "user_annotation", 2, _scope=7),
        Raw("aten::linear", 20, 50, _id=3),
        Raw("aten::mm", 25, 45, _id=4),
        Raw("cudaLaunchKernel", 30, 40, "cuda_runtime", _id=1100),
        Raw(f"{MODULE}layers.1", 70, 120, "user_annotation", 5, _scope=7),
        Raw("aten::mm", 80, 110, _id=6),
        Raw("c10d::allreduce_", 130, 170, _id=7),
        Raw("record_param_comms", 135, 165, _id=8, _metadata=said),
        Raw("cudaDeviceSynchronize", 180, 990, "cuda_runtime", _id=9),
        Raw(f"{MODULE}layers.0", 100, 400, "gpu_user_annotation", _stream=COMPUTE),
        kernel("sm80_xmma_gemm_f32f32", 100, 400, 4),
        kernel("sm80_xmma_gemm_f32f32", 420, 520, 6),
        kernel("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*)", 350, 600, 8, NCCL),
    ]
    events = kineto._Reader(raw, 0, device=True, shapes=False, memory=False).read(1000)
    assert events.kernels is not None
    assert events.kernels.stream.tolist() == [COMPUTE, NCCL, COMPUTE]
    assert "cudaLaunchKernel" not in events.names
    places = Attribution(events)
    collectives = collectives_of(events, places.nesting)
    pieces = Pieces.of(events, places, collectives)
    found = rows_of(events, places, pieces)
    assert {(key.module, key.op): row.device_ns for key, row in found.rows.items() if row.device_ns} == {
        ("layers.0", "aten::mm"): 300,
        ("layers.1", "aten::mm"): 100,
        ("", "c10d::allreduce_"): 250,
    }
    assert found.device_busy_ns == 500
    (reduced,) = exposed(collectives, events, places, pieces)
    assert (reduced.start_ns, reduced.total_ns, reduced.exposed_ns) == (350, 250, 250 - 50 - 100)
