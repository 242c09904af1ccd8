"""The diagnosis: its layout with fixed measurements, and its verdicts with figures one can work out."""

from __future__ import annotations

import pytest
from diagnosis.listeners import EndpointState, Listener
from diagnosis.observed import Load, Observed
from diagnosis.verdict import Diagnosis, Places, predicted

from flagscale_perf.report.text import render
from tests.golden import golden
from tests.tee_gpu.calibrations import MIB, fixed

AT = "ipc:///run/x.ipc"
SERVER = Listener(71, "python server_optimized.py", (("LLAMA_DTYPE", "float32"),))


def diagnosed(observed: Observed, places: Places | None = None) -> Diagnosis:
    return Diagnosis(fixed(observed.loads), observed, places)


def first(observed: Observed) -> str:
    return diagnosed(observed).conclusions()[0][0]


def alike(*load: int) -> tuple[Load]:
    return (Load(*load),)


def test_the_layout() -> None:
    places = Places(
        EndpointState(AT, "live", (SERVER,), "0600", "ann"),
        "default",
        [(AT, SERVER)],
        {"LLAMA_IPC_PATH": "", "LLAMA_DTYPE": "bfloat16"},
        "TCP",
    )
    seen = Observed(alike(98, 3328 * MIB, 3657 * MIB), "the requirement", 32.59)
    made = diagnosed(seen, places)
    assert render(made.report()) == golden("rpc_diagnosis.txt")
    ends = made.as_dict()["predicted_s"]["msgpack over ipc"]  # 29.3 s by what was measured
    assert ends == pytest.approx([0.5 * 29.3, 1.75 * 29.3], abs=0.05)


def test_many_bytes_are_the_reason_not_the_transport() -> None:
    # 100 x 20 MiB x 4 ns = 8.39 s, and 9 in calls at most; the best path's 0.11 ns a byte make 0.23 s
    said = first(Observed(alike(100, 1000 * MIB, 1000 * MIB), "x", rpc_s=9.0))
    assert said == (
        "Bytes and copies cost it, not the transport: 2,000 MiB in 100 calls take 8.39 s by msgpack over "
        "ipc here (9.00 s were spent in calls), 62 % of it serializing and deserializing. shared "
        "memory would save 3.79 s to 9.00 s of 9.00 s, if they take what was measured here."
    )


def test_many_small_calls_are_the_reason() -> None:
    # 10 000 x 30 us = 0.3 s; through shared memory 8 us each
    said = first(Observed(alike(10_000, 1_000_000, 0), "x"))
    assert said == (
        "The number of calls costs it, not their bytes: 10000 calls of at least 30 us. shared memory "
        "would save 11.8 ms to 492 ms, if they take what was measured here."
    )


@pytest.mark.parametrize(
    ("observed", "why"),
    [
        # 0.3 s, of which 1.75 times could be saved at most, and 10 s in calls
        (
            Observed(alike(10_000, 1_000_000, 0), "x", rpc_s=10.0),
            "shared memory would save 492 ms of 10.00 s at most (4.9 %).",
        ),
        # 5 s in calls, of them 4.9 in the methods themselves
        (
            Observed(alike(100, 10 * MIB, 10 * MIB), "x", rpc_s=5.0, server_s=4.9),
            "all that carrying these calls took are 100 ms of 5.00 s (2.0 %).",
        ),
        # already on the best path
        (
            Observed(alike(100, 1000 * MIB, 1000 * MIB), "x", 0.25, 0.0, "IPC", "shared"),
            "shared memory is the cheapest way measured here.",
        ),
    ],
)
def test_the_transport_is_not_the_problem_where_no_other_saves_a_tenth(observed: Observed, why: str) -> None:
    assert first(observed) == f"The transport is not your problem: {why}"


