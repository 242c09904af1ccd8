"""What doctor says of profiling."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

from flagscale_perf.hosts.profiling import doctor
from flagscale_perf.hosts.profiling.doctor import profiling_lines
from flagscale_perf.profile import kineto


@pytest.fixture(autouse=True)
def no_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "versions", lambda names: {"torch": "2.13.0"} if "torch" in names else {})


def test_a_torch_that_has_everything_is_one_line() -> None:
    assert profiling_lines({}) == ["torch 2.13.0: everything looked for was found"]


def test_a_name_that_torch_no_longer_has_is_said_with_its_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kineto, "PRIVATE", {"_C._profiler._GoneFast": "ranges cost more"})
    assert profiling_lines({}) == [
        "torch 2.13.0: not everything was found",
        "MISSING  torch._C._profiler._GoneFast: ranges cost more",
    ]


def test_what_is_asked_for_and_who_else_profiles() -> None:
    asked = {"FLAGSCALE_PERF_PROFILE_STEPS": "20-22", "KINETO_USE_DAEMON": "1"}
    assert profiling_lines(asked)[1:] == [
        "FLAGSCALE_PERF_PROFILE_STEPS=20-22 is set: processes that start from here are profiled",
        "KINETO_USE_DAEMON is set: a daemon may start torch's profiler; steps in which it does are not"
        " profiled, unset it",
    ]
    assert profiling_lines({"FLAGSCALE_PERF_PROFILE_STEPS": "now"})[1:] == [
        "nothing is profiled: FLAGSCALE_PERF_PROFILE_STEPS: 'now' does not name steps;"
        " write for example 20-22, or 20-22/100 for every 100"
    ]


@pytest.mark.parametrize(
    ("names", "environ", "line"),
    [
        ([], {}, "vllm 0.32.0: its plug-in is not installed; install flagscale_perf again"),
        (
            ["flagscale-perf"],
            {"VLLM_PLUGINS": "other"},
            "vllm 0.32.0: VLLM_PLUGINS='other' leaves the plug-in out; add flagscale-perf",
        ),
        (
            ["flagscale-perf"],
            {},
            "vllm 0.32.0: the plug-in is installed; FLAGSCALE_PERF_PROFILE_STEPS=1-3 profiles steps",
        ),
    ],
)
def test_the_plug_in_of_vllm(
    monkeypatch: pytest.MonkeyPatch, names: list[str], environ: dict[str, str], line: str
) -> None:
    monkeypatch.setattr(doctor, "versions", lambda names: {"vllm": "0.32.0"})
    entries = [SimpleNamespace(name=name) for name in names]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    assert profiling_lines(environ)[1:] == [line]


def test_without_torch_there_is_nothing_to_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.importlib.util, "find_spec", lambda name: None)
    assert profiling_lines({}) == []