def test_nothing_is_predicted_where_the_present_path_is_not_explained() -> None:
    # 31 ms by the measurements, where the calls took 770: the processes waited for something else
    traffic = alike(100, 130 * MIB, 130 * MIB)
    seen = Observed(traffic, "x", 0.77, 0.0, transport="IPC", payload="shared")
    made = diagnosed(seen)
    (said, *others) = (text for text, _ in made.conclusions())
    assert said == (
        "What another path would save is not known: by what was measured here, shared memory takes "
        "30.8 ms for these calls, and carrying them took 770 ms. See what else ran on the machine, and how "
        "long the processes waited for a CPU."
    )
    assert others == [] and made.as_dict()["predicted_s"] == {}
    assert "predicted" not in render(made.report())


def test_a_saving_has_both_ends() -> None:
    # carrying took 9 s of 10, of which a quarter may stay, and takes 0.23 on the best path, nothing to 0.41
    seen = Observed(alike(100, 1000 * MIB, 1000 * MIB), "x", rpc_s=10.0, server_s=1.0)
    assert first(seen).endswith("shared memory would save 6.34 s to 9.00 s of 10.00 s.")


def test_shared_memory_may_take_no_copy_at_all() -> None:
    here = fixed(alike(100, 1000 * MIB, 1000 * MIB))
    shared, frames = here.path("shared", "IPC"), here.path("frames", "IPC")
    assert shared is not None and frames is not None
    assert predicted(shared, 100).least == pytest.approx(0.5 * 100 * 8e-6)
    assert predicted(frames, 100).least == pytest.approx(0.5 * frames.calls_ns / 1e9)


def test_latency_is_said_to_be_little_where_it_is() -> None:
    many = diagnosed(Observed(alike(100, 1000 * MIB, 1000 * MIB), "x")).conclusions()
    assert many[1][0] == "Latency is not the reason: even by msgpack over tcp, 100 calls x 40 us are 4 ms."
    assert len(diagnosed(Observed(alike(10_000, 1_000_000, 0), "x")).conclusions()) == 1


def test_a_path_that_was_not_measured_is_said() -> None:
    observed = Observed(alike(1, MIB, MIB), "x", transport="TCP", payload="frames")
    assert first(observed) == "There is no measurement of frames over TCP to compare with."


@pytest.mark.parametrize(
    ("places", "says"),
    [
        (
            Places(EndpointState(AT, "missing"), "default"),
            ["No process listens at ipc:///run/x.ipc: start the server."],
        ),
        (
            Places(EndpointState(AT, "stale", (), "0600", "ann"), "default"),
            ["/run/x.ipc is left over from a server that ended: a server that is started removes it."],
        ),
        (
            Places(EndpointState(AT, "not a socket", (), "0600", "ann"), "default"),
            ["/run/x.ipc is not a socket: choose another path; your file is not removed."],
        ),
        (
            Places(EndpointState(AT, "missing"), "LLAMA_IPC_PATH", [("ipc:///run/y.ipc", SERVER)]),
            [
                "No process listens at ipc:///run/x.ipc: start the server.",
                "The client would ask ipc:///run/x.ipc, but pid 71: python server_optimized.py listens at "
                "ipc:///run/y.ipc: give both the same.",
            ],
        ),
        (
            Places(EndpointState(AT, "live", (SERVER, Listener(None))), "default"),
            [
                "More than one process is bound to ipc:///run/x.ipc: pid 71: python server_optimized.py and "
                "a process of another user. Stop the older one."
            ],
        ),
        (
            Places(EndpointState(AT, "live", (SERVER,)), "default", environment={"LLAMA_DTYPE": "bfloat16"}),
            ["The server runs with LLAMA_DTYPE=float32, this shell has bfloat16."],
        ),
        (
            Places(EndpointState(AT, "live", (SERVER,)), "default", logged="TCP"),
            ["The log says TCP, the endpoint here is IPC."],
        ),
        (Places(EndpointState(AT, "live", (SERVER,)), "default", [(AT, SERVER)], logged="IPC"), []),
    ],
)
def test_a_wrong_endpoint_is_named(places: Places, says: list[str]) -> None:
    assert [text for text, _ in Diagnosis(fixed(), places=places).conclusions()] == says
